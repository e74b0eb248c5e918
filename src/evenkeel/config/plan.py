"""What a configuration will really do, before it does it: steps, learning rates, tokens, memory, contradictions.

RunConfig + number of tasks -> RunPlan        torch-free; the trainer counts with the same functions
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from evenkeel.config.check import Finding, findings
from evenkeel.config.length import RunLength, run_length, tasks_per_rollout
from evenkeel.config.memory import MemoryEstimate, ModelFacts, estimate_memory
from evenkeel.config.schedule import learning_rate_at, warmup_steps
from evenkeel.config.schema import RunConfig
from evenkeel.config.stages import schedule_settings
from evenkeel.errors import UsageError

__all__ = ["EpochPlan", "RunPlan", "plan", "run_length", "tasks_per_rollout"]

ASSUMED_PROMPT_TOKENS = 200.0
"""For the memory estimate, where nobody has looked at the prompts: a HumanEval prompt has about 150."""


@dataclass(frozen=True)
class EpochPlan:
    """One epoch of the seed's run: 2 of 100 warmup steps each, to 1e-5.

    >>> EpochPlan(epoch=4, steps_done=8, last_learning_rate=7e-7, next_learning_rate=8e-7).steps_done
    8
    """

    epoch: int
    """From 1."""
    steps_done: int
    """Optimizer steps of the run at the end of this epoch."""
    last_learning_rate: float
    """Applied in the epoch's last optimizer step."""
    next_learning_rate: float
    """Where the schedule stands at the end of the epoch: what the step after it applies."""


@dataclass(frozen=True)
class RunPlan:
    """The figures of a run, derived and none measured."""

    length: RunLength
    micro_batches_per_step: int
    """A full optimizer step is cut into so many of at most `training.batch_size` completions."""
    epochs: tuple[EpochPlan, ...]
    warmup_steps: int
    warmup_share: float
    """Of all optimizer steps; above 1 the warmup is longer than the run."""
    peak_learning_rate: float
    """The highest that any step applies; below `training.learning_rate` when the warmup is never over."""
    sampled_tokens_per_epoch: int
    """Upper bound: every completion as long as it may be, and all extra tasks of dynamic sampling drawn."""
    prompt_tokens_per_epoch: int | None
    """Computed once per task, not per sample; None where the prompts are unknown."""
    validation_tokens_per_epoch: int | None
    """Upper bound, the greedy answers included; None where the number of tasks is unknown."""
    memory: MemoryEstimate | None
    """None where the model's sizes are not known here."""
    findings: tuple[Finding, ...]


def plan(
    config: RunConfig,
    *,
    num_train_tasks: int,
    num_validation_tasks: int | None = None,
    mean_prompt_tokens: float | None = None,
    model_facts: ModelFacts | None = None,
) -> RunPlan:
    """Derive every figure of the run; contradictions are among `findings` and are not raised."""
    if num_train_tasks < 1:
        raise UsageError("There are no train tasks, so there is nothing to plan. Check `data.train`.")
    length = run_length(config, num_train_tasks)
    settings, total = schedule_settings(config), length.total_steps
    warmup = warmup_steps(settings, total)
    draws = config.rlaif.num_samples_per_prompt * _tasks_drawn(config, num_train_tasks)
    answers = config.evaluation.num_samples + config.evaluation.greedy
    memory = None
    if model_facts is not None:
        prompt_tokens = ASSUMED_PROMPT_TOKENS if mean_prompt_tokens is None else mean_prompt_tokens
        memory = estimate_memory(
            config, model_facts, prompt_tokens=prompt_tokens, num_validation_tasks=num_validation_tasks or 0
        )
    return RunPlan(
        length=length,
        micro_batches_per_step=math.ceil(length.completions_per_step / config.training.batch_size),
        epochs=_epochs(config, length),
        warmup_steps=warmup,
        warmup_share=warmup / total,
        peak_learning_rate=max(learning_rate_at(settings, step, total) for step in range(total)),
        sampled_tokens_per_epoch=draws * config.rlaif.max_new_tokens,
        prompt_tokens_per_epoch=None if mean_prompt_tokens is None else round(num_train_tasks * mean_prompt_tokens),
        validation_tokens_per_epoch=None
        if num_validation_tasks is None
        else num_validation_tasks * answers * config.rlaif.max_new_tokens,
        memory=memory,
        findings=tuple(findings(config, length)),
    )


def _epochs(config: RunConfig, length: RunLength) -> tuple[EpochPlan, ...]:
    settings, total = schedule_settings(config), length.total_steps
    ends = [epoch * length.steps_per_epoch for epoch in range(1, config.training.num_epochs + 1)]
    return tuple(
        EpochPlan(epoch, done, learning_rate_at(settings, done - 1, total), learning_rate_at(settings, done, total))
        for epoch, done in enumerate(ends, start=1)
    )


def _tasks_drawn(config: RunConfig, num_train_tasks: int) -> int:
    dynamic = config.rlaif.dynamic_sampling
    return math.ceil(num_train_tasks * (1 + dynamic.max_extra_tasks)) if dynamic.enabled else num_train_tasks
