"""The tasks of a run, read before anything else is made, and what a person should know about them."""

from __future__ import annotations

from dataclasses import dataclass

from evenkeel.config.schema import RunConfig
from evenkeel.metrics.rows import Event
from evenkeel.records import Task
from evenkeel.tasks.benchmarks import overlap
from evenkeel.tasks.jsonl import BadRow, TaskFile
from evenkeel.tasks.load import load_tasks

_SHOWN_ROWS = 10


@dataclass(frozen=True)
class RunTasks:
    """What a run trains on and is measured on."""

    train: tuple[Task, ...]
    validation: tuple[Task, ...]
    """Empty without `data.validation`."""
    skipped: tuple[tuple[str, tuple[BadRow, ...]], ...] = ()
    """Source and the rows of it that `data.skip_bad_rows` left out."""


def read_tasks(config: RunConfig, *, allow_custom_code: bool) -> RunTasks:
    """Train and validation tasks; bad rows end it here unless they may be skipped."""
    data = config.data
    arguments = {"skip_bad_rows": data.skip_bad_rows, "seed": config.training.seed, "allow_custom_code": allow_custom_code}
    train, validation = load_tasks(data.train, limit=data.max_train_samples, **arguments), TaskFile(())
    if data.validation is not None:
        validation = load_tasks(data.validation, limit=data.max_validation_samples, setting="data.validation", **arguments)
    found = ((data.train, train.bad_rows), (data.validation or "", validation.bad_rows))
    return RunTasks(train.tasks, validation.tasks, tuple((source, rows) for source, rows in found if rows))


def remarks(tasks: RunTasks) -> list[Event]:
    """For the record of a run that starts: what was left out, and train tasks that are validation tasks too."""
    skipped = [Event("skipped_rows", _skipped(source, rows)) for source, rows in tasks.skipped]
    return skipped + [Event("overlap", warning) for warning in overlap(tasks.train, tasks.validation)]


def _skipped(source: str, rows: tuple[BadRow, ...]) -> str:
    shown = "; ".join(f"line {row.line}: {row.reason}" for row in rows[:_SHOWN_ROWS])
    more = f"; and {len(rows) - _SHOWN_ROWS} more" if len(rows) > _SHOWN_ROWS else ""
    return f"{source}: {len(rows)} rows are no tasks and were left out. {shown}{more}"
