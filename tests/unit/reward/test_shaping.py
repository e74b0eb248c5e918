import json

import pytest

from evenkeel.config.stages import ShapingSettings
from evenkeel.records import Completion, Outcome, RewardPart, ScoredGroup, ScoredSample, Task, Verdict
from evenkeel.reward.shaping import ShapingHistory

ON = ShapingSettings(enabled=True, correctness_bonus=0.05, quality_bonus=0.03)


def sample(share, quality=None, *, reward=0.5):
    """One sample with `share` of four tests passed."""
    parts = () if quality is None else (RewardPart("teacher/quality", 0.3, "scored", quality),)
    verdict = Verdict(Outcome.WRONG_ANSWER, round(4 * share), 4)
    return ScoredSample(Completion((2,), (-0.1,), "x", truncated=False), "x", verdict, parts, reward)


def group(*samples, task_id="a"):
    return ScoredGroup(Task(task_id, "def f():\n", "f"), (1,), samples)


def bonuses(history, epoch, *groups):
    return [[round(sample.bonus, 6) for sample in shaped.samples] for shaped in history.apply(groups, epoch)]


def test_the_first_epoch_of_a_task_gives_no_bonus():
    history = ShapingHistory(ON)
    assert bonuses(history, 1, group(sample(0.5, 0.4), sample(1.0, 0.9))) == [[0.0, 0.0]]
    history.end_epoch()
    assert bonuses(history, 2, group(sample(1.0, 1.0), task_id="seen for the first time")) == [[0.0]]


def test_beating_the_earlier_best_earns_a_bonus_for_each_of_the_two():
    history = ShapingHistory(ON)
    bonuses(history, 1, group(sample(0.25, 0.2), sample(0.5, 0.4)))
    history.end_epoch()
    second = group(sample(0.75, 0.4), sample(0.5, 0.5), sample(1.0, 0.9), sample(0.25, 0.1))
    assert bonuses(history, 2, second) == [[0.05, 0.03, 0.08, 0.0]]


def test_the_running_epoch_does_not_raise_the_bar_until_it_ends():
    history = ShapingHistory(ON)
    bonuses(history, 1, group(sample(0.5)))
    history.end_epoch()
    assert bonuses(history, 2, group(sample(1.0)), group(sample(0.75))) == [[0.05], [0.05]]
    history.end_epoch()
    assert bonuses(history, 3, group(sample(1.0))) == [[0.0]]


def test_the_bar_is_the_best_of_all_earlier_epochs():
    history = ShapingHistory(ON)
    for epoch, share in ((1, 0.75), (2, 0.25)):
        bonuses(history, epoch, group(sample(share)))
        history.end_epoch()
    assert bonuses(history, 3, group(sample(0.5), sample(1.0))) == [[0.0, 0.05]]


def test_rewards_are_left_as_they_are():
    history = ShapingHistory(ON)
    bonuses(history, 1, group(sample(0.25)))
    history.end_epoch()
    [shaped] = history.apply([group(sample(1.0, reward=0.9))], 2)
    assert shaped.rewards == [0.9] and shaped.samples[0].bonus == 0.05


def test_a_sample_without_reward_neither_earns_nor_raises_the_bar():
    history = ShapingHistory(ON)
    bonuses(history, 1, group(sample(0.25), sample(1.0, reward=None)))
    history.end_epoch()
    assert bonuses(history, 2, group(sample(0.5), sample(1.0, reward=None))) == [[0.05, 0.0]]


def test_quality_that_was_never_scored_is_no_bar():
    history = ShapingHistory(ON)
    bonuses(history, 1, group(sample(1.0)))
    history.end_epoch()
    assert bonuses(history, 2, group(sample(1.0, 0.9))) == [[0.0]]


def test_switched_off_it_changes_nothing():
    history = ShapingHistory(ShapingSettings(enabled=False, correctness_bonus=0.05, quality_bonus=0.03))
    bonuses(history, 1, group(sample(0.0)))
    history.end_epoch()
    assert bonuses(history, 2, group(sample(1.0))) == [[0.0]]


@pytest.mark.parametrize("cut", range(5))
def test_a_restored_history_goes_on_as_if_it_had_never_stopped(cut):
    shares = [0.25, 0.5, 0.25, 0.75, 1.0]
    unbroken, broken = ShapingHistory(ON), ShapingHistory(ON)
    for step, share in enumerate(shares):
        if step == cut:
            state = json.loads(json.dumps(broken.state()))
            broken = ShapingHistory(ON)
            broken.restore(state)
        epoch = 1 + step // 2
        steps_groups = [group(sample(share, share / 2)), group(sample(1 - share), task_id="b")]
        assert bonuses(broken, epoch, *steps_groups) == bonuses(unbroken, epoch, *steps_groups)
        if step % 2:
            broken.end_epoch()
            unbroken.end_epoch()
    assert broken.state() == unbroken.state()


def test_forgetting_to_end_an_epoch_is_noticed():
    history = ShapingHistory(ON)
    bonuses(history, 1, group(sample(0.5)))
    with pytest.raises(AssertionError, match="epoch 1 was not ended"):
        bonuses(history, 2, group(sample(0.5)))
