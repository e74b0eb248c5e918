"""The training walk, read top to bottom.

    measure_start            epoch 0: the untrained student, also at other temperatures; a warm start where asked (epochs.py)
    train
      run_epoch              one pass over the draws of the epoch
        take_step            1 choose -> 2 sample -> 3 score -> 4 credit -> 5 pack -> 6 update -> 7 record
      close_epoch            validation, the epoch's record, early stopping, checkpoint (epochs.py)

    consumes   a `Run`: the parts that `build.py` made, and a `Position`
    produces   rows in run.db, checkpoints, and words to the listener
    gated by   `run.stop_requested` (Ctrl-C) after every step, early stopping after every epoch

A step that was recorded is never recomputed except after a crash, from the last checkpoint, with the stored grades.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from evenkeel.algorithm.advantages import ADVANTAGE_FREE_LOSSES, credit, skipping_is_exact
from evenkeel.algorithm.batch import TrainBatch, pack
from evenkeel.config.schedule import learning_rate_at
from evenkeel.errors import RunError
from evenkeel.metrics.collect import step_metrics
from evenkeel.metrics.summary import GroupSummary, group_summary
from evenkeel.records import CreditedGroup, ScoredGroup, StepRecord, Task, UpdateReport
from evenkeel.reward.score import score
from evenkeel.rollout.collect import collect
from evenkeel.train.build import Run
from evenkeel.train.clock import Clock
from evenkeel.train.epochs import close_epoch, save_checkpoint
from evenkeel.train.kl_in_reward import measured_kl
from evenkeel.train.mishaps import step_events, why_stopped
from evenkeel.train.state import seed_at
from evenkeel.train.step import RolloutMemory, StepSettings


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
    rollout = sample_and_score(run, draws, clock)
    shaped = run.shaping.apply(rollout.groups, run.position.epoch)
    with clock.measure("update"):
        credited = credit(
            shaped, run.settings.credit, uses_advantages=run.settings.objective.loss not in ADVANTAGE_FREE_LOSSES,
            kl_in_reward=measured_kl(run, shaped),
        )  # fmt: skip
    for group in (*rollout.groups, *rollout.replaced):
        shares = [sample.verdict.share for sample in group.samples if sample.verdict.scored]
        if shares:
            run.curriculum.observe(group.task.task_id, sum(shares) / len(shares), len(shares))
    summary = group_summary(credited, rollout.replaced)
    run.position.summary = run.position.summary + summary
    memory = RolloutMemory()
    for update_number in range(run.settings.updates_per_rollout):
        report = update(run, credited, memory, clock)
        fresh = update_number == 0
        record_step(run, credited if fresh else [], summary if fresh else GroupSummary(), report, clock)
        clock = Clock()
    run.position.rollout += 1


@dataclass(frozen=True)
class Rollout:
    """The scored groups of one rollout."""

    groups: list[ScoredGroup]
    replaced: list[ScoredGroup]
    """Groups without signal whose place others took: counted, and seen by the curriculum, but not trained on."""


def sample_and_score(run: Run, draws: Sequence[Task], clock: Clock) -> Rollout:
    """The next tasks, sampled and scored; with dynamic sampling, tasks whose rewards are all equal are replaced by the tasks
    after them, within the bound."""
    wanted = run.tasks_per_rollout
    extra_left = int(wanted * run.settings.max_extra_share)
    kept, replaced = _sample_and_score_next(run, draws, wanted, clock), []
    while run.settings.dynamic_sampling:
        dull = [group for group in kept if len(set(group.rewards)) <= 1]
        count = min(len(dull), extra_left, len(draws) - run.position.draws_done)
        if count == 0:
            break
        extra_left -= count
        replaced += dull[:count]
        left_out = {id(group) for group in dull[:count]}
        kept = [group for group in kept if id(group) not in left_out] + _sample_and_score_next(run, draws, count, clock)
    return Rollout(kept, replaced)


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
            credited,
            pad_token_id=run.policy.pad_id,
            max_new_tokens=run.settings.sampling.max_new_tokens,
            keep_zero_advantages=not exact,
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
    events = step_events(run, report)
    record = StepRecord(run.position.step, run.position.epoch, step_metrics(summary, report, clock.seconds()))
    if run.world.is_main:
        run.store.record_step(record, credited, events)
    run.trackers.log(record.metrics, record.step)
    run.listener.step(record)
    for event in events:
        run.listener.note(event.message)
    if run.position.bad_steps >= run.settings.max_bad_steps:
        save_checkpoint(run, ends_epoch=False)
        raise RunError(why_stopped(run, report))
