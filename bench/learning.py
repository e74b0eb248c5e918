"""Does training help? The embedded default over several seeds, judged on held-out tasks.

    python bench/learning.py [--seeds 0 1 2] [--runs DIR] [--set section.key=value ...] [--name learning]

Each seed is one `evenkeel train` as a user would start it, timed as a whole process. Measured are, for each seed:

    start and end     mean share of hidden tests passed on the validation tasks, 8 samples each at temperature 1
    gain              end minus the best start over temperatures 0, 0.3, 0.5 and 1: paired by task, 95 % interval
    falls             epochs below the one before by more than their paired interval
    KL                largest epoch mean of k3 to the base, nats a token

Writes bench/results/NAME.json, NAME.md and NAME.svg. A run that exists already is read, not repeated.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

from evenkeel.metrics.collect import mean_tests
from evenkeel.metrics.paired import paired_difference
from evenkeel.metrics.view import RunView, open_run

RESULTS = Path(__file__).parent / "results"
START_KINDS = {"0": "greedy", "0.3": "temperature 0.3", "0.5": "temperature 0.5", "1": "validation"}


@dataclass(frozen=True)
class SeedResult:
    """One run."""

    seed: int
    train_reward: list[float]
    """Average (unshaped) reward on train tasks by epoch; epoch 0 is the start."""
    best_of_n: list[float]
    validation: list[float]
    """Mean share of hidden tests passed by epoch."""
    greedy: list[float]
    start_by_temperature: dict[str, float]
    best_start_temperature: str
    gain: float
    gain_low: float
    gain_high: float
    falls: int
    max_kl: float
    seconds: float
    """Wall clock of the whole process."""


def run_seed(seed: int, directory: Path, overrides: list[str]) -> SeedResult:
    timing = directory.with_suffix(".seconds")
    if not timing.exists():
        started = time.monotonic()
        sets = [part for override in (f"training.seed={seed}", *overrides) for part in ("--set", override)]
        subprocess.run([sys.executable, "-m", "evenkeel.cli", "train", *sets, "--out", str(directory)], check=True)
        timing.write_text(f"{time.monotonic() - started:.1f}\n")
    with open_run(directory) as view:
        return read_seed(seed, view, float(timing.read_text()))


def read_seed(seed: int, view: RunView, seconds: float) -> SeedResult:
    epochs = view.epochs()
    by_epoch = [view.task_scores(record.epoch) for record in epochs]
    starts = {temperature: view.task_scores(0, kind) for temperature, kind in START_KINDS.items()}
    best = max(starts, key=lambda temperature: mean_tests(starts[temperature]))
    gain = paired_difference(starts[best], by_epoch[-1])
    pairs = zip(by_epoch, by_epoch[1:], strict=False)
    return SeedResult(
        seed=seed,
        train_reward=[record.metrics["reward/mean"] for record in epochs],
        best_of_n=[record.metrics["reward/best_of_n"] for record in epochs],
        validation=[record.metrics["validation/tests/mean"] for record in epochs],
        greedy=[record.metrics["validation/tests/greedy"] for record in epochs],
        start_by_temperature={temperature: mean_tests(scores) for temperature, scores in starts.items()},
        best_start_temperature=best,
        gain=gain.mean,
        gain_low=gain.low,
        gain_high=gain.high,
        falls=sum(paired_difference(before, after).fell for before, after in pairs),
        max_kl=max(record.metrics.get("kl/mean", 0.0) for record in epochs),
        seconds=seconds,
    )


def table(results: list[SeedResult]) -> str:
    epochs = range(len(results[0].validation))
    head = [
        "seed",
        *(f"epoch {epoch}" if epoch else "start" for epoch in epochs),
        "greedy",
        "best start",
        "gain over it",
        "falls",
        "KL",
        "time",
    ]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for result in results:
        cells = [
            str(result.seed),
            *(f"{value:.3f}" for value in result.validation),
            f"{result.greedy[0]:.3f} -> {result.greedy[-1]:.3f}",
            f"{result.start_by_temperature[result.best_start_temperature]:.3f} (T {result.best_start_temperature})",
            f"+{result.gain:.3f} [{result.gain_low:.3f}, {result.gain_high:.3f}]",
            str(result.falls),
            f"{result.max_kl:.3f}",
            f"{result.seconds / 60:.1f} min",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def plot(results: list[SeedResult], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4))
    for result in results:
        epochs = range(len(result.validation))
        axes.plot(epochs, result.validation, marker="o", label=f"seed {result.seed}: validation")
        axes.plot(
            epochs,
            result.best_of_n,
            linestyle=":",
            color=axes.lines[-1].get_color(),
            label=f"seed {result.seed}: best of 8, train",
        )
    axes.axhline(0.7, color="grey", linewidth=1)
    axes.text(0, 0.71, "target 0.7", color="grey")
    axes.set(xlabel="epoch", ylabel="share of hidden tests passed", ylim=(0, 1), xticks=list(range(len(results[0].validation))))
    axes.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--runs", type=Path, default=Path("runs/learning"))
    parser.add_argument("--set", dest="overrides", action="append", default=[])
    parser.add_argument("--name", default="learning")
    arguments = parser.parse_args()
    arguments.runs.mkdir(parents=True, exist_ok=True)
    results = [run_seed(seed, arguments.runs / f"seed-{seed}", arguments.overrides) for seed in arguments.seeds]
    machine = {
        "cores": os.cpu_count(),
        "processor": platform.processor() or platform.machine(),
        "python": platform.python_version(),
    }
    record = {
        "date": date.today().isoformat(),
        "machine": machine,
        "overrides": arguments.overrides,
        "seeds": [asdict(r) for r in results],
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{arguments.name}.json").write_text(json.dumps(record, indent=1) + "\n")
    text = f"{table(results)}\n\n{machine['cores']} cores, {record['date']}; `python bench/learning.py`.\n"
    (RESULTS / f"{arguments.name}.md").write_text(text)
    plot(results, RESULTS / f"{arguments.name}.svg")
    print(text)


if __name__ == "__main__":
    main()
