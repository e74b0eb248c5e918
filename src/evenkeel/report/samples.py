"""Which of a run's stored answers are worth reading: the best, the worst, and what changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evenkeel.metrics.rows import SampleRow


@dataclass(frozen=True)
class Change:
    """One task at two epochs, each with the answer that stands for its group."""

    task_id: str
    early: SampleRow
    """The answer whose reward is nearest to its group's mean: the best of N would show luck, not the student."""
    late: SampleRow
    early_mean: float
    """Mean unshaped reward of the task's scored answers."""
    late_mean: float

    @property
    def change(self) -> float:
        return self.late_mean - self.early_mean


def best(rows: Sequence[SampleRow], count: int, *, one_per_task: bool = True) -> list[SampleRow]:
    """The answers with the highest reward, at most one of each task; ties in the order of sampling."""
    return _first(sorted(_scored(rows), key=lambda row: -row.reward), count, one_per_task)


def worst(rows: Sequence[SampleRow], count: int, *, one_per_task: bool = True) -> list[SampleRow]:
    return _first(sorted(_scored(rows), key=lambda row: row.reward), count, one_per_task)


def changed(early: Sequence[SampleRow], late: Sequence[SampleRow], count: int) -> list[Change]:
    """The tasks whose mean reward moved most between two epochs, either way; ties by task."""
    before, after = _by_task(early), _by_task(late)
    changes = []
    for task_id in sorted(before.keys() & after.keys()):
        early_mean, late_mean = _mean_reward(before[task_id]), _mean_reward(after[task_id])
        early_answer, late_answer = _typical(before[task_id], early_mean), _typical(after[task_id], late_mean)
        changes.append(Change(task_id, early_answer, late_answer, early_mean, late_mean))
    return sorted(changes, key=lambda change: -abs(change.change))[:count]


def _first(rows: Sequence[SampleRow], count: int, one_per_task: bool) -> list[SampleRow]:
    if one_per_task:
        seen: dict[str, SampleRow] = {}
        for row in rows:
            seen.setdefault(row.task_id, row)
        rows = list(seen.values())
    return list(rows[:count])


def _scored(rows: Sequence[SampleRow]) -> list[SampleRow]:
    return [row for row in rows if row.reward is not None]


def _by_task(rows: Sequence[SampleRow]) -> dict[str, list[SampleRow]]:
    groups: dict[str, list[SampleRow]] = {}
    for row in _scored(rows):
        groups.setdefault(row.task_id, []).append(row)
    return groups


def _mean_reward(rows: Sequence[SampleRow]) -> float:
    return sum(row.reward for row in rows) / len(rows)


def _typical(rows: Sequence[SampleRow], mean: float) -> SampleRow:
    return min(rows, key=lambda row: abs(row.reward - mean))
