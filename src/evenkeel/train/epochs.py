"""What happens between epochs: the start is measured, an epoch is closed, a checkpoint is written."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Mapping

import torch

from evenkeel.algorithm.advantages import credit
from evenkeel.config.stages import SamplingSettings
from evenkeel.metrics.collect import EpochFacts, epoch_metrics, evaluation_metrics, start_metrics, task_scores
from evenkeel.metrics.rows import Event
from evenkeel.metrics.summary import GroupSummary, group_summary
from evenkeel.records import EpochRecord, ScoredGroup, TaskScore
from evenkeel.train import checkpoint
from evenkeel.train.build import Run
from evenkeel.train.evaluate import evaluate
from evenkeel.train.state import Position

START_TASKS = 64
"""At least so many train tasks show how good the student is at the start."""


def measure_start(run: Run, then: Callable[[], None] | None = None) -> None:
    """Epoch 0: how good the student is before training, at the measuring temperature, greedily, and at other temperatures;
    `then`, a warm start where one is asked for, and the first checkpoint.

    Reinforcement first sharpens: a gain that stops at what a lower temperature would have given is no learning.
    """
    started = time.monotonic()
    validation, greedy = _validate(run)
    others = {
        temperature: task_scores(_evaluate(run, run.settings.evaluation_at(temperature)))
        for temperature in (run.settings.baseline_temperatures if run.validation_tasks else ())
    }
    metrics = (
        _start_on_train_tasks(run) | evaluation_metrics(task_scores(validation), task_scores(greedy)) | start_metrics(others)
    )
    metrics["time/evaluation_s"] = time.monotonic() - started
    run.early_stopping.observe(0, task_scores(validation))
    _record_epoch(run, 0, metrics, validation, greedy, {f"temperature {t:g}": scores for t, scores in others.items()})
    if then is not None:
        then()
    run.position.epoch = 1
    save_checkpoint(run, ends_epoch=True)


def _start_on_train_tasks(run: Run) -> dict[str, float]:
    """Reward, best-of-N and diversity before training, on as many train tasks as there are validation tasks."""
    tasks = run.curriculum.tasks[: max(START_TASKS, len(run.validation_tasks))]
    run.listener.begin("start, train tasks", len(run.world.share(tasks)))
    groups = evaluate(
        run.engine,
        run.scorer,
        tasks,
        run.settings.sampling,
        seed=run.settings.seed,
        world=run.world,
        on_progress=run.listener.advance,
    )
    return epoch_metrics(group_summary(credit(groups, run.settings.credit)), [], EpochFacts({}, run.settings.target_reward))


def close_epoch(run: Run) -> str:
    """Validation, the epoch's record, early stopping and the checkpoint. Returns `done` or `early_stop`."""
    epoch, started = run.position.epoch, time.monotonic()
    validation, greedy = _validate(run)
    run.shaping.end_epoch()
    steps = [record.metrics for record in run.store.steps(epoch)]
    seconds = {"evaluation": time.monotonic() - started}
    seconds["epoch"] = sum(step.get("time/step_s", 0.0) for step in steps) + seconds["evaluation"]
    facts = EpochFacts(seconds, run.settings.target_reward, _peak_memory_mb(run), run.position.failures_survived)
    metrics = epoch_metrics(run.position.summary, steps, facts) | evaluation_metrics(
        task_scores(validation), task_scores(greedy)
    )
    stop = bool(validation) and run.early_stopping.observe(epoch, task_scores(validation)) and run.settings.stop_early
    _record_epoch(run, epoch, metrics, validation, greedy)
    _turn_page(run.position, run)
    run.position.finished = stop or run.position.epoch > run.num_epochs
    if stop:
        best = run.early_stopping.best_epoch
        message = f"Stopped after epoch {epoch}: validation has stayed below epoch {best} by more than its noise."
        run.note(Event("early_stop", message, run.position.step))
    save_checkpoint(run, ends_epoch=True)
    return "early_stop" if stop else "done"


def _turn_page(position: Position, run: Run) -> None:
    """Set the position to the start of the next epoch."""
    if run.early_stopping.best_epoch == position.epoch or not run.validation_tasks:
        position.best_step = position.step
    position.epoch += 1
    position.draws_done = 0
    position.failures_survived = 0
    position.summary = GroupSummary()


def _validate(run: Run) -> tuple[list[ScoredGroup], list[ScoredGroup]]:
    if not run.validation_tasks:
        return [], []
    return _evaluate(run, run.settings.evaluation), _evaluate(
        run, run.settings.evaluation_at(0.0)
    ) if run.settings.greedy else []


def _evaluate(run: Run, settings: SamplingSettings) -> list[ScoredGroup]:
    kind = "greedy" if settings.temperature == 0 else f"temperature {settings.temperature:g}"
    run.listener.begin(f"validation, {kind}", len(run.world.share(run.validation_tasks)))
    return evaluate(
        run.engine,
        run.scorer,
        run.validation_tasks,
        settings,
        seed=run.settings.seed,
        world=run.world,
        on_progress=run.listener.advance,
    )


def _record_epoch(
    run: Run, epoch: int, metrics: Mapping[str, float], validation: list[ScoredGroup], greedy: list[ScoredGroup],
    further: Mapping[str, list[TaskScore]] | None = None,
) -> None:  # fmt: skip
    """`further`: scores of other measurements by their kind, kept without the answers."""
    record = EpochRecord(epoch, run.position.step, dict(metrics))
    groups = {kind: found for kind, found in (("validation", validation), ("greedy", greedy)) if found}
    if run.world.is_main:
        run.store.record_epoch(
            record, {kind: task_scores(found) for kind, found in groups.items()} | dict(further or {}), groups
        )
    run.world.wait()
    # A tracker holds one value per name and step, and the epoch ends at its last step.
    run.trackers.log({f"epoch/{name}": value for name, value in record.metrics.items()}, record.step)
    run.listener.epoch(run.store.epochs())


def save_checkpoint(run: Run, *, ends_epoch: bool) -> None:
    if run.world.is_main:
        directory = run.directory / "checkpoints"
        finished_epochs = run.position.epoch - 1
        checkpoint.save(
            directory,
            run.policy,
            run.updater.optimizer,
            run.state(),
            step=run.position.step,
            epoch=finished_epochs,
            ends_epoch=ends_epoch,
        )
        run.store.set_facts({"best_step": run.position.best_step})
        checkpoint.prune(directory, keep=run.settings.keep_checkpoints, best_step=run.position.best_step)
    run.world.wait()


def _peak_memory_mb(run: Run) -> float:
    """Of the device where it counts, else the resident set of this process."""
    if run.policy.device.type == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    unit = 2**20 if sys.platform == "darwin" else 2**10  # ru_maxrss: bytes on macOS, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
