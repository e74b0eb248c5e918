"""What a sampling engine is: tasks in, sample groups out, the same for the same seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from evenkeel.config.stages import SamplingSettings
from evenkeel.records import SampleGroup, Task


class SamplingEngine(Protocol):
    def sample(self, tasks: Sequence[Task], settings: SamplingSettings, seeds: Sequence[int]) -> list[SampleGroup]:
        """`settings.num_samples` completions for each task, in the order of the tasks. One seed for each task.

        The answer is a function of the arguments and the student's weights, task by task: a resumed run draws what the
        unbroken one drew, and it does not matter which tasks are sampled together.
        """
        ...
