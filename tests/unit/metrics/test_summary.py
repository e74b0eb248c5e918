import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.metrics.summary import GroupSummary, Moments, group_summary
from evenkeel.records import Outcome
from tests.unit.metrics.builders import credited, part, sample, scored

NUMBERS = st.lists(st.floats(-100, 100), max_size=8)


def test_moments_of_four_numbers():
    moments = Moments.of([1.0, 0.0, 0.0, 1.0])
    assert (moments.count, moments.mean, moments.squares) == (4, 0.5, 1.0)
    assert moments.std == 0.5  # sqrt(1 / 4)
    assert moments.std_error == pytest.approx(math.sqrt(1 / 3 / 4))


@given(NUMBERS, NUMBERS)
def test_adding_moments_equals_the_moments_of_all(one, other):
    added, whole = Moments.of(one) + Moments.of(other), Moments.of(one + other)
    assert added.count == whole.count
    assert added.mean == pytest.approx(whole.mean, abs=1e-9)
    assert added.squares == pytest.approx(whole.squares, abs=1e-6)


def two_groups():
    first = scored("a", sample(1.0, text="x + y + z"), sample(0.0, text="x - y - z"), difficulty=0.2)
    second = scored("b", sample(0.5, truncated=True, length=10), sample(None, outcome=Outcome.INFRASTRUCTURE), difficulty=0.6)
    return [credited(first), credited(second, has_signal=False)]


def test_a_summary_worked_by_hand():
    summary = group_summary(two_groups())
    assert (summary.num_groups, summary.num_samples, summary.num_without_signal) == (2, 4, 1)
    assert (summary.num_tokens, summary.num_truncated, summary.num_unscored) == (4 + 4 + 10 + 4, 1, 1)
    assert summary.rewards.mean == 0.5  # (1 + 0 + 0.5) / 3: the unscored one is left out, not 0
    assert summary.task_means.count == 2
    assert summary.best.mean == 0.75  # (1 + 0.5) / 2
    assert summary.group_std.mean == 0.25  # (0.5 + 0) / 2
    assert summary.test_shares.mean == 0.5  # (2/2 + 0/2 + 1/2) / 3
    assert summary.unique_fraction.mean == 0.75  # (2/2 + 1/2) / 2
    assert summary.difficulty.mean == pytest.approx(0.4)
    assert summary.outcomes == {"passed": 1, "wrong_answer": 2, "infrastructure": 1}


def test_summaries_of_two_steps_equal_the_summary_of_both():
    first, second = two_groups()
    added, whole = group_summary([first]) + group_summary([second]), group_summary([first, second])
    assert added == whole


def test_unscored_parts_are_counted_and_left_out_of_the_mean():
    group = scored("a", sample(1.0, parts=[part("teacher/quality", 0.5)]), sample(1.0, parts=[part("teacher/quality", None)]))
    summary = group_summary([credited(group)])
    assert (summary.num_parts, summary.num_unscored_parts) == (2, 1)
    assert summary.parts["teacher/quality"] == Moments(1, 0.5, 0.0)


def test_a_summary_survives_json_to_the_last_bit():
    summary = group_summary([*two_groups(), credited(scored("c", sample(0.1, parts=[part("tests", 0.1)])))])
    assert GroupSummary.restored(json.loads(json.dumps(summary.state()))) == summary
