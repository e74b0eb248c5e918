"""The seed's table, in the terminal: a row per metric, a column per epoch, and a trend that knows its noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from evenkeel.metrics.names import metric
from evenkeel.records import EpochRecord

_MOST_EPOCHS = 6
"""Columns of epochs at most: the start and the last five."""
_LABEL_AND_TREND_WIDTH, _EPOCH_WIDTH = 42, 9
"""Characters."""

Format = Callable[[float], str]


@dataclass(frozen=True)
class Row:
    """One line of the table.

    >>> Row("Average Reward", "reward/mean", "{:.4f}".format).std_error is None
    True
    """

    label: str
    name: str
    """Metric that is shown and that the trend follows."""
    shown: Format
    std_error: str | None = None
    """Metric that holds the standard error of `name`, where there is one."""
    trend: bool = True
    """False for a figure that only restates the row above it."""


def _share(value: float) -> str:
    return f"{100 * value:.0f} %"


def _fixed(digits: int) -> Format:
    return lambda value: f"{value:.{digits}f}"


def _minutes(seconds: float) -> str:
    """
    >>> _minutes(42.04), _minutes(3120)
    ('42.0 s', '52.0 min')
    """
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _scientific(value: float) -> str:
    return f"{value:.1e}"


_SECTIONS: tuple[tuple[Row, ...], ...] = (
    (
        Row("Average Reward", "reward/mean", _fixed(4), "reward/std_error"),
        Row("  share of target", "reward/target_share", _share, trend=False),
        Row("Best-of-N Reward", "reward/best_of_n", _fixed(4)),
        Row("Average Loss", "loss/mean", _fixed(4)),
        Row("Time per Epoch", "time/epoch_s", _minutes),
        Row("Code Diversity: unique", "diversity/unique_fraction", _share),
        Row("  similarity", "diversity/mean_similarity", _fixed(3)),
    ),
    (
        Row("Validation: tests", "validation/tests/mean", _fixed(4), "validation/tests/std_error"),
        Row("  greedy", "validation/tests/greedy", _fixed(4)),
        Row("Validation: reward", "validation/reward/mean", _fixed(4)),
        Row("  best of N", "validation/best_of_n", _fixed(4)),
    ),
    (
        Row("KL to base, nats/token", "kl/mean", _fixed(4)),
        Row("Entropy, nats/token", "entropy/mean", _fixed(3)),
        Row("Gradient norm, unclipped", "grad_norm/mean", _fixed(3)),
        Row("  steps clipped", "grad_norm/clipped_share", _share),
        Row("Learning rate", "learning_rate", _scientific),
        Row("Groups without signal", "groups/without_signal_share", _share),
        Row("Truncated", "completions/truncated_share", _share),
        Row("Parse failures", "completions/parse_failure_share", _share),
        Row("Length, tokens", "completions/length_mean", _fixed(1)),
        Row("Mean difficulty", "curriculum/difficulty_mean", _fixed(3)),
    ),
    (
        Row("Sampled tokens/s", "tokens/per_second", _count),
        Row("Seconds: rollout", "time/rollout_s", _fixed(1)),
        Row("  reward", "time/reward_s", _fixed(1)),
        Row("  reference", "time/reference_s", _fixed(1)),
        Row("  update", "time/update_s", _fixed(1)),
        Row("  evaluation", "time/evaluation_s", _fixed(1)),
        Row("Peak memory, MB", "memory/peak_mb", _count),
        Row("Failures survived", "failures/survived", _count),
    ),
)


def epoch_table(epochs: Sequence[EpochRecord], *, width: int = 100) -> Table:
    """The table after an epoch, for a terminal of `width` characters: the first epoch, and as many of the last as fit.

    Trend is the last value against the first. It is coloured only where a direction is good in itself, and said to be
    noise where the standard errors are known and the move is below 1.96 of the two combined.
    """
    room = max(2, min(_MOST_EPOCHS, (width - _LABEL_AND_TREND_WIDTH) // _EPOCH_WIDTH))
    shown = list(epochs) if len(epochs) <= room else [epochs[0], *epochs[1 - room :]]
    left_out = [str(record.epoch) for record in epochs if record not in shown]
    hidden = f"Not shown: epochs {left_out[0]} to {left_out[-1]}. " if len(left_out) > 1 else ""
    hidden = f"Not shown: epoch {left_out[0]}. " if len(left_out) == 1 else hidden
    table = Table(title="Training progress", title_justify="left", caption_justify="left", box=SIMPLE_HEAD,
                  pad_edge=False, padding=(0, 1, 0, 0),
                  caption=f"{hidden}Trend: last against first. Reward is unshaped; loss is not progress.")  # fmt: skip
    table.add_column("Metric", no_wrap=True)
    for record in shown:
        table.add_column("Start" if record.epoch == 0 else f"Epoch {record.epoch}", justify="right", no_wrap=True)
    table.add_column("Trend", no_wrap=True)
    for section in _SECTIONS:
        for row in section:
            if any(row.name in record.metrics for record in epochs):
                cells = [row.shown(record.metrics[row.name]) if row.name in record.metrics else "–" for record in shown]
                table.add_row(row.label, *cells, _trend(row, epochs))
        table.add_section()
    return table


def summary_line(record: EpochRecord) -> str:
    """One line for a log.

    >>> summary_line(EpochRecord(2, 20, {"reward/mean": 0.2553, "reward/target_share": 0.3647, "time/epoch_s": 61.0}))
    'epoch 2 | average reward 0.2553 (36 % of target) | 61.0 s'
    """
    metrics = record.metrics
    pieces = ["start" if record.epoch == 0 else f"epoch {record.epoch}"]
    if "reward/mean" in metrics:
        target = f" ({_share(metrics['reward/target_share'])} of target)" if "reward/target_share" in metrics else ""
        pieces.append(f"average reward {metrics['reward/mean']:.4f}{target}")
    for label, name, shown in (
        ("best of N", "reward/best_of_n", _fixed(4)),
        ("validation tests", "validation/tests/mean", _fixed(4)),
        ("greedy", "validation/tests/greedy", _fixed(4)),
        ("KL", "kl/mean", _fixed(4)),
        ("", "time/epoch_s", _minutes),
    ):
        if name in metrics:
            pieces.append(f"{label} {shown(metrics[name])}".strip())
    return " | ".join(pieces)


# --------------------------------------------------------------------------- helpers


def _trend(row: Row, epochs: Sequence[EpochRecord]) -> Text:
    # The start has no training in it, so its seconds are no beginning of a series.
    counted = [record for record in epochs if record.epoch > 0 or not row.name.startswith("time/")]
    measured = [record.metrics for record in counted if row.name in record.metrics]
    if not row.trend or len(measured) < 2:
        return Text("")
    first, last = measured[0], measured[-1]
    change = last[row.name] - first[row.name]
    if row.shown(last[row.name]) == row.shown(first[row.name]):
        return Text("= same", style="dim")
    text = f"{'↑' if change > 0 else '↓'} {_relative(first[row.name], change) or row.shown(abs(change))}"
    if row.std_error and row.std_error in first and row.std_error in last:
        if abs(change) < 1.96 * math.hypot(first[row.std_error], last[row.std_error]):
            return Text(f"{text} noise", style="dim")
    known = metric(row.name)
    if known is None or known.better == "none":
        return Text(text)
    return Text(text, style="green" if (known.better == "up") == (change > 0) else "red")


def _relative(first: float, change: float) -> str:
    """The seed's percentages; empty where the start is 0 or so small that a percentage says nothing.

    >>> _relative(0.1980, 0.1873), _relative(0.0001, 0.5)
    ('94.6 %', '')
    """
    if first == 0 or abs(change / first) >= 10:
        return ""
    return f"{100 * abs(change / first):.1f} %"
