"""`evenkeel eval MODEL_OR_RUN --tasks F`: unbiased pass@k."""

from __future__ import annotations

import json as json_format
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evenkeel.cli.text import plain_text
from evenkeel.errors import RunError, UsageError

if TYPE_CHECKING:
    from evenkeel.config.schema import RunConfig
    from evenkeel.records import Task
    from evenkeel.train.checkpoint import Checkpoint


@dataclass(frozen=True)
class TaskCount:
    """What the samples of one task came to."""

    task_id: str
    samples: int
    solved: int
    """Samples that passed every hidden test."""


@dataclass(frozen=True)
class Measurement:
    """Samples of a model, run."""

    tasks: tuple[TaskCount, ...]
    """Tasks of which every sample could be run."""
    tests_mean: float
    """Mean share of hidden tests passed, over all samples that could be run."""


def evaluate(
    model: Annotated[
        str, typer.Argument(metavar="MODEL_OR_RUN", help="A run directory (its best checkpoint), a model, or `embedded`.")
    ],
    tasks: Annotated[str, typer.Option(help="As `data.train`: a file, hf:NAME, embedded:test.")] = "embedded:test",
    samples: Annotated[int, typer.Option(min=1, help="Samples per task.")] = 8,
    k: Annotated[
        list[int] | None, typer.Option("--k", min=1, help="Repeatable; without it 1 and the number of samples.")
    ] = None,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 is greedy, which needs one sample.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many tasks.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Change a setting; repeatable.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")] = False,
) -> None:
    """Sample answers to every task, run the tests, and estimate pass@k with a 95 % interval over tasks.

    Says on stderr when a run has trained on tasks that it is evaluated on.
    """
    samples = 1 if temperature == 0 else samples
    wanted = sorted(set(k or [1, samples]))
    if wanted[-1] > samples:
        raise UsageError(
            f"--k is {wanted[-1]}, but there are {samples} samples per task, and pass@k needs at least k. Raise --samples."
        )
    from evenkeel.tasks.load import load_tasks

    chosen = load_tasks(tasks, limit=limit, seed=seed, allow_custom_code=True, setting="--tasks").tasks
    config, origin = _subject(model, set_ or [])
    for warning in trained_on(config, chosen) if origin is not None else ():
        typer.echo(f"warning: {plain_text(warning)}", err=True)
    found = _measure(config, origin, chosen, samples, temperature, seed)
    _report(found, wanted, origin.path.name if origin is not None else None, json=json)


def _subject(name: str, overrides: list[str]) -> tuple[RunConfig, Checkpoint | None]:
    """A run's configuration and best checkpoint, or a plain model."""
    from evenkeel.config.load import apply_overrides, load_config

    if Path(name, "run.db").is_file():
        from evenkeel.train.export import trained_checkpoint
        from evenkeel.train.session import config_of

        return apply_overrides(config_of(Path(name)), overrides), trained_checkpoint(Path(name))
    return load_config(None, [f"model.name={name}", *overrides]), None


def trained_on(config: RunConfig, tasks: Sequence[Task]) -> list[str]:
    """What a run's configuration says against these tasks as a measure of it. Code that it names is not imported."""
    from evenkeel.tasks.benchmarks import overlap
    from evenkeel.tasks.load import load_tasks

    data = config.data
    try:
        train = load_tasks(
            data.train, skip_bad_rows=data.skip_bad_rows, limit=data.max_train_samples, seed=config.training.seed
        ).tasks
    except UsageError as error:
        return [f"Whether the run has trained on these tasks was not checked: its train tasks cannot be loaded. {error}"]
    return overlap(train, tasks)


def _measure(
    config: RunConfig, origin: Checkpoint | None, tasks: Sequence[Task], samples: int, temperature: float, seed: int
) -> Measurement:
    from rich.console import Console
    from rich.progress import Progress

    from evenkeel.config.stages import evaluation_sampling
    from evenkeel.distributed.world import World
    from evenkeel.records import Outcome
    from evenkeel.reward.score import Scorer
    from evenkeel.reward.tests import TestsReward
    from evenkeel.rollout.hf import HFEngine
    from evenkeel.sandbox.pool import open_sandbox
    from evenkeel.train.build import policy_at, set_threads
    from evenkeel.train.evaluate import evaluate as evaluate_tasks

    set_threads(config.training.num_threads)
    policy = policy_at(config, origin)
    settings = evaluation_sampling(config, temperature=temperature, num_samples=samples)
    with open_sandbox(config.sandbox) as sandbox, Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("evaluating", total=len(tasks))
        scorer = Scorer(sandbox, (TestsReward(1.0, "share"),))
        groups = evaluate_tasks(
            HFEngine(policy), scorer, tasks, settings, seed=seed, world=World(cpu=policy.device.type == "cpu"),
            on_progress=lambda count: progress.advance(bar, count),
        )  # fmt: skip
    scored = {group.task.task_id: [s.verdict for s in group.samples if s.verdict.scored] for group in groups}
    counts = tuple(
        TaskCount(task_id, samples, sum(verdict.outcome is Outcome.PASSED for verdict in verdicts))
        for task_id, verdicts in scored.items()
        if len(verdicts) == samples
    )
    if not counts:
        raise RunError("The sandbox could not run all samples of any task, so nothing was measured. See: evenkeel sandbox")
    if len(counts) < len(tasks):
        left_out = f"{len(tasks) - len(counts)} of {len(tasks)} tasks"
        typer.echo(f"{left_out} are left out: the sandbox could not run all their samples.", err=True)
    shares = [verdict.share for verdicts in scored.values() for verdict in verdicts]
    return Measurement(counts, sum(shares) / len(shares))


def _report(found: Measurement, wanted: Sequence[int], checkpoint: str | None, *, json: bool) -> None:
    from evenkeel.metrics.pass_at_k import pass_at_k

    counts = [(task.samples, task.solved) for task in found.tasks]
    results = [pass_at_k(counts, k) for k in wanted]
    if json:
        estimates = {"checkpoint": checkpoint, "pass_at_k": [asdict(result) for result in results]}
        typer.echo(json_format.dumps(estimates | asdict(found), indent=2))
        return
    if checkpoint is not None:
        typer.echo(f"measured at {checkpoint}")
    for result in results:
        interval = "" if result.low is None else f"  [{result.low:.3f}, {result.high:.3f}]"
        typer.echo(f"pass@{result.k:<4} {result.mean:.3f}{interval}  over {result.num_tasks} tasks")
    typer.echo(f"tests    {found.tests_mean:.3f}  mean share of hidden tests passed")
