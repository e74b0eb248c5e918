"""Measuring without training: the same tasks, the same number of samples, the same random numbers, epoch after epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from evenkeel.config.stages import SamplingSettings
from evenkeel.distributed.world import World
from evenkeel.records import ScoredGroup, Task
from evenkeel.reward.score import Scorer, score
from evenkeel.rollout.base import SamplingEngine
from evenkeel.rollout.collect import collect
from evenkeel.train.state import seed_at

TASKS_AT_A_TIME = 32
"""Between two looks at the progress bar."""


def evaluate(
    engine: SamplingEngine, scorer: Scorer, tasks: Sequence[Task], settings: SamplingSettings, *, seed: int, world: World,
    on_progress: Callable[[int], None] = lambda count: None,
) -> list[ScoredGroup]:  # fmt: skip
    """Sample and score every task. Paired comparisons rest on the seed being the same each time; no seed of training is
    ever one of these."""
    seeds = [seed_at(seed, "evaluation", index) for index in range(len(tasks))]
    groups = collect(
        engine, world.share(tasks), settings, seeds=world.share(seeds), tasks_at_a_time=TASKS_AT_A_TIME, on_progress=on_progress
    )
    return world.gather(score(groups, scorer))
