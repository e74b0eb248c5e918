"""Every training option does something, and the walk runs with it: a metric against the unchanged run, or a property."""

import importlib.util
import json
import os
import signal
from pathlib import Path

import pytest

from evenkeel.cli import run
from evenkeel.cli.progress import TerminalListener
from evenkeel.metrics.view import open_run
from evenkeel.reward.shaping import QUALITY_PART
from evenkeel.train.checkpoint import list_checkpoints

from .in_process import BRIEF, Walk, read, walk
from .test_train import contents

EXAMPLES = Path(__file__).parents[2] / "examples"
STEPS = range(2)
FAR = {"training__learning_rate": 1e-2}
"""Far enough in one step for a KL that shows."""
VALIDATED = {"data__validation": "embedded:validation", "data__max_validation_samples": 12, "evaluation__greedy": "false"}


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory) -> Walk:
    return walk(tmp_path_factory.mktemp("walks") / "unchanged")


@pytest.fixture(scope="module")
def far(tmp_path_factory) -> Walk:
    return walk(tmp_path_factory.mktemp("walks") / "far", **FAR)


def values(found: Walk, name: str) -> list[float]:
    return [step[name] for step in found.steps if name in step]


def same_answers(one: Walk, other: Walk, step: int = 1) -> bool:
    """Whether a step sampled the same: the student was the same then."""
    texts = [[(row.task_id, row.text) for row in found.samples if row.step == step] for found in (one, other)]
    return texts[0] == texts[1]


# --------------------------------------------------------------------------- loss


def test_on_their_own_samples_losses_differ_only_in_how_they_add_up_tokens(tmp_path, unchanged):
    norms = {}
    for loss in ("gspo", "reinforce", "dapo", "cispo", "dr_grpo"):
        found = walk(tmp_path / loss, rlaif__loss=loss)
        assert same_answers(found, unchanged) and len(found.steps) == 2
        norms[loss] = found.steps[0]["grad_norm/mean"]
    by_sequence = unchanged.steps[0]["grad_norm/mean"]
    assert norms["gspo"] == pytest.approx(by_sequence, rel=1e-4)
    assert norms["reinforce"] == pytest.approx(by_sequence, rel=1e-4)
    assert norms["cispo"] == pytest.approx(norms["dapo"], rel=1e-4) and norms["dapo"] != pytest.approx(by_sequence, rel=1e-2)
    # the same sum over tokens, divided by S * max_new_tokens instead of by the N tokens of all samples that may train
    rows = [row for row in unchanged.samples if row.step == 1 and row.trains]
    share = sum(row.length for row in rows) / (len(rows) * BRIEF["rlaif.max_new_tokens"])
    assert norms["dr_grpo"] == pytest.approx(norms["dapo"] * share, rel=1e-4)


def test_best_of_n_raises_the_likelihood_of_the_best_of_each_task(tmp_path, unchanged):
    found = walk(tmp_path / "best", rlaif__loss="best_of_n", rlaif__train_on="best")
    assert same_answers(found, unchanged)
    for group in found.groups(1):
        able = [row for row in group if not row.truncated]
        assert [row.reward for row in group if row.trains] == ([max(row.reward for row in able)] if able else [])
    # tasks whose samples are equal teach as well, and the loss is a negative log-likelihood
    assert found.steps[0]["update/trained_samples"] == sum(any(not row.truncated for row in group) for group in found.groups(1))
    assert found.steps[0]["groups/without_signal_share"] < unchanged.steps[0]["groups/without_signal_share"]
    assert found.steps[0]["loss/policy"] > 0.01


# --------------------------------------------------------------------------- credit


def centred(rewards):
    return [reward - sum(rewards) / len(rewards) for reward in rewards]


def rloo(rewards):
    return [reward - (sum(rewards) - reward) / (len(rewards) - 1) for reward in rewards]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"rlaif__advantage": "rloo"}, rloo),
        ({"rlaif__advantage": "none", "rlaif__reward_weight": 2}, lambda rewards: [2 * reward for reward in rewards]),
    ],
    ids=["rloo", "none"],
)
def test_advantages_of_a_task_are_those_of_the_formula(tmp_path, unchanged, changes, expected):
    found = walk(tmp_path / "walk", **changes)
    assert same_answers(found, unchanged)
    for step in STEPS:
        for group in found.groups(step + 1):
            assert [row.advantage for row in group] == pytest.approx(expected([row.reward for row in group]))


def test_batch_advantages_compare_with_the_whole_step(tmp_path, unchanged):
    found = walk(tmp_path / "walk", rlaif__advantage="batch")
    rows = [row for group in found.groups(1) for row in group]
    mean = sum(row.reward for row in rows) / len(rows)
    std = (sum((row.reward - mean) ** 2 for row in rows) / len(rows)) ** 0.5
    assert [row.advantage for row in rows] == pytest.approx([(row.reward - mean) / std for row in rows], rel=1e-4)
    # a task whose samples are equal has signal when it lies off the step's mean
    assert found.steps[0]["groups/without_signal_share"] < unchanged.steps[0]["groups/without_signal_share"]


def test_samples_below_a_reward_do_not_train_and_keep_their_advantage(tmp_path, unchanged):
    found = walk(tmp_path / "walk", rlaif__reward_threshold=0.5)
    assert found.steps[0]["update/trained_samples"] < unchanged.steps[0]["update/trained_samples"]
    first, plain = found.groups(1), unchanged.groups(1)
    assert [[row.advantage for row in group] for group in first] == [[row.advantage for row in group] for group in plain]
    rows = [row for group in first for row in group]
    assert [row.trains for row in rows] == [row.reward >= 0.5 and not row.truncated for row in rows]
    assert found.steps[0]["update/trained_samples"] == sum(row.trains for row in rows)


def test_a_quantile_leaves_out_the_bottom_of_each_step(tmp_path, unchanged):
    found = walk(tmp_path / "walk", rlaif__reward_threshold="{quantile: 0.75}")
    for step in STEPS:
        rows = [row for group in found.groups(step + 1) for row in group]
        bar = sorted(row.reward for row in rows)[24]  # 0.75 * 32
        assert bar > 0 and [row.trains for row in rows] == [row.reward >= bar and not row.truncated for row in rows]
        assert found.steps[step]["update/trained_samples"] < unchanged.steps[step]["update/trained_samples"]


def test_top_k_trains_the_k_best_of_each_task(tmp_path, unchanged):
    found = walk(tmp_path / "walk", rlaif__train_on="top_k", rlaif__top_k_samples=2)
    for group in found.groups(1):
        able = sorted((row.reward for row in group if not row.truncated), reverse=True)
        assert sorted((row.reward for row in group if row.trains), reverse=True) == able[:2]
    assert found.steps[0]["update/trained_samples"] <= 16 < unchanged.steps[0]["update/trained_samples"]


def test_truncated_samples_may_train_and_may_be_charged_in_the_advantages_only(tmp_path):
    short = {"rlaif__max_new_tokens": 24, "rlaif__advantage": "centred", "rlaif__loss": "dr_grpo"}
    plain = walk(tmp_path / "plain", **short)
    found = walk(tmp_path / "walk", rlaif__overlong_penalty=0.5, rlaif__mask_truncated="false", **short)
    assert plain.steps[0]["completions/truncated_share"] > 0.1 and same_answers(found, plain)
    assert plain.steps[0]["update/trained_samples"] < 32 == found.steps[0]["update/trained_samples"]
    assert found.steps[0]["reward/mean"] == plain.steps[0]["reward/mean"]
    for before, after in zip(plain.groups(1), found.groups(1), strict=True):
        assert [row.advantage for row in before] == pytest.approx(centred([row.reward for row in before]))
        assert [row.advantage for row in after] == pytest.approx(centred([row.reward - 0.5 * row.truncated for row in after]))


def test_dynamic_sampling_replaces_tasks_that_teach_nothing_and_uses_up_draws(tmp_path):
    tasks = {"data__max_train_samples": 24}
    plain = walk(tmp_path / "plain", **tasks)
    found = walk(tmp_path / "walk", rlaif__dynamic_sampling="true", **tasks)
    assert plain.steps[0]["groups/without_signal_share"] > 0.2 > found.steps[0]["groups/without_signal_share"]
    assert len(plain.steps) == 3 > len(found.steps)
    # every task is drawn once; what was replaced is not among what is stored, but counted
    kept = [row.task_id for row in found.samples[::4]]
    assert len(kept) == len(set(kept)) and len(kept) + found.epochs[1]["groups/replaced"] == 24
    assert sum(values(found, "groups/replaced")) == found.epochs[1]["groups/replaced"] > 0 == plain.epochs[1]["groups/replaced"]
    assert found.epochs[1]["tokens/generated"] > sum(row.length for row in found.samples)


def test_shaping_pays_for_beating_earlier_epochs_and_leaves_the_reward_alone(tmp_path):
    changes = {"training__num_epochs": 2, "rlaif__num_samples_per_prompt": 2, "rlaif__curriculum_learning": "false"}
    found = walk(tmp_path / "walk", rlaif__reward_shaping="true", **changes)
    assert found.epochs[1]["reward/bonus_mean"] == 0 < found.epochs[2]["reward/bonus_mean"]
    best: dict[str, list[float]] = {}
    for number in (1, 2):
        rows = [row for row in found.samples if row.epoch == number]
        assert found.epochs[number]["reward/mean"] == pytest.approx(sum(row.reward for row in rows) / len(rows))
        measured = {id(row): [row.tests_passed / row.tests_total, quality(row)] for row in rows}
        for row in rows:
            beaten = [own > bar for own, bar in zip(measured[id(row)], best.get(row.task_id, (9, 9)), strict=True)]
            assert row.bonus == pytest.approx(0.05 * beaten[0] + 0.03 * beaten[1])
        for row in rows:
            best[row.task_id] = [max(pair) for pair in zip(measured[id(row)], best.get(row.task_id, (0, 0)), strict=True)]


def quality(row) -> float:
    return next(part.value for part in row.parts if part.name == QUALITY_PART)


# --------------------------------------------------------------------------- reward


def test_all_or_nothing_tests_and_the_format_part(tmp_path, unchanged):
    found = walk(tmp_path / "walk", reward__tests=0.5, reward__tests_mode="all", reward__teacher=0, reward__format=0.5)
    assert same_answers(found, unchanged)
    for row in found.samples:
        parts = {part.name: part.value for part in row.parts}
        assert parts.keys() == {"tests", "format"}
        assert parts["tests"] == (row.outcome == "passed")
        assert row.reward == pytest.approx((parts["tests"] + parts["format"]) / 2)
    assert "reward/part/format/mean" in found.steps[0]


def test_a_reward_of_ones_own_enters(tmp_path, unchanged, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    found = walk(tmp_path / "walk", **{"reward.custom.own_reward:SingleReturn": 1.0})
    assert same_answers(found, unchanged) and "reward/part/single_return/mean" in found.epochs[1]
    for row in found.samples:
        parts = {part.name: (part.weight, part.value) for part in row.parts}
        assert parts["single_return"][0] == 1.0
        total = sum(weight for weight, _ in parts.values())
        assert row.reward == pytest.approx(sum(weight * value for weight, value in parts.values()) / total)


# --------------------------------------------------------------------------- KL and entropy


def test_kl_in_the_loss_pulls_as_soon_as_there_is_any(tmp_path, far):
    found = walk(tmp_path / "walk", rlaif__kl_penalty=0.5, rlaif__kl_estimator="k2", **FAR)
    first, second = found.steps
    assert first["kl/mean"] == 0 and first["grad_norm/mean"] == pytest.approx(far.steps[0]["grad_norm/mean"], rel=1e-4)
    assert same_answers(found, far, step=2)
    # mean per sequence here, per token in the metric: alike, not equal
    assert second["loss/mean"] - second["loss/policy"] == pytest.approx(0.5 * second["kl/mean"], rel=0.5)
    assert second["kl/mean"] > 1e-3 and second["grad_norm/mean"] != pytest.approx(far.steps[1]["grad_norm/mean"], rel=1e-3)


def test_kl_in_the_reward_moves_advantages_and_not_rewards(tmp_path, far):
    found = walk(tmp_path / "walk", rlaif__kl_penalty=0.5, rlaif__kl_estimator="k1", rlaif__kl_placement="reward", **FAR)
    assert same_answers(found, far, step=1) and same_answers(found, far, step=2)
    for step, moved in ((1, False), (2, True)):
        assert found.steps[step - 1]["reward/mean"] == far.steps[step - 1]["reward/mean"]
        pairs = zip([row.advantage for group in found.groups(step) for row in group],
                    [row.advantage for group in far.groups(step) for row in group], strict=True)  # fmt: skip
        assert any(abs(one - other) > 1e-3 for one, other in pairs) == moved
    assert found.steps[1]["loss/mean"] == found.steps[1]["loss/policy"]


def test_an_adaptive_penalty_moves_towards_its_target(tmp_path):
    found = walk(tmp_path / "walk", rlaif__kl_penalty=0.5, rlaif__target_kl=1e-6, data__max_train_samples=24, **FAR)
    # no KL at all in the first step: the error is -1, clipped to -0.2, and the penalty falls by 2 %; then it rises by 2 %
    assert values(found, "kl_penalty") == pytest.approx([0.5, 0.49, 0.4998])
    for step in found.steps[1:]:
        assert step["loss/mean"] - step["loss/policy"] == pytest.approx(step["kl_penalty"] * step["kl/mean"], rel=0.5)


def test_an_entropy_bonus_is_taken_off_the_loss(tmp_path, unchanged):
    found = walk(tmp_path / "walk", rlaif__entropy_bonus=0.1)
    first = found.steps[0]
    assert same_answers(found, unchanged)
    assert first["loss/policy"] - first["loss/mean"] == pytest.approx(0.1 * first["entropy/mean"], rel=0.3)
    assert first["grad_norm/mean"] != pytest.approx(unchanged.steps[0]["grad_norm/mean"], rel=1e-3)


# --------------------------------------------------------------------------- sampling


@pytest.mark.parametrize(
    "changes",
    [
        {"rlaif__top_p": 0.8, "rlaif__entropy_bonus": 0.1},
        {"rlaif__top_k": 2},
        {"rlaif__generation_temperature": 0.5},
    ],
    ids=["top_p with an entropy bonus", "top_k", "temperature"],
)
def test_the_update_sees_the_distribution_that_was_sampled_from(tmp_path, unchanged, changes):
    found = walk(tmp_path / "walk", **changes)
    assert values(found, "kl/sampler_to_trainer") == pytest.approx([0, 0], abs=1e-7)
    assert found.steps[0]["entropy/mean"] != pytest.approx(unchanged.steps[0]["entropy/mean"], rel=1e-3)
    assert values(found, "ratio/max") == [1, 1]


def test_another_seed_samples_something_else(tmp_path, unchanged):
    found = walk(tmp_path / "walk", training__seed=1)
    assert not same_answers(found, unchanged)


def test_without_a_curriculum_every_epoch_has_every_task_once(finished_run, tmp_path):
    found = walk(tmp_path / "walk", rlaif__curriculum_learning="false", training__num_epochs=2)
    for epoch in (1, 2):
        assert len({row.task_id for row in found.samples if row.epoch == epoch}) == 16
    assert found.epochs[1]["curriculum/difficulty_mean"] == found.epochs[2]["curriculum/difficulty_mean"]
    # with one, the first of two epochs draws from the easier half: 12 of 24 tasks, twice
    assert len({row.task_id for row in read(finished_run).samples if row.epoch == 1}) == 12


# --------------------------------------------------------------------------- update


def test_later_updates_on_a_rollout_have_ratios_and_no_new_samples(tmp_path, unchanged):
    found = walk(tmp_path / "walk", training__updates_per_rollout=2)
    assert len(found.steps) == 2 * len(unchanged.steps)
    ratios = values(found, "ratio/max")
    assert ratios[0] == ratios[2] == 1.0 and min(ratios[1], ratios[3]) > 1.001
    assert ["reward/mean" in step for step in found.steps] == [True, False, True, False]
    assert len(found.samples) == len(unchanged.samples)
    # linear over the four steps: 1e-3 * (1 - step / 4)
    assert values(found, "learning_rate") == pytest.approx([1e-3, 7.5e-4, 5e-4, 2.5e-4])


def test_a_clipped_gradient_is_reported_as_it_was(tmp_path, unchanged):
    found = walk(tmp_path / "walk", training__max_grad_norm=1e-3)
    assert found.steps[0]["grad_norm/mean"] == pytest.approx(unchanged.steps[0]["grad_norm/mean"], rel=1e-5)
    assert values(found, "grad_norm/clipped_share") == [1, 1] and values(unchanged, "grad_norm/clipped_share") == [0, 0]


def test_full_fine_tuning_trains_all_weights(tmp_path, unchanged):
    found = walk(tmp_path / "walk", model__method="full", training__learning_rate=1e-4)
    assert same_answers(found, unchanged)
    assert found.steps[1]["kl/mean"] > 0 and values(found, "kl/sampler_to_trainer") == pytest.approx([0, 0], abs=1e-7)
    newest = list_checkpoints(found.directory / "checkpoints")[-1]
    assert (newest.weights / "model.safetensors").is_file() and newest.weights.name == "model"


def test_gradient_checkpointing_changes_no_number(tmp_path, unchanged):
    found = walk(tmp_path / "walk", model__gradient_checkpointing="true")
    for one, other in zip(found.steps, unchanged.steps, strict=True):
        compared = [name for name in one if not name.startswith(("time/", "tokens/per", "loss/"))]
        # loss/mean is a sum that cancels to about 0: compared absolutely
        assert [one[name] for name in compared] == pytest.approx([other[name] for name in compared], rel=1e-5, abs=1e-8)
        assert one["loss/mean"] == pytest.approx(other["loss/mean"], abs=1e-6)


def test_bfloat16_runs_and_its_gap_between_sampler_and_trainer_is_measured(tmp_path):
    found = walk(tmp_path / "walk", model__dtype="bfloat16")
    assert all(1e-9 < gap < 1e-3 for gap in values(found, "kl/sampler_to_trainer"))
    assert found.steps[1]["kl/mean"] > 0


# --------------------------------------------------------------------------- exact going on, whatever the options


@pytest.mark.parametrize(
    "changes",
    [
        {
            "model__lora_dropout": 0.2, "rlaif__kl_penalty": 0.1, "rlaif__target_kl": 1e-3, "training__num_epochs": 2,
            "rlaif__reward_shaping": "true", "rlaif__dynamic_sampling": "true",
        },
        {"model__method": "full", "training__learning_rate": 1e-4, "training__updates_per_rollout": 2, "rlaif__top_p": 0.9},
    ],
    ids=["adapter", "all weights"],
)
def test_a_run_that_was_interrupted_ends_as_the_unbroken_one(tmp_path, monkeypatch, changes):
    whole = walk(tmp_path / "whole", **changes)
    middle = len(whole.steps) // 2
    directory = tmp_path / "broken"
    with monkeypatch.context() as patch:
        patch.setattr(TerminalListener, "step", lambda self, record: interrupt(record.step == middle))
        with pytest.raises(AssertionError):
            walk(directory, **changes)
    assert len(read(directory).steps) in (middle, middle + 1)  # a rollout's updates are not torn apart
    assert run(["train", "--resume", str(directory)]) == 0
    assert contents(directory) == contents(whole.directory)
    assert last_files(directory) == last_files(whole.directory)


def interrupt(now: bool) -> None:
    if now:
        os.kill(os.getpid(), signal.SIGINT)


def last_files(directory: Path) -> dict:
    """Checksums of the last checkpoint: weights, optimizer and state."""
    files = json.loads((list_checkpoints(directory / "checkpoints")[-1].path / "manifest.json").read_text())["files"]
    return {name: fingerprint for name, fingerprint in files.items() if name.endswith(("safetensors", "state.json"))}


# --------------------------------------------------------------------------- epochs


def test_without_validation_tasks_the_last_epoch_counts_as_the_best(unchanged):
    assert not any(name.startswith("validation/") for epoch in unchanged.epochs for name in epoch)
    with open_run(unchanged.directory) as view:
        assert view.facts()["best_step"] == 2 and view.score_epochs() == []


def test_a_warm_start_raises_validation_and_is_on_record(tmp_path):
    changes = {"data__max_train_samples": 32, "training__learning_rate": 1e-9, "sft__learning_rate": 3e-3, "sft__num_epochs": 8}
    found = walk(tmp_path / "walk", "--sft", rlaif__num_samples_per_prompt=2, **VALIDATED, **changes)
    before, after = (epoch["validation/tests/mean"] for epoch in found.epochs)
    assert after > before + 0.1
    [event] = [event for event in found.events if event.kind == "warm_start"]
    losses = event.data["losses"]
    # 32 references, one step an epoch (16 tasks x 2 samples)
    assert len(losses) == 8 and losses[-1] < losses[0] and event.step == 0
    assert found.epochs[1]["kl/mean"] > 0.01  # against the base: the table shows how far the warm start went


def test_a_run_that_keeps_falling_stops_and_keeps_its_best_checkpoint(tmp_path, capsys):
    changes = {"training__learning_rate": 0.3, "training__num_epochs": 6, "data__max_train_samples": 8}
    keeping = {"training__early_stopping__patience": 1, "training__keep_checkpoints": 1}
    found = walk(tmp_path / "[red] walk", **VALIDATED, **changes, **keeping)
    assert 2 <= len(found.epochs) < 7 and found.kinds()[-1] == "early_stop"
    assert f"Stopped early. The run is in {found.directory}" in capsys.readouterr().out  # as it is named: no markup
    best = max(range(len(found.epochs)), key=lambda number: found.epochs[number]["validation/reward/mean"])
    with open_run(found.directory) as view:
        best_step = view.facts()["best_step"]
        assert best_step == view.epochs()[best].step < view.steps()[-1].step
    assert best_step in [checkpoint.step for checkpoint in list_checkpoints(found.directory / "checkpoints")]
    assert run(["train", "--resume", str(found.directory)]) == 0
    assert "finished already" in capsys.readouterr().out


def test_switched_off_early_stopping_lets_a_falling_run_go_on(tmp_path):
    changes = {"training__learning_rate": 0.3, "training__num_epochs": 2, "data__max_train_samples": 8}
    found = walk(tmp_path / "walk", training__early_stopping="false", training__max_bad_steps=9, **VALIDATED, **changes)
    assert len(found.epochs) == 3 and "early_stop" not in found.kinds()


@pytest.mark.skipif(importlib.util.find_spec("tensorboard") is None, reason="tensorboard is not installed")
def test_a_tracker_gets_the_same_metrics(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = walk(tmp_path / "walk", tracking__trackers="[tensorboard]")
    logged = EventAccumulator(str(found.directory / "evenkeel")).Reload()
    expected = {number: value for number, value in enumerate(values(found, "grad_norm/mean"), 1)}
    assert {event.step: event.value for event in logged.Scalars("grad_norm/mean")} == pytest.approx(expected, rel=1e-6)
    [epoch] = logged.Scalars("epoch/grad_norm/mean")
    assert (epoch.step, epoch.value) == (2, pytest.approx(found.epochs[1]["grad_norm/mean"], rel=1e-6))
