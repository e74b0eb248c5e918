"""Stage 1, choose: in which order the tasks of an epoch are drawn.

An epoch has as many draws as there are tasks, with and without a curriculum, so that epochs stay comparable.

Off: every task once, shuffled by seed and epoch. On: epoch e of E draws from the easiest share of the tasks,

    share_e = START_SHARE + (1 - START_SHARE) * (e - 1) / (E - 1)        0.5, 0.667, 0.833, 1 for E = 4

in shuffled passes over that pool, so that each of its tasks is drawn floor or ceil of (tasks / pool) times. In the last
epoch, or with a single one, the pool is everything.

Within an epoch the order stays shuffled, not sorted: the optimizer steps of an epoch are then draws from one distribution,
and a trend of the reward inside it means learning, not harder tasks.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from typing import Any

from evenkeel.config.stages import CurriculumSettings
from evenkeel.records import Task

START_SHARE = 0.5
"""Share of the tasks in the first pool. Half keeps it wide enough to train on, and narrow enough that the rise shows."""

UNKNOWN_DIFFICULTY = 0.5
"""Stands for a declared difficulty where the file has none."""

PRIOR_SAMPLES = 8
"""The declared difficulty weighs as much as this many samples."""

FORGETTING = 0.5
"""At each new look at a task, its earlier looks count half: the student that they measured is gone."""


class Curriculum:
    """Easy to hard, by declared difficulty and observed solve rate. Its state belongs in the checkpoint.

    >>> tasks = [Task(name, "", "f", difficulty=level) for name, level in [("a", 0.1), ("b", 0.9), ("c", 0.2), ("d", 0.8)]]
    >>> curriculum = Curriculum(tasks, CurriculumSettings(enabled=True, num_epochs=2, seed=0))
    >>> sorted(task.task_id for task in curriculum.order(1)), sorted(task.task_id for task in curriculum.order(2))
    (['a', 'a', 'c', 'c'], ['a', 'b', 'c', 'd'])
    """

    def __init__(self, tasks: Sequence[Task], settings: CurriculumSettings):
        self.tasks = tuple(tasks)
        self._tasks = {task.task_id: task for task in tasks}
        assert len(self._tasks) == len(tasks), "task ids must be unique"
        self._settings = settings
        self._failures: dict[str, float] = {}
        """Task id -> failed samples, forgetting earlier looks."""
        self._samples: dict[str, float] = {}
        """Task id -> samples, forgetting earlier looks."""
        self._first_estimates: dict[str, float] = {}
        """Task id -> difficulty after the first look at a task without a declared one."""
        self._drawn_epoch = 0
        self._drawn_ids: list[str] = []
        """The order of the epoch under way: what is observed during it changes the next one only."""

    def order(self, epoch: int) -> list[Task]:
        """The draws of an epoch (from 1), as many as there are tasks. Asking again in the same epoch gives the same order."""
        fits = len(self._drawn_ids) == len(self._tasks) and self._tasks.keys() >= set(self._drawn_ids)
        if epoch != self._drawn_epoch or not fits:
            self._drawn_ids = self._draw(epoch)
            self._drawn_epoch = epoch
        return [self._tasks[task_id] for task_id in self._drawn_ids]

    def observe(self, task_id: str, solve_rate: float, num_samples: int) -> None:
        """Take what the student made of a task: the mean share of hidden tests that its samples passed, 0 .. 1."""
        self._failures[task_id] = FORGETTING * self._failures.get(task_id, 0.0) + (1 - solve_rate) * num_samples
        self._samples[task_id] = FORGETTING * self._samples.get(task_id, 0.0) + num_samples
        if self._tasks[task_id].difficulty is None:
            self._first_estimates.setdefault(task_id, self.difficulty(task_id))

    def difficulty(self, task_id: str) -> float:
        """Estimate, 0 easy .. 1 hard: the failure rate, shrunk towards the declared difficulty.

            w * (1 - solve rate) + (1 - w) * declared,        w = n / (n + PRIOR_SAMPLES)

        Worked:  declared 0.2, 8 samples of which 2 solved: w = 0.5, 0.5 * 0.75 + 0.5 * 0.2 = 0.475.
        """
        declared = self._tasks[task_id].difficulty
        prior = UNKNOWN_DIFFICULTY if declared is None else declared
        return (self._failures.get(task_id, 0.0) + PRIOR_SAMPLES * prior) / (self._samples.get(task_id, 0.0) + PRIOR_SAMPLES)

    def mean_difficulty(self, tasks: Iterable[Task]) -> float | None:
        """Mean difficulty of these draws, for the metric that should rise over the epochs; None when nothing is known.

        The declared difficulty, else the first estimate, which stays: with the current one, a student that learns would
        make the same tasks look easier and hide the rise. Tasks with neither are left out.
        """
        known = (self._first_estimates.get(task.task_id) if task.difficulty is None else task.difficulty for task in tasks)
        levels = [level for level in known if level is not None]
        return math.fsum(levels) / len(levels) if levels else None

    def state(self) -> dict[str, Any]:
        """JSON-able; restoring it gives the same orders, also in the middle of an epoch."""
        return {
            "failures": dict(self._failures),
            "samples": dict(self._samples),
            "first_estimates": dict(self._first_estimates),
            "drawn_epoch": self._drawn_epoch,
            "drawn_ids": list(self._drawn_ids),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take a saved state. What it says about tasks that are not here any more is left out; when the order of the epoch
        under way does not fit the tasks, it is drawn anew."""
        self._failures, self._samples, self._first_estimates = (
            {task_id: value for task_id, value in state[name].items() if task_id in self._tasks}
            for name in ("failures", "samples", "first_estimates")
        )
        self._drawn_epoch = state["drawn_epoch"]
        self._drawn_ids = list(state["drawn_ids"])

    def _draw(self, epoch: int) -> list[str]:
        # A generator per epoch, not one that is carried along: epoch 3 is the same whether or not epoch 2 was drawn here.
        # A string seed is hashed by its text (SHA-512), the same on every machine and Python version.
        generator = random.Random(f"curriculum {self._settings.seed} {epoch}")
        shuffled = list(self._tasks)
        generator.shuffle(shuffled)
        if not self._settings.enabled:
            return shuffled
        # sorted() is stable: tasks of equal difficulty keep their shuffled order, so that no file order decides
        pool = sorted(shuffled, key=self.difficulty)[: math.ceil(self._share(epoch) * len(shuffled))]
        drawn: list[str] = []
        while len(drawn) < len(shuffled):
            drawn += generator.sample(pool, len(pool))
        return drawn[: len(shuffled)]

    def _share(self, epoch: int) -> float:
        """Of the tasks in the pool of this epoch, 0 .. 1; 1 beyond the planned epochs."""
        num_epochs = self._settings.num_epochs
        if epoch >= num_epochs:
            return 1.0
        return START_SHARE + (1 - START_SHARE) * (epoch - 1) / (num_epochs - 1)
