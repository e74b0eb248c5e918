"""How long a run is: from batch settings and a number of tasks to rollouts and optimizer steps.

The trainer and `plan` both count with these functions, so what the plan promises is what the loop does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from evenkeel.config.schema import RunConfig


@dataclass(frozen=True)
class RunLength:
    """The counts of one run.

    50 tasks, 4 samples each, 2 x 50 completions a step, 4 epochs, as in the seed: 200 completions an epoch.

    >>> from evenkeel.config.load import load_config
    >>> overrides = ["training.batch_size=2", "training.gradient_accumulation_steps=50", "rlaif.num_samples_per_prompt=4"]
    >>> seed = run_length(load_config(None, overrides), 50)
    >>> seed.tasks_per_rollout, seed.completions_per_step, seed.steps_per_epoch, seed.total_steps
    (25, 100, 2, 8)
    """

    num_train_tasks: int
    tasks_per_rollout: int
    """Tasks sampled together; the last rollout of an epoch has what is left."""
    completions_per_step: int
    """tasks_per_rollout * N: completions that one optimizer step really has."""
    rollouts_per_epoch: int
    steps_per_epoch: int
    """rollouts_per_epoch * updates_per_rollout"""
    total_steps: int
    """At most so many optimizer steps: early stopping ends a run sooner. The schedule counts on all of them."""


def tasks_per_rollout(config: RunConfig) -> int:
    """ceil(batch_size * gradient_accumulation_steps / num_samples_per_prompt): groups are never split.

    >>> tasks_per_rollout(RunConfig())  # 64 * 4 / 8
    32
    """
    training = config.training
    return math.ceil(training.batch_size * training.gradient_accumulation_steps / config.rlaif.num_samples_per_prompt)


def run_length(config: RunConfig, num_train_tasks: int) -> RunLength:
    """An epoch is one pass over the tasks; every rollout is used for `updates_per_rollout` optimizer steps."""
    tasks = tasks_per_rollout(config)
    rollouts = math.ceil(num_train_tasks / tasks)
    steps = rollouts * config.training.updates_per_rollout
    return RunLength(
        num_train_tasks=num_train_tasks,
        tasks_per_rollout=tasks,
        completions_per_step=tasks * config.rlaif.num_samples_per_prompt,
        rollouts_per_epoch=rollouts,
        steps_per_epoch=steps,
        total_steps=steps * config.training.num_epochs,
    )
