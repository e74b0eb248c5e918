"""`evenkeel compare RUN RUN`: is the second better, beyond noise?"""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evenkeel.cli.text import plain_text

if TYPE_CHECKING:
    from evenkeel.report.comparison import Comparison


def compare(
    first: Annotated[Path, typer.Argument(help="Directory of a run.")],
    second: Annotated[Path, typer.Argument(help="Directory of the run to compare with it.")],
    json: Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")] = False,
) -> None:
    """Compare two runs at their last evaluation, paired over the validation tasks of both.

    Differences are second minus first.
    """
    from evenkeel.metrics.view import open_run
    from evenkeel.report.comparison import compare_runs

    with open_run(first) as one, open_run(second) as other:
        found = compare_runs(one, other)
    if json:
        typer.echo(json_format.dumps({"runs": [str(first), str(second)], **found.as_json()}, indent=2))
    else:
        _show(found, str(first), str(second))


def _show(found: Comparison, first: str, second: str) -> None:
    from evenkeel.report.comparison import verdict

    sides = f"{second} (epoch {found.epochs[1]}) against {first} (epoch {found.epochs[0]})"
    typer.secho(f"{plain_text(sides)}\n", bold=True)
    for name, difference in found.paired.items():
        typer.echo(f"{name}: {verdict(difference)}")
    width = max((len(name) for name in found.metrics), default=0)
    typer.echo(f"\n{'metric':<{width}} {'first':>12} {'second':>12} {'difference':>12}")
    for name, (one, other) in found.metrics.items():
        difference = "" if one is None or other is None else f"{other - one:+.4g}"
        typer.echo(f"{plain_text(name):<{width}} {_number(one):>12} {_number(other):>12} {difference:>12}")
    typer.echo("")
    for note in found.notes:
        typer.echo(f"Note: {plain_text(note)}")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.5g}"
