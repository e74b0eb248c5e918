"""docs/metrics.md, printed from the catalogue: `python -m evenkeel.metrics.page > docs/metrics.md`."""

from __future__ import annotations

from evenkeel.metrics.names import CATALOGUE, Metric

_HEAD = """# Metrics

Generated from `src/evenkeel/metrics/names.py` by `python -m evenkeel.metrics.page > docs/metrics.md`; a test compares.

A metric that was not measured is absent from its row: never NaN, never 0. Average reward is always unshaped. A step is one
optimizer step; an epoch pools the samples of its steps, so that it is no mean of means. `better` says which way is good by
itself; most metrics have no such way.
"""


def metrics_page() -> str:
    """The whole page as Markdown."""
    stages = dict.fromkeys(name.split("/")[0] for name in CATALOGUE)
    lines = [_HEAD]
    for stage in stages:
        lines.append(f"## {stage}\n")
        lines += [_entry(entry) for entry in CATALOGUE.values() if entry.name.split("/")[0] == stage]
    return "\n".join(lines)


def _entry(entry: Metric) -> str:
    level = "step and epoch" if entry.level == "both" else entry.level
    return (
        f"### `{entry.name}`\n\n"
        f"{entry.unit} · {level} · better: {entry.better}\n\n"
        f"- **Formula**: {entry.formula}\n- **Source**: {entry.source}\n- **Trap**: {entry.trap}\n"
    )


if __name__ == "__main__":
    print(metrics_page(), end="")
