"""Two runs side by side: paired over the validation tasks that both were measured on, and metric by metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evenkeel.errors import UsageError
from evenkeel.metrics.names import in_reading_order
from evenkeel.metrics.paired import Difference, paired_difference
from evenkeel.metrics.view import RunView
from evenkeel.records import TaskScore

_PAIRED = (
    ("validation/tests/mean", "validation", "test_shares"),
    ("validation/tests/greedy", "greedy", "test_shares"),
    ("validation/reward/mean", "validation", "rewards"),
)
"""Metric, kind of evaluation, what of it."""


@dataclass(frozen=True)
class Comparison:
    """Second run minus first, each at its last evaluated epoch."""

    epochs: tuple[int, int]
    paired: Mapping[str, Difference]
    """Metric -> difference over the tasks that both runs scored."""
    metrics: Mapping[str, tuple[float | None, float | None]]
    """Metric -> value in each run; None where a run has not measured it."""
    notes: tuple[str, ...]
    """What a reader must know before believing the difference."""

    def as_json(self) -> dict[str, Any]:
        paired = {
            name: {"difference": found.mean, "low": found.low, "high": found.high, "num_tasks": found.num_tasks,
                   "confidence": found.confidence, "beyond_noise": found.excludes_zero}
            for name, found in self.paired.items()
        }  # fmt: skip
        return {"epochs": list(self.epochs), "paired": paired, "notes": list(self.notes),
                "metrics": {name: list(values) for name, values in self.metrics.items()}}  # fmt: skip


def compare_runs(first: RunView, second: RunView) -> Comparison:
    """Compare two runs at the last epoch at which each was evaluated."""
    epochs = (_last_epoch(first), _last_epoch(second))
    prompts = first.prompts(), second.prompts()
    renamed = {task_id for task_id in prompts[0].keys() & prompts[1].keys() if prompts[0][task_id] != prompts[1][task_id]}
    paired, notes = {}, []
    for name, kind, of in _PAIRED:
        scores = [_without(run.task_scores(epoch, kind), renamed) for run, epoch in zip((first, second), epochs, strict=True)]
        if all(scores):
            paired[name] = paired_difference(*scores, of=of)
            notes += _evaluation_notes(name, *scores) if of == "test_shares" else []
    if renamed:
        notes.append(f"Left out, because the prompts differ under the same task name: {len(renamed)}.")
    if epochs[0] != epochs[1]:
        notes.append(f"The runs are compared at different epochs: {epochs[0]} and {epochs[1]}.")
    notes.append("The interval speaks for tasks like these, not for other seeds: each run is one seed.")
    return Comparison(epochs, paired, _side_by_side(first, second, epochs), tuple(notes))


def verdict(found: Difference) -> str:
    """
    >>> verdict(Difference(0.12, 0.08, 0.16, 128))
    '+0.1200 [+0.0800, +0.1600] on 128 tasks: better, beyond noise'
    """
    if found.low is None:
        return f"{found.mean:+.4f} on a single task: noise unknown"
    word = "better, beyond noise" if found.rose else "worse, beyond noise" if found.fell else "no difference beyond noise"
    return f"{found.mean:+.4f} [{found.low:+.4f}, {found.high:+.4f}] on {found.num_tasks} tasks: {word}"


def _last_epoch(run: RunView) -> int:
    evaluated = run.score_epochs()
    if not evaluated:
        raise UsageError(
            f"{run.path.parent} has no validation results, so there is nothing to pair. Train with data.validation set, or "
            "compare the metrics with `evenkeel export RUN --metrics FILE`."
        )
    return evaluated[-1]


def _without(scores: Sequence[TaskScore], left_out: set[str]) -> list[TaskScore]:
    return [score for score in scores if score.task_id not in left_out]


def _evaluation_notes(name: str, first: Sequence[TaskScore], second: Sequence[TaskScore]) -> list[str]:
    most = [max((len(score.test_shares) for score in scores), default=0) for scores in (first, second)]
    common = {score.task_id for score in first} & {score.task_id for score in second}
    notes = []
    if most[0] != most[1]:
        notes.append(f"{name}: samples a task: {most[0]} against {most[1]}; the means are comparable, best-of-N is not.")
    if len(common) < max(len(first), len(second)):
        notes.append(f"{name}: tasks in both runs: {len(common)}, of {len(first)} and {len(second)}.")
    return notes


def _side_by_side(first: RunView, second: RunView, epochs: tuple[int, int]) -> dict[str, tuple[float | None, float | None]]:
    metrics = [
        next((record.metrics for record in run.epochs() if record.epoch == epoch), {})
        for run, epoch in zip((first, second), epochs, strict=True)
    ]
    names = in_reading_order({*metrics[0], *metrics[1]})
    return {name: (metrics[0].get(name), metrics[1].get(name)) for name in names}
