"""Stage 2, sample: the tasks of one step in, their sample groups out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from evenkeel.config.stages import SamplingSettings
from evenkeel.records import SampleGroup, Task
from evenkeel.rollout.base import SamplingEngine


def collect(
    engine: SamplingEngine, tasks: Sequence[Task], settings: SamplingSettings, *, seeds: Sequence[int],
    tasks_at_a_time: int | None = None, on_progress: Callable[[int], None] = lambda done: None,
) -> list[SampleGroup]:  # fmt: skip
    """Sample every task; with `tasks_at_a_time` in several calls, so that progress shows on long work.

    seeds: one for each task. on_progress is told how many tasks were done since it was last told.
    """
    assert len(seeds) == len(tasks), (len(seeds), len(tasks))
    size = tasks_at_a_time or max(1, len(tasks))
    groups: list[SampleGroup] = []
    for start in range(0, len(tasks), size):
        sampled = engine.sample(tasks[start : start + size], settings, seeds[start : start + size])
        groups += sampled
        on_progress(len(sampled))
    return groups
