"""A bonus for beating what the task's earlier epochs had reached.

    ScoredGroup... --apply--> the same with `bonus` set        end of the epoch --end_epoch--> its bests become the bar

Reported apart: `ScoredSample.reward`, and with it "average reward", never contains the bonus.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from evenkeel.config.stages import ShapingSettings
from evenkeel.records import ScoredGroup, ScoredSample

QUALITY_PART = "teacher/quality"


@dataclass(frozen=True)
class Best:
    """The best that one task's samples reached.

    >>> Best(0.5, None).or_better(Best(0.25, 0.4))
    Best(correctness=0.5, quality=0.4)
    """

    correctness: float | None
    """Share of hidden tests passed, 0 .. 1; None: no sample was scored."""
    quality: float | None
    """Of the part `teacher/quality`, 0 .. 1; None: no sample has one."""

    def or_better(self, other: Best) -> Best:
        return Best(_larger(self.correctness, other.correctness), _larger(self.quality, other.quality))


class ShapingHistory:
    """The best of each task in the earlier epochs, and of the running one.

        bonus = correctness_bonus [share > best share of the task's earlier epochs] + quality_bonus [likewise]

    No bonus in the first epoch in which a task is seen, none for a tie, and none for a sample without a reward.
    """

    def __init__(self, settings: ShapingSettings):
        self._settings = settings
        self._earlier: dict[str, Best] = {}
        self._running: dict[str, Best] = {}
        self._epoch: int | None = None

    def apply(self, groups: Sequence[ScoredGroup], epoch: int) -> list[ScoredGroup]:
        """The groups with the bonus of each sample; their samples count towards the running epoch's bests."""
        if not self._settings.enabled:
            return list(groups)
        assert self._epoch in (None, epoch), f"epoch {self._epoch} was not ended before epoch {epoch}: its bests would be lost"
        self._epoch = epoch
        shaped = [self._shaped(group) for group in groups]
        for group in groups:
            task_id = group.task.task_id
            self._running[task_id] = self._running.get(task_id, Best(None, None)).or_better(_best_of(group))
        return shaped

    def end_epoch(self) -> None:
        """The running epoch's bests become part of the bar."""
        for task_id, best in self._running.items():
            self._earlier[task_id] = self._earlier.get(task_id, Best(None, None)).or_better(best)
        self._running, self._epoch = {}, None

    def state(self) -> dict[str, Any]:
        """JSON data, for the checkpoint."""
        return {"earlier": _to_json(self._earlier), "running": _to_json(self._running), "epoch": self._epoch}

    def restore(self, state: dict[str, Any]) -> None:
        self._earlier = _from_json(state["earlier"])
        self._running = _from_json(state["running"])
        self._epoch = state["epoch"]

    def _shaped(self, group: ScoredGroup) -> ScoredGroup:
        bar = self._earlier.get(group.task.task_id, Best(None, None))
        return replace(group, samples=tuple(replace(sample, bonus=self._bonus(sample, bar)) for sample in group.samples))

    def _bonus(self, sample: ScoredSample, bar: Best) -> float:
        own = _of_sample(sample)
        correctness = self._settings.correctness_bonus if _beats(own.correctness, bar.correctness) else 0.0
        quality = self._settings.quality_bonus if _beats(own.quality, bar.quality) else 0.0
        return correctness + quality


def _of_sample(sample: ScoredSample) -> Best:
    if sample.reward is None or not sample.verdict.scored:
        return Best(None, None)
    quality = next((part.value for part in sample.parts if part.name == QUALITY_PART), None)
    return Best(sample.verdict.share, quality)


def _best_of(group: ScoredGroup) -> Best:
    best = Best(None, None)
    for sample in group.samples:
        best = best.or_better(_of_sample(sample))
    return best


def _beats(own: float | None, bar: float | None) -> bool:
    return own is not None and bar is not None and own > bar


def _larger(one: float | None, other: float | None) -> float | None:
    return max((value for value in (one, other) if value is not None), default=None)


def _to_json(bests: dict[str, Best]) -> dict[str, list[float | None]]:
    return {task_id: [best.correctness, best.quality] for task_id, best in bests.items()}


def _from_json(bests: dict[str, list[float | None]]) -> dict[str, Best]:
    return {task_id: Best(correctness, quality) for task_id, (correctness, quality) in bests.items()}
