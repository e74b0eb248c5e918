"""A run's metrics as a file for other tools: one row per step and per epoch."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evenkeel.errors import UsageError
from evenkeel.metrics.names import in_reading_order
from evenkeel.metrics.view import RunView


def metric_rows(run: RunView) -> list[dict[str, Any]]:
    """Rows in the order of the run: `kind` (step or epoch), `epoch`, `step`, then what was measured, by its name.

    An epoch's row follows its last step's. A metric that was not measured is absent.
    """
    rows = [
        {"kind": kind, "epoch": record.epoch, "step": record.step, **record.metrics}
        for kind, records in (("step", run.steps()), ("epoch", run.epochs()))
        for record in records
    ]
    # Stable: of the two rows at an epoch's last step, the step's stays first.
    return sorted(rows, key=lambda row: row["step"])


def write_metrics(run: RunView, path: Path) -> int:
    """Write the rows as .jsonl or .csv, by the suffix; returns their number. The file is whole or as it was."""
    writers = {".jsonl": _write_jsonl, ".csv": _write_csv}
    if path.suffix not in writers:
        raise UsageError(f"--metrics {path} has the suffix `{path.suffix}`. Give a file name that ends in .jsonl or .csv.")
    rows = metric_rows(run)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with aside.open("w", newline="", encoding="utf-8") as file:
            writers[path.suffix](file, rows)
        aside.replace(path)
    except OSError as error:
        _remove(aside)
        message = f"--metrics {path} cannot be written: {error.strerror}. Give a file in a directory that you may write."
        raise UsageError(message) from error
    return len(rows)


def _remove(path: Path) -> None:
    if path.exists():
        path.unlink()


def _write_jsonl(file: Any, rows: Sequence[dict[str, Any]]) -> None:
    file.writelines(json.dumps(row) + "\n" for row in rows)


def _write_csv(file: Any, rows: Sequence[dict[str, Any]]) -> None:
    place = ["kind", "epoch", "step"]
    names = in_reading_order({name for row in rows for name in row} - set(place))
    writer = csv.DictWriter(file, [*place, *names], restval="")
    writer.writeheader()
    writer.writerows(rows)
