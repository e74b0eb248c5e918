"""What may go wrong in a step without ending the run, in words; and when it must end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenkeel.metrics.rows import Event
from evenkeel.records import UpdateReport

if TYPE_CHECKING:
    from evenkeel.train.build import Run


def step_events(run: Run, report: UpdateReport) -> list[Event]:
    """What went wrong in a step and was survived. Also counts the bad steps in a row."""
    position, events = run.position, []
    if report.applied and report.micro_batch_size < position.micro_batch_size:
        sizes = f"{position.micro_batch_size} to {report.micro_batch_size} completions"
        message = f"Out of memory: the micro-batch went from {sizes}; the gradient is the same."
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


def why_stopped(run: Run, report: UpdateReport) -> str:
    count = run.position.bad_steps
    if report.nonfinite:
        return (
            f"{count} steps in a row were not finite (the last: {report.dropped_reason}). The weights are those before them. "
            "Branch from here with a lower `training.learning_rate`, a tighter `training.max_grad_norm` or float32: "
            f"evenkeel train --resume {run.directory} --from last --set ..."
        )
    return (
        f"{count} steps in a row had nothing to train on: in every group all rewards were equal, or no sample could be scored. "
        "Read some with `evenkeel samples`. All wrong: easier tasks, more samples per task, or a warm start with `--sft`. "
        "All the same: raise `rlaif.generation_temperature`. Tests that cannot pass: check with `evenkeel score`."
    )
