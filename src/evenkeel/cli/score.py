"""`evenkeel score TASKS COMPLETIONS`: rewards for given code, without training."""

from __future__ import annotations

import json as json_format
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenkeel.cli.text import plain_text, safe_text
from evenkeel.records import Outcome, ScoredSample, Task

if TYPE_CHECKING:
    from evenkeel.config.schema import RunConfig
    from evenkeel.reward.completions import Entry

_BATCH_SIZE = 128
"""Completions scored at a time: often enough for the progress bar, and plenty for every core."""
_TESTS_ONLY = ("reward.tests=1.0", "reward.teacher=0.0")
_SHOWN_TASKS = 5

ScoredEntries = list[tuple["Entry", ScoredSample]]


def score(
    tasks: Annotated[str, typer.Argument(help="Task file (ours, HumanEval, MBPP; .gz too) or a source as in data.train.")],
    completions: Annotated[Path, typer.Argument(help='JSONL rows {"task_id", "completion"} or {..., "solution"}; .gz too.')],
    config: Annotated[Path | None, typer.Option(help="Configuration whose reward settings count. Default: tests only.")] = None,
    set: Annotated[list[str] | None, typer.Option(help="section.key=value, over the configuration. Repeatable.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON row per completion, for programs.")] = False,
) -> None:
    """Score given completions against their tasks' hidden tests; no training, no model.

    A `completion` continues its task's prompt, a `solution` is a whole program. A task may have several; they are counted
    by `index` from 0 in the order of the file.
    """
    from evenkeel.config.load import load_config
    from evenkeel.config.named import trusted
    from evenkeel.reward.completions import read_completions
    from evenkeel.tasks.load import load_tasks

    settings = load_config(config, [*(() if config else _TESTS_ONLY), *(set or ())])
    found = load_tasks(tasks, skip_bad_rows=settings.data.skip_bad_rows, allow_custom_code=True, setting="TASKS")
    for bad in found.bad_rows:
        typer.echo(f"Skipped line {bad.line} of the tasks: {plain_text(bad.reason)}", err=True)
    entries = read_completions(completions, found.tasks)
    _report_unanswered(found.tasks, entries)
    scored = _score_entries(entries, settings, allow_custom_code=trusted(config))
    if json:
        for entry, sample in scored:
            typer.echo(json_format.dumps(_row(entry, sample)))
    else:
        _show(scored)


def _score_entries(entries: Sequence[Entry], settings: RunConfig, *, allow_custom_code: bool) -> ScoredEntries:
    """Every entry with its scored sample, in the order of the file."""
    from evenkeel.config.stages import score_settings
    from evenkeel.reward import score as scoring
    from evenkeel.reward.completions import batches_of
    from evenkeel.reward.standard import rewards_of
    from evenkeel.sandbox.pool import open_sandbox

    rewards = rewards_of(score_settings(settings), allow_custom_code=allow_custom_code)
    found: dict[tuple[str, int], ScoredSample] = {}
    with open_sandbox(settings.sandbox) as sandbox, _progress(len(entries)) as progress:
        scorer = scoring.Scorer(sandbox, rewards)
        for batch in batches_of(entries, _BATCH_SIZE):
            groups = scoring.score([rows.group for rows in batch], scorer)
            for rows, group in zip(batch, groups, strict=True):
                found.update(zip((_place(entry) for entry in rows.entries), group.samples, strict=True))
            progress.advance(progress.task_ids[0], sum(len(rows.entries) for rows in batch))
    return [(entry, found[_place(entry)]) for entry in entries]


def _place(entry: Entry) -> tuple[str, int]:
    return entry.task.task_id, entry.index


def _progress(total: int) -> Any:
    """A bar on stderr, gone when done; silent where stderr is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("scoring"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())
    bar.add_task("scoring", total=total)
    return bar


def _row(entry: Entry, sample: ScoredSample) -> dict[str, Any]:
    return {
        "task_id": entry.task.task_id,
        "index": entry.index,
        "reward": sample.reward,
        "outcome": sample.verdict.outcome.value,
        "parts": [asdict(part) for part in sample.parts],
    }


def _report_unanswered(tasks: Sequence[Task], entries: Sequence[Entry]) -> None:
    answered = {entry.task.task_id for entry in entries}
    missing = [task.task_id for task in tasks if task.task_id not in answered]
    if missing:
        names = ", ".join(missing[:_SHOWN_TASKS]) + (", ..." if len(missing) > _SHOWN_TASKS else "")
        typer.echo(f"{len(missing)} of {len(tasks)} tasks have no completion and are left out: {plain_text(names)}", err=True)


# --------------------------------------------------------------------------- showing


def _show(scored: ScoredEntries) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("Task")
    for title in ("Completions", "Mean", "Best", "Passed"):
        table.add_column(title, justify="right")
    table.add_column("Outcomes")
    for task_id, samples in _by_task(scored):
        table.add_row(safe_text(task_id), *_cells(samples))
    table.add_section()
    everything = [sample for _, sample in scored]
    table.add_row("all", *_cells(everything), style="bold")
    console = Console(emoji=False)
    console.print(table)
    unscored = sum(sample.reward is None for sample in everything)
    if unscored:
        console.print(f"{unscored} of {len(everything)} completions could not be scored and are in no mean.")


def _by_task(scored: ScoredEntries) -> Iterator[tuple[str, list[ScoredSample]]]:
    samples: dict[str, list[ScoredSample]] = {}
    for entry, sample in scored:
        samples.setdefault(entry.task.task_id, []).append(sample)
    yield from samples.items()


def _cells(samples: Sequence[ScoredSample]) -> list[str]:
    rewards = [sample.reward for sample in samples if sample.reward is not None]
    passed = sum(sample.verdict.outcome is Outcome.PASSED for sample in samples)
    outcomes = Counter(sample.verdict.outcome.value for sample in samples).most_common()
    mean, best = (f"{sum(rewards) / len(rewards):.3f}", f"{max(rewards):.3f}") if rewards else ("–", "–")
    return [str(len(samples)), mean, best, f"{passed}/{len(samples)}", ", ".join(f"{count} {name}" for name, count in outcomes)]
