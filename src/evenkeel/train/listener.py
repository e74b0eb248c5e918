"""What the loop tells whoever watches. The command line draws bars and tables from it; the default says nothing."""

from __future__ import annotations

from collections.abc import Sequence

from evenkeel.records import EpochRecord, StepRecord


class Listener:
    """Silent. Override what you want to hear."""

    def begin(self, what: str, total: int) -> None:
        """Long work starts: `total` units of it."""

    def advance(self, count: int) -> None:
        """So many more units are done."""

    def step(self, record: StepRecord) -> None:
        """An optimizer step was recorded."""

    def epoch(self, epochs: Sequence[EpochRecord]) -> None:
        """An epoch was recorded; all of them so far."""

    def note(self, message: str) -> None:
        """Something that a person should read once."""
