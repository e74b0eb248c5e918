from evenkeel.metrics.summary import GroupSummary
from evenkeel.records import TaskScore
from evenkeel.train.state import EarlyStopping, Position, seed_at


def scores(*values):
    return [TaskScore(f"task {index}", (value,), (value,)) for index, value in enumerate(values)]


def test_seeds_of_different_purposes_and_positions_differ():
    seeds = {
        seed_at(seed, purpose, a, b) for seed in (0, 1) for purpose in ("rollout", "update") for a in range(5) for b in range(5)
    }
    assert len(seeds) == 100 and all(0 <= seed < 2**63 for seed in seeds)


def test_a_fall_within_the_noise_is_no_fall():
    stopping = EarlyStopping(patience=1)
    stopping.observe(0, scores(0.5, 0.6, 0.4, 0.5))
    # Differences -0.2, +0.2, -0.1, 0: mean -0.025, far inside its interval
    assert not stopping.observe(1, scores(0.3, 0.8, 0.3, 0.5))
    assert stopping.falls == 0 and stopping.best_epoch == 0


def test_only_falls_in_a_row_stop_the_run():
    stopping = EarlyStopping(patience=2)
    stopping.observe(1, scores(0.50, 0.61, 0.42, 0.53))
    low, high = scores(0.30, 0.42, 0.21, 0.34), scores(0.55, 0.66, 0.47, 0.58)
    assert [stopping.observe(2, low), stopping.observe(3, high), stopping.observe(4, low), stopping.observe(5, low)] == [
        False,
        False,
        False,
        True,
    ]
    assert stopping.best_epoch == 3


def test_state_survives_json():
    import json

    stopping = EarlyStopping(patience=2)
    stopping.observe(1, scores(0.5, 0.25))
    again = EarlyStopping(patience=2)
    again.restore(json.loads(json.dumps(stopping.state())))
    assert again == stopping

    position = Position(epoch=2, step=17, draws_done=64, summary=GroupSummary(num_groups=3, outcomes={"passed": 2}))
    assert Position.restored(json.loads(json.dumps(position.state()))) == position
