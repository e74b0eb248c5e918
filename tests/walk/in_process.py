"""The same command without a new interpreter: imports take seconds, these runs take one or two.

`walk` trains on a handful of tasks and reads the result back; a test of an option compares it with the unchanged walk.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from evenkeel.cli import run
from evenkeel.metrics.rows import Event, SampleRow
from evenkeel.metrics.view import open_run

from .small_run import arguments

BRIEF = {
    "data.max_train_samples": 16, "data.validation": "null", "data.max_validation_samples": "null", "training.num_epochs": 1,
    "training.checkpoint_every_steps": "null", "rlaif.max_new_tokens": 40,
}  # fmt: skip
"""8 tasks x 4 samples a step, 2 steps, no validation."""


@dataclass(frozen=True)
class Walk:
    """What a run left, read back."""

    directory: Path
    steps: list[dict[str, float]]
    """Metrics of each step."""
    epochs: list[dict[str, float]]
    """Metrics of each epoch, from 0."""
    samples: list[SampleRow]
    """Of training, in the order in which they were drawn."""
    events: list[Event]

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]

    def groups(self, step: int) -> list[list[SampleRow]]:
        """The samples of a step's tasks."""
        found: dict[int, list[SampleRow]] = {}
        for row in self.samples:
            if row.step == step:
                found.setdefault(row.group_index, []).append(row)
        return list(found.values())


def read(directory: Path) -> Walk:
    with open_run(directory) as view:
        steps, epochs = ([record.metrics for record in records] for records in (view.steps(), view.epochs()))
        return Walk(directory, steps, epochs, view.samples(), view.events())


def walk(directory: Path, *more: str, **changes) -> Walk:
    """`evenkeel train` with the brief settings and these changes (`.` in keys is written `__`); it must succeed."""
    settings = {key.replace(".", "__"): value for key, value in BRIEF.items()} | changes
    assert run([*arguments(directory, **settings), *more]) == 0
    return read(directory)
