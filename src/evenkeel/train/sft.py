"""`evenkeel train --sft`: a supervised warm start on reference solutions, the cure for a reward too sparse to learn from.

The same step as reinforcement, with one difference: what trains is the reference instead of a sample, under the likelihood
loss. KL is still measured against the base, so the table shows how far the warm start went.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from evenkeel.algorithm.batch import TrainBatch, TrainRow
from evenkeel.config.schema import SftSettings
from evenkeel.errors import UsageError
from evenkeel.metrics.rows import Event
from evenkeel.policy.model import Policy
from evenkeel.records import Task
from evenkeel.rollout.prompt import prompt_tokens
from evenkeel.train.build import Run
from evenkeel.train.step import RolloutMemory, StepSettings, Updater


def warm_start(run: Run, settings: SftSettings) -> None:
    """Train on the references of the train tasks, before the first epoch."""
    tasks = with_references(run.curriculum.tasks)
    objective = replace(run.settings.objective, loss="best_of_n", entropy_bonus=0.0, temperature=1.0)
    updater = Updater(run.policy, run.updater.optimizer, objective, run.world)
    size = run.tasks_per_rollout * run.settings.sampling.num_samples
    losses: list[float] = []
    run.listener.begin("warm start", settings.num_epochs * len(tasks))
    for epoch in range(settings.num_epochs):
        order = list(tasks)
        random.Random(f"sft {run.settings.seed} {epoch}").shuffle(order)
        for start in range(0, len(order), size):
            chosen = order[start : start + size]
            batch = _batch(run.policy, chosen)
            step = StepSettings(settings.learning_rate, 0.0, run.settings.max_grad_norm, run.position.micro_batch_size)
            report = updater.update(batch, step, RolloutMemory())
            losses.append(report.loss)
            run.listener.advance(len(chosen))
    message = (
        f"Warm start on {len(tasks)} references, {len(losses)} steps: loss {losses[0]:.3f} -> {losses[-1]:.3f} nats a token."
    )
    run.note(Event("warm_start", message, 0, {"losses": losses}))


def with_references(tasks: Sequence[Task]) -> list[Task]:
    """The tasks that can be learnt from. Raises UsageError when there is none."""
    found = [task for task in tasks if task.reference]
    if not found:
        raise UsageError(
            "`--sft` trains on reference solutions, but no train task has a `reference`. Add some, or leave `--sft` out."
        )
    return found


def _batch(policy: Policy, tasks: Sequence[Task]) -> TrainBatch:
    rows = tuple(_row(policy, task) for task in tasks)
    return TrainBatch(rows, len(rows), sum(row.length for row in rows), max(row.length for row in rows), policy.pad_id)


def _row(policy: Policy, task: Task) -> TrainRow:
    """Prompt and reference, tokenised apart as in sampling, and an end-of-sequence token."""
    text = task.reference or ""
    if policy.tokenizer.chat_template:
        text = f"```python\n{text if text.lstrip().startswith('def ') else task.prompt + text}\n```"
    ids = (*policy.tokenizer.encode(text, add_special_tokens=False), policy.tokenizer.eos_token_id or min(policy.eos_ids))
    return TrainRow(prompt_tokens(policy.tokenizer, task), ids, (0.0,) * len(ids), advantage=1.0)
