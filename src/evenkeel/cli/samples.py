"""`evenkeel samples RUN`: read what the student writes."""

from __future__ import annotations

import json as json_format
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evenkeel.cli.text import plain_text
from evenkeel.errors import UsageError

if TYPE_CHECKING:
    from evenkeel.metrics.rows import SampleRow
    from evenkeel.metrics.view import RunView
    from evenkeel.report.samples import Change

_DEFAULT_COUNT = 3


@dataclass(frozen=True)
class Selection:
    """What was chosen to be read."""

    best: Sequence[SampleRow]
    worst: Sequence[SampleRow]
    changed: Sequence[Change]


def samples(
    run: Annotated[Path, typer.Argument(help="Directory of the run.")],
    epoch: Annotated[int | None, typer.Option(help="Epoch to read; default: the last that has answers.")] = None,
    task: Annotated[str | None, typer.Option(help="Only this task.")] = None,
    best: Annotated[int | None, typer.Option(min=1, help="So many answers with the highest reward.")] = None,
    worst: Annotated[int | None, typer.Option(min=1, help="So many answers with the lowest reward.")] = None,
    changed: Annotated[int | None, typer.Option(min=1, help="So many tasks that moved most since the first epoch.")] = None,
    kind: Annotated[str, typer.Option(help="Which answers: train, validation or greedy.")] = "train",
    json: Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")] = False,
) -> None:
    """Read the best, the worst and the changed answers of a run; without a choice, three of each."""
    from evenkeel.metrics.view import open_run

    counts = (best, worst, changed)
    if not any(counts):
        counts = (_DEFAULT_COUNT,) * 3
    with open_run(run) as view:
        late = _epoch(view, kind, epoch, task)
        early = view.sample_epochs(kind, task)[0]
        selection = _select(view, kind, (early, late), task, counts)
    if json:
        found = {"kind": kind, "epoch": late, "first_epoch": early, **asdict(selection)}
        # Everything outside ASCII is escaped, control characters too.
        typer.echo(json_format.dumps(found, indent=2))
    else:
        _show(selection, kind, early, late)


def _select(view: RunView, kind: str, epochs: tuple[int, int], task: str | None, counts: tuple[int | None, ...]) -> Selection:
    from evenkeel.report import samples as choose

    early, late = epochs
    num_best, num_worst, num_changed = (count or 0 for count in counts)
    rows = view.samples(kind=kind, epoch=late, task_id=task)
    first = view.samples(kind=kind, epoch=early, task_id=task) if num_changed and early != late else []
    one_per_task = task is None
    return Selection(
        choose.best(rows, num_best, one_per_task=one_per_task),
        choose.worst(rows, num_worst, one_per_task=one_per_task),
        choose.changed(first, rows, num_changed),
    )


def _epoch(view: RunView, kind: str, asked: int | None, task: str | None) -> int:
    """The epoch to read, or an error that says what there is."""
    epochs = view.sample_epochs(kind, task)
    if epochs and (asked is None or asked in epochs):
        return epochs[-1] if asked is None else asked
    if epochs:
        there = ", ".join(str(epoch) for epoch in epochs)
        raise UsageError(f"--epoch {asked} has no stored {kind} answers in {view.path.parent}. There are epochs {there}.")
    if task is not None and view.sample_epochs(kind):
        import difflib

        known = {row.task_id for row in view.samples(kind=kind, epoch=view.sample_epochs(kind)[-1])}
        near = difflib.get_close_matches(task, known, n=1, cutoff=0) or sorted(known)
        raise UsageError(f"--task {task} has no stored {kind} answers in {view.path.parent}. The nearest name is `{near[0]}`.")
    other = [name for name in ("train", "validation", "greedy") if view.sample_epochs(name)]
    advice = f"Try --kind {other[0]}." if other else "It has none at all: train at least one step."
    raise UsageError(f"{view.path.parent} has no stored answers of kind `{kind}`. {advice}")


# --------------------------------------------------------------------------- showing


def _show(selection: Selection, kind: str, early: int, late: int) -> None:
    for title, rows in (("Best", selection.best), ("Worst", selection.worst)):
        if rows:
            _title(f"{title} {kind} answers of epoch {late}")
        for row in rows:
            _answer(row)
    if selection.changed:
        _title(f"Changed between epochs {early} and {late} (each shown by its most typical answer)")
    for change in selection.changed:
        moved = f"{change.early_mean:.3f} -> {change.late_mean:.3f} ({change.change:+.3f})"
        typer.echo(f"{plain_text(change.task_id)}: mean reward {moved}\n")
        _answer(change.early)
        _answer(change.late)


def _title(text: str) -> None:
    typer.secho(f"{text}\n", bold=True)


def _answer(row: SampleRow) -> None:
    reward = "not scored" if row.reward is None else f"reward {row.reward:.3f}"
    outcome = f"{row.outcome} ({row.tests_passed}/{row.tests_total} tests)"
    length = f"{row.length} tokens" + (", truncated" if row.truncated else "")
    facts = [f"epoch {row.epoch}", f"sample {row.sample_index}", reward, outcome, length]
    if row.advantage is not None:
        facts.append(f"advantage {row.advantage:+.2f}" + ("" if row.trains else ", does not train"))
    typer.secho(f"{plain_text(row.task_id)} | {' | '.join(facts)}", fg="green" if row.outcome == "passed" else "yellow")
    parts = [f"{part.name} {'unscored' if part.value is None else format(part.value, '.2f')}" for part in row.parts]
    if parts:
        typer.echo(f"  {plain_text(', '.join(parts))}")
    if row.detail:
        typer.echo(f"  {plain_text(row.detail)}")
    # The bar in front keeps a model's text from posing as one of our lines.
    typer.echo("\n".join(f"  | {line}" for line in plain_text(row.program).split("\n")) + "\n")
