"""What `evenkeel train` shows while it works: one bar for the work under way, the table after every epoch."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from evenkeel.cli.text import safe_text
from evenkeel.records import EpochRecord, StepRecord
from evenkeel.report.terminal import epoch_table, summary_line
from evenkeel.train.listener import Listener

_SHOWN = (
    ("reward", "reward/mean", ".3f"),
    ("tests", "reward/tests/mean", ".3f"),
    ("KL", "kl/mean", ".4f"),
    ("norm", "grad_norm/mean", ".2f"),
)


class TerminalListener(Listener):
    """Bars and tables on a terminal; elsewhere a line a step, which a log file can hold."""

    def __init__(self, console: Console):
        self._console = console
        columns = (
            TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn(),
            TextColumn("left"), TimeRemainingColumn(), TextColumn("{task.fields[status]}"),
        )  # fmt: skip
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = None

    def __enter__(self) -> TerminalListener:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def begin(self, what: str, total: int) -> None:
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(what, total=total, status="")
        if not self._console.is_terminal:
            self._console.print(what, highlight=False, soft_wrap=True)

    def advance(self, count: int) -> None:
        self._progress.advance(self._task, count)

    def step(self, record: StepRecord) -> None:
        found = [f"{label} {record.metrics[name]:{form}}" for label, name, form in _SHOWN if name in record.metrics]
        status = "  ".join(found)
        if self._console.is_terminal:
            self._progress.update(self._task, status=status)
        else:
            self._console.print(f"step {record.step}  {status}", highlight=False)

    def epoch(self, epochs: Sequence[EpochRecord]) -> None:
        if not self._console.is_terminal:
            self._console.print(summary_line(epochs[-1]), highlight=False, soft_wrap=True)
        self._console.print(epoch_table(epochs, width=self._console.width))

    def note(self, message: str) -> None:
        self._console.print(f"[yellow]note[/yellow] {safe_text(message)}", highlight=False, soft_wrap=True)
