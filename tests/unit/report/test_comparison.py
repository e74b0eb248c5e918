import pytest

from evenkeel.errors import UsageError
from evenkeel.metrics.paired import Difference
from evenkeel.metrics.store import RunStore
from evenkeel.records import EpochRecord, TaskScore
from evenkeel.report.comparison import compare_runs, verdict
from tests.unit.metrics.builders import sample, scored


def run_with(path, shares, *, epochs=1, prompts=None, metrics=None):
    """A run whose every evaluation gave these shares: task -> samples."""
    path.mkdir()
    store = RunStore(path / "run.db")
    scores = {"validation": [TaskScore(task_id, tuple(values), tuple(values)) for task_id, values in shares.items()]}
    groups = {"validation": [scored(task_id, sample(1.0), prompt=prompt) for task_id, prompt in (prompts or {}).items()]}
    for epoch in range(epochs + 1):
        store.record_epoch(EpochRecord(epoch, epoch, metrics or {}), scores, groups)
    return store


def test_two_runs_are_paired_by_task(tmp_path):
    first = run_with(tmp_path / "a", {"x": [0.0], "y": [0.5], "z": [0.1]}, metrics={"reward/mean": 0.3, "loss/mean": 0.1})
    second = run_with(tmp_path / "b", {"z": [0.3], "y": [0.6], "x": [0.3]}, metrics={"reward/mean": 0.4})
    found = compare_runs(first, second)
    assert set(found.paired) == {"validation/tests/mean", "validation/reward/mean"}
    assert found.paired["validation/tests/mean"].mean == pytest.approx(0.2)  # (0.3 + 0.1 + 0.2) / 3
    assert found.metrics == {"reward/mean": (0.3, 0.4), "loss/mean": (0.1, None)}
    assert found.notes == ("The interval speaks for tasks like these, not for other seeds: each run is one seed.",)


def test_a_run_against_itself_differs_by_nothing(tmp_path):
    run = run_with(tmp_path / "a", {"x": [0.0, 1.0], "y": [0.5, 0.5]})
    found = compare_runs(run, run).paired["validation/tests/mean"]
    assert (found.mean, found.low, found.high) == (0.0, 0.0, 0.0)


def test_what_makes_the_comparison_uneven_is_noted(tmp_path):
    first = run_with(tmp_path / "a", {"x": [0.0], "y": [0.5], "other": [0.5]}, prompts={"x": "one", "y": "same"})
    second = run_with(tmp_path / "b", {"x": [1.0] * 2, "y": [0.6] * 2}, prompts={"x": "two", "y": "same"}, epochs=2)
    found = compare_runs(first, second)
    assert found.paired["validation/tests/mean"].num_tasks == 1  # x has another prompt, `other` is in one run only
    notes = "\n".join(found.notes)
    for expected in ("samples a task: 1 against 2", "in both runs: 1, of 2 and 1", "same task name: 1", "epochs: 1 and 2"):
        assert expected in notes


def test_a_run_without_validation_cannot_be_paired(tmp_path):
    with pytest.raises(UsageError, match="no validation results"):
        compare_runs(run_with(tmp_path / "a", {}), run_with(tmp_path / "b", {"x": [1.0]}))


@pytest.mark.parametrize(("low", "high", "words"), [(0.1, 0.3, "better"), (-0.3, -0.1, "worse"), (-0.1, 0.1, "no difference")])
def test_the_verdict_follows_the_interval(low, high, words):
    assert words in verdict(Difference((low + high) / 2, low, high, 100))
