"""The training walk, read top to bottom.

    measure_start            epoch 0: the untrained student, also at other temperatures; a warm start where asked for
    train
      run_epoch              one pass over the draws of the epoch
        take_step            1 choose -> 2 sample -> 3 score -> 4 credit -> 5 pack -> 6 update -> 7 record
      close_epoch            validation, the epoch's record, early stopping, checkpoint

    consumes   a `Run`: the parts that `build.py` made, and a `Position`
    produces   rows in run.db, checkpoints, and words to the listener
    gated by   `run.stop_requested` (Ctrl-C) after every step, early stopping after every epoch

A step that was recorded is never recomputed except after a crash, from the last checkpoint, with the stored grades.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch

from evenkeel.algorithm.advantages import ADVANTAGE_FREE_LOSSES, credit, skipping_is_exact
from evenkeel.algorithm.batch import TrainBatch, pack
from evenkeel.config.schedule import learning_rate_at
from evenkeel.config.stages import SamplingSettings
from evenkeel.errors import RunError
from evenkeel.metrics.collect import EpochFacts, epoch_metrics, evaluation_metrics, start_metrics, step_metrics, task_scores
from evenkeel.metrics.rows import Event
from evenkeel.metrics.summary import GroupSummary, group_summary
from evenkeel.records import CreditedGroup, EpochRecord, ScoredGroup, StepRecord, Task, TaskScore, UpdateReport
from evenkeel.reward.score import score
from evenkeel.rollout.collect import collect
from evenkeel.train import checkpoint
from evenkeel.train.build import Run
from evenkeel.train.evaluate import evaluate
from evenkeel.train.kl_in_reward import measured_kl
from evenkeel.train.state import Position, seed_at
from evenkeel.train.step import RolloutMemory, StepSettings


START_TASKS = 64
"""At least so many train tasks show how good the student is at the start."""


def train(run: Run) -> str:
    """Train until the last epoch, an early stop or a request to stop. Returns `finished`, `early_stop` or `interrupted`.

    `measure_start` comes before it, once.
    """
    while not run.position.finished and run.position.epoch <= run.num_epochs:
        if run_epoch(run) == "interrupted":
            save_checkpoint(run, ends_epoch=False)
            return "interrupted"
        if close_epoch(run) == "early_stop":
            return "early_stop"
    return "finished"


# --------------------------------------------------------------------------- one epoch


def run_epoch(run: Run) -> str:
    """Every draw of the epoch's order, a rollout at a time. Returns `done` or `interrupted`."""
    draws = run.curriculum.order(run.position.epoch)
    run.listener.begin(f"epoch {run.position.epoch}/{run.num_epochs}", len(draws))
    run.listener.advance(run.position.draws_done)
    while run.position.draws_done < len(draws):
        before = run.position.draws_done
        take_step(run, draws)
        run.listener.advance(run.position.draws_done - before)
        # One process decides for all: a signal reaches them in different steps.
        if run.world.from_main(run.stop_requested()):
            return "interrupted"
        every = run.settings.checkpoint_every_steps
        if every and run.position.rollout % every == 0 and run.position.draws_done < len(draws):
            save_checkpoint(run, ends_epoch=False)
    return "done"


def take_step(run: Run, draws: Sequence[Task]) -> None:
    """Stages 1 to 7 for one rollout: the next tasks of the epoch, and one or more updates on what was sampled."""
    clock = Clock()
    scored = sample_and_score(run, draws, clock)
    summary_groups = run.shaping.apply(scored, run.position.epoch)
    with clock.measure("update"):
        credited = credit(
            summary_groups, run.settings.credit, uses_advantages=run.settings.objective.loss not in ADVANTAGE_FREE_LOSSES,
            kl_in_reward=measured_kl(run, summary_groups),
        )  # fmt: skip
    for group in scored:
        shares = [sample.verdict.share for sample in group.samples if sample.verdict.scored]
        if shares:
            run.curriculum.observe(group.task.task_id, sum(shares) / len(shares), len(shares))
    summary = group_summary(credited)
    run.position.summary = run.position.summary + summary
    memory = RolloutMemory()
    for update_number in range(run.settings.updates_per_rollout):
        report = update(run, credited, memory, clock)
        fresh = update_number == 0
        record_step(run, credited if fresh else [], summary if fresh else GroupSummary(), report, clock)
        clock = Clock()
    run.position.rollout += 1


def sample_and_score(run: Run, draws: Sequence[Task], clock: Clock) -> list[ScoredGroup]:
    """The next tasks, sampled and scored; with dynamic sampling, tasks whose rewards are all equal are replaced by the tasks
    after them, within the bound."""
    wanted = run.tasks_per_rollout
    extra_left = int(wanted * run.settings.max_extra_share)
    kept = _sample_and_score_next(run, draws, wanted, clock)
    while run.settings.dynamic_sampling:
        dull = [group for group in kept if len(set(group.rewards)) <= 1]
        count = min(len(dull), extra_left, len(draws) - run.position.draws_done)
        if count == 0:
            break
        extra_left -= count
        replaced = {id(group) for group in dull[:count]}
        kept = [group for group in kept if id(group) not in replaced] + _sample_and_score_next(run, draws, count, clock)
    return kept


def _sample_and_score_next(run: Run, draws: Sequence[Task], count: int, clock: Clock) -> list[ScoredGroup]:
    first = run.position.draws_done
    tasks = draws[first : first + count]
    run.position.draws_done += len(tasks)
    seeds = [seed_at(run.settings.seed, "rollout", run.position.epoch, first + offset) for offset in range(len(tasks))]
    with clock.measure("rollout"):
        groups = collect(run.engine, run.world.share(tasks), run.settings.sampling, seeds=run.world.share(seeds))
    with clock.measure("reward"):
        return run.world.gather(score(groups, run.scorer))


def update(run: Run, credited: Sequence[CreditedGroup], memory: RolloutMemory, clock: Clock) -> UpdateReport:
    """Stages 5 and 6: one optimizer step on the credited groups."""
    kl_penalty = run.kl.kl_penalty
    exact = skipping_is_exact(run.settings.objective, kl_penalty)
    rate = learning_rate_at(run.settings.schedule, run.position.step, run.total_steps)
    with clock.measure("update"):
        batch: TrainBatch = pack(
            credited, pad_token_id=run.policy.pad_id, max_new_tokens=run.settings.sampling.max_new_tokens, keep_zero_advantages=not exact
        )
        # Dropout is the only thing in the update that draws; its numbers follow from the position, like all others.
        torch.manual_seed(seed_at(run.settings.seed, "update", run.position.step))
        settings = StepSettings(rate, kl_penalty, run.settings.max_grad_norm, run.position.micro_batch_size)
        report = run.updater.update(batch, settings, memory)
    clock.move("update", "reference", run.updater.reference_seconds)
    run.position.step += 1
    if report.applied:
        run.kl.observe(report.kl_to_reference)
    return report


def record_step(run: Run, credited: Sequence[CreditedGroup], summary: GroupSummary, report: UpdateReport, clock: Clock) -> None:
    """Stage 7. Also counts bad steps in a row, and stops the run when there are too many."""
    events = _step_events(run, report)
    record = StepRecord(run.position.step, run.position.epoch, step_metrics(summary, report, clock.seconds()))
    if run.world.is_main:
        run.store.record_step(record, credited, events)
    run.trackers.log(record.metrics, record.step)
    run.listener.step(record)
    for event in events:
        run.listener.note(event.message)
    if run.position.bad_steps >= run.settings.max_bad_steps:
        save_checkpoint(run, ends_epoch=False)
        raise RunError(_why_stopped(run, report))


def _step_events(run: Run, report: UpdateReport) -> list[Event]:
    """What went wrong and was survived, in words."""
    position, events = run.position, []
    if report.applied and report.micro_batch_size < position.micro_batch_size:
        message = f"Out of memory: the micro-batch went from {position.micro_batch_size} to {report.micro_batch_size} completions; the gradient is the same."
        events.append(Event("out_of_memory", message, position.step))
        position.micro_batch_size = report.micro_batch_size
    if not report.applied:
        message = f"Step {position.step} was dropped ({report.dropped_reason}); the weights are as before."
        events.append(Event("dropped_step", message, position.step))
    solved = position.summary.rewards.count > 0 and position.summary.rewards.mean >= run.settings.target_reward
    # Nothing to learn because everything is solved is no failure; nothing to learn otherwise is.
    harmless = report.applied or (solved and not report.nonfinite)
    position.bad_steps = 0 if harmless else position.bad_steps + 1
    position.failures_survived += len(events)
    return events


def _why_stopped(run: Run, report: UpdateReport) -> str:
    count = run.position.bad_steps
    if report.nonfinite:
        return (
            f"{count} steps in a row were not finite (the last: {report.dropped_reason}). The weights are those before them. Lower "
            "`training.learning_rate`, tighten `training.max_grad_norm`, or set `model.dtype: float32`; then go on with --resume."
        )
    return (
        f"{count} steps in a row had nothing to train on: in every group all rewards were equal, or no sample could be scored. "
        "Read some with `evenkeel samples`. All wrong: easier tasks, more samples per task, or a warm start with `--sft`. "
        "All the same: raise `rlaif.generation_temperature`. Tests that cannot pass: check with `evenkeel score`."
    )


# --------------------------------------------------------------------------- measuring


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
    metrics = _start_on_train_tasks(run) | evaluation_metrics(task_scores(validation), task_scores(greedy)) | start_metrics(others)
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
        run.engine, run.scorer, tasks, run.settings.sampling, seed=run.settings.seed, world=run.world, on_progress=run.listener.advance
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
    metrics = epoch_metrics(run.position.summary, steps, facts) | evaluation_metrics(task_scores(validation), task_scores(greedy))
    stop = bool(validation) and run.early_stopping.observe(epoch, task_scores(validation)) and run.settings.stop_early
    _record_epoch(run, epoch, metrics, validation, greedy)
    _turn_page(run.position, run)
    run.position.finished = stop or run.position.epoch > run.num_epochs
    if stop:
        message = f"Stopped after epoch {epoch}: validation has stayed below epoch {run.early_stopping.best_epoch} by more than its noise."
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
    return _evaluate(run, run.settings.evaluation), _evaluate(run, run.settings.evaluation_at(0.0)) if run.settings.greedy else []


def _evaluate(run: Run, settings: SamplingSettings) -> list[ScoredGroup]:
    kind = "greedy" if settings.temperature == 0 else f"temperature {settings.temperature:g}"
    run.listener.begin(f"validation, {kind}", len(run.world.share(run.validation_tasks)))
    return evaluate(
        run.engine, run.scorer, run.validation_tasks, settings, seed=run.settings.seed, world=run.world, on_progress=run.listener.advance
    )


def _record_epoch(
    run: Run, epoch: int, metrics: Mapping[str, float], validation: list[ScoredGroup], greedy: list[ScoredGroup],
    further: Mapping[str, list[TaskScore]] | None = None,
) -> None:  # fmt: skip
    """`further`: scores of other measurements by their kind, kept without the answers."""
    record = EpochRecord(epoch, run.position.step, dict(metrics))
    groups = {kind: found for kind, found in (("validation", validation), ("greedy", greedy)) if found}
    if run.world.is_main:
        run.store.record_epoch(record, {kind: task_scores(found) for kind, found in groups.items()} | dict(further or {}), groups)
    run.world.wait()
    run.trackers.log(record.metrics, record.step)
    run.listener.epoch(run.store.epochs())


def save_checkpoint(run: Run, *, ends_epoch: bool) -> None:
    if run.world.is_main:
        directory = run.directory / "checkpoints"
        finished_epochs = run.position.epoch - 1
        checkpoint.save(
            directory, run.policy, run.updater.optimizer, run.state(), step=run.position.step, epoch=finished_epochs, ends_epoch=ends_epoch
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


class Clock:
    """Wall-clock seconds by phase of one step."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._seconds: dict[str, float] = {}

    @contextmanager
    def measure(self, phase: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        self._seconds[phase] = self._seconds.get(phase, 0.0) + time.monotonic() - started

    def move(self, source: str, target: str, seconds: float) -> None:
        """Book seconds that were measured inside `source` under `target`."""
        self._seconds[source] -= seconds
        self._seconds[target] = self._seconds.get(target, 0.0) + seconds

    def seconds(self) -> dict[str, float]:
        return {**self._seconds, "step": time.monotonic() - self._started}
