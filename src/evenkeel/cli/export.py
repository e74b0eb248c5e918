"""`evenkeel export RUN`: a run's model or metrics for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evenkeel.errors import UsageError


def export(
    run: Annotated[Path, typer.Argument(help="Directory of the run.")],
    merged: Annotated[Path | None, typer.Option(help="Write the model here, adapter folded in, for transformers.")] = None,
    metrics: Annotated[
        Path | None, typer.Option(help="Write the metrics here: .jsonl or .csv, a row per step and epoch.")
    ] = None,
) -> None:
    """Export the merged model, the metrics, or both."""
    if merged is None and metrics is None:
        raise UsageError("Nothing to export was named. Give --merged DIR for the model, --metrics FILE, or both.")
    if metrics is not None:
        from evenkeel.metrics.view import open_run
        from evenkeel.report.metrics_file import write_metrics

        with open_run(run) as view:
            count = write_metrics(view, metrics)
        typer.echo(f"{metrics}: {count} rows")
    if merged is not None:
        from evenkeel.train.export import export_merged

        taken = export_merged(run, merged)
        typer.echo(f"{merged}: merged model of {taken.path.name}, after {taken.epoch} epochs")
