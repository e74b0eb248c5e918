import pytest
from scipy import stats

from evenkeel.errors import UsageError
from evenkeel.metrics.paired import paired_difference
from evenkeel.records import TaskScore


def scores(**shares):
    return [TaskScore(task_id, tuple(values), tuple(values)) for task_id, values in shares.items()]


def test_three_tasks_worked_by_hand():
    before = scores(a=[0.0, 0.0], b=[0.5, 0.5], c=[0.0, 1.0])
    after = scores(c=[0.5, 1.0], a=[0.5, 0.5], b=[0.5, 0.7])
    # d: a +0.5, b +0.1, c +0.25; mean 0.28333; deviations 0.21667, -0.18333, -0.03333; squares sum 0.081667; std 0.20207
    # half width: t(2, 0.975) = 4.30265, * 0.20207 / sqrt(3) = 0.50197
    found = paired_difference(before, after)
    assert found.mean == pytest.approx(0.283333, abs=1e-6)
    assert (found.low, found.high) == (pytest.approx(-0.21863, abs=1e-4), pytest.approx(0.78530, abs=1e-4))
    assert found.num_tasks == 3 and not found.excludes_zero


def test_it_is_scipys_paired_t_interval():
    before = {f"t{i}": [i % 7 / 7, i % 3 / 3] for i in range(20)}
    after = {f"t{i}": [i % 5 / 5, i % 2 / 2] for i in range(20)}
    means = [[sum(shares) / 2 for shares in tasks.values()] for tasks in (after, before)]
    expected = stats.ttest_rel(*means).confidence_interval()
    found = paired_difference(scores(**before), scores(**after))
    assert (found.low, found.high) == (pytest.approx(expected.low), pytest.approx(expected.high))


def test_more_samples_of_a_task_are_not_more_tasks():
    few = paired_difference(scores(a=[0.0], b=[0.0]), scores(a=[1.0], b=[0.5]))
    many = paired_difference(scores(a=[0.0] * 50, b=[0.0] * 50), scores(a=[1.0] * 50, b=[0.5] * 50))
    assert few == many


def test_swapping_mirrors_the_interval():
    one, two = scores(a=[0.1], b=[0.4], c=[0.9]), scores(a=[0.3], b=[0.2], c=[1.0])
    there, back = paired_difference(one, two), paired_difference(two, one)
    assert (back.mean, back.low, back.high) == pytest.approx((-there.mean, -there.high, -there.low))


def test_a_fall_beyond_noise_is_a_fall():
    before = scores(**{f"t{i}": [0.8] for i in range(30)})
    after = scores(**{f"t{i}": [0.6 + 0.01 * (i % 3)] for i in range(30)})
    found = paired_difference(before, after, of="rewards")
    assert found.fell and not found.rose


def test_only_tasks_scored_in_both_count():
    found = paired_difference(scores(a=[0.0], b=[0.0], x=[1.0], lost=[]), scores(a=[1.0], b=[1.0], y=[0.0], lost=[1.0]))
    assert (found.mean, found.num_tasks) == (1.0, 2)


def test_one_task_has_no_interval():
    found = paired_difference(scores(a=[0.0]), scores(a=[1.0]))
    assert (found.low, found.high, found.excludes_zero, found.fell, found.rose) == (None, None, False, False, False)


def test_nothing_in_common_is_refused():
    with pytest.raises(UsageError, match="none in common"):
        paired_difference(scores(a=[0.0]), scores(b=[1.0]))
