"""Where a run is: everything that a checkpoint holds beside weights and optimizer, as plain JSON.

There are no generator states to save. Whatever is random takes its seed from the run's seed and the position in the run
(`seed_at`), so position and seed *are* the random state, and a replay draws what the unbroken run drew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from evenkeel.metrics.paired import paired_difference
from evenkeel.metrics.summary import GroupSummary
from evenkeel.records import TaskScore


def seed_at(seed: int, purpose: str, *position: int) -> int:
    """A seed for one purpose at one position, 0 .. 2^63 - 1; different purposes and positions share nothing.

    >>> seed_at(0, "rollout", 3) == seed_at(0, "rollout", 3), seed_at(0, "rollout", 3) == seed_at(0, "rollout", 4)
    (True, False)
    """
    text = f"{seed}/{purpose}/{'/'.join(map(str, position))}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> 1


@dataclass
class EarlyStopping:
    """Counts epochs whose validation reward lies below the best epoch's by more than the paired noise.

    >>> task = lambda value: [TaskScore(str(i), (value + 0.01 * i,), (value,)) for i in range(3)]
    >>> stopping = EarlyStopping(patience=2)
    >>> [stopping.observe(epoch, task(value)) for epoch, value in enumerate((0.5, 0.6, 0.4, 0.3))]
    [False, False, False, True]
    >>> stopping.best_epoch
    1
    """

    patience: int
    best_epoch: int = -1
    best_scores: list[TaskScore] = field(default_factory=list)
    falls: int = 0
    """Epochs in a row that fell."""

    def observe(self, epoch: int, scores: Sequence[TaskScore]) -> bool:
        """Take an epoch's validation scores; True when it is time to stop. The first epoch seen is the first best."""
        if not self.best_scores:
            self.best_epoch, self.best_scores = epoch, list(scores)
            return False
        change = paired_difference(self.best_scores, scores, of="rewards")
        self.falls = self.falls + 1 if change.fell else 0
        if change.mean > 0:
            self.best_epoch, self.best_scores = epoch, list(scores)
        return self.falls >= self.patience

    def state(self) -> dict[str, Any]:
        scores = [[score.task_id, list(score.rewards), list(score.test_shares)] for score in self.best_scores]
        return {"best_epoch": self.best_epoch, "falls": self.falls, "best_scores": scores}

    def restore(self, state: dict[str, Any]) -> None:
        self.best_epoch, self.falls = state["best_epoch"], state["falls"]
        self.best_scores = [
            TaskScore(task_id, tuple(rewards), tuple(shares)) for task_id, rewards, shares in state["best_scores"]
        ]


@dataclass
class Position:
    """How far the run is."""

    epoch: int = 0
    """Epoch under way, from 1; 0 before the start was measured."""
    draws_done: int = 0
    """Draws of this epoch's order that are done."""
    step: int = 0
    """Optimizer steps done in the whole run, dropped ones included."""
    rollout: int = 0
    """Rollouts done in the whole run."""
    bad_steps: int = 0
    """Dropped steps in a row."""
    failures_survived: int = 0
    """In this epoch: dropped steps and halved micro-batches."""
    micro_batch_size: int = 0
    """Completions per micro-batch that fit so far."""
    best_step: int = 0
    """Optimizer steps at the end of the best epoch so far."""
    finished: bool = False
    summary: GroupSummary = field(default_factory=GroupSummary)
    """Of this epoch's groups so far."""

    def state(self) -> dict[str, Any]:
        return {**vars(self), "summary": self.summary.state()}

    @classmethod
    def restored(cls, state: dict[str, Any]) -> Position:
        return cls(**{**state, "summary": GroupSummary.restored(state["summary"])})
