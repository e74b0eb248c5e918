"""`evenkeel plan CONFIG`: what the configuration will really do, said before it does it."""

from __future__ import annotations

import json as json_format
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenkeel.cli.text import plain_text, safe_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from evenkeel.config.plan import RunPlan
    from evenkeel.config.schema import RunConfig
    from evenkeel.records import Task

LETTERS_PER_TOKEN = 3.0
"""Of code, roughly: enough for a memory estimate, without a tokenizer."""


def plan(
    config: Annotated[Path | None, typer.Argument(help="YAML file; without one, the embedded default.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Change a setting; repeatable.")
    ] = None,
    tasks: Annotated[int | None, typer.Option(min=1, help="Plan for so many train tasks instead of reading the data.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")] = False,
) -> None:
    """Optimizer steps, learning rates, tokens, memory, and contradictions in words. Nothing is trained.

    Exit code 2 when the configuration is impossible; a warning alone is 0.
    """
    from evenkeel.config.load import load_config
    from evenkeel.config.named import trusted

    settings = load_config(config, set_ or [])
    run_plan = _plan(settings, tasks, allow_custom_code=trusted(config))
    if json:
        typer.echo(json_format.dumps(asdict(run_plan), indent=2))
    else:
        from rich.console import Console

        show_plan(Console(emoji=False, highlight=False), settings, run_plan)
    if any(finding.severity == "impossible" for finding in run_plan.findings):
        raise typer.Exit(2)


def _plan(config: RunConfig, num_tasks: int | None, *, allow_custom_code: bool) -> RunPlan:
    """With the tasks themselves where they are to be read, so that prompts count."""
    limit = config.data.max_train_samples
    if num_tasks is not None:
        from evenkeel.config.memory import find_model_facts
        from evenkeel.config.plan import plan as plan_run

        return plan_run(
            config, num_train_tasks=min(num_tasks, limit or num_tasks), model_facts=find_model_facts(config.model.name)
        )
    from evenkeel.tasks.load import load_tasks

    arguments: dict[str, Any] = {
        "skip_bad_rows": config.data.skip_bad_rows,
        "seed": config.training.seed,
        "allow_custom_code": allow_custom_code,
    }
    train = load_tasks(config.data.train, limit=limit, **arguments).tasks
    validation = ()
    if config.data.validation is not None:
        limit = config.data.max_validation_samples
        validation = load_tasks(config.data.validation, limit=limit, setting="data.validation", **arguments).tasks
    return make_plan(config, train, validation)


def make_plan(config: RunConfig, train: Sequence[Task], validation: Sequence[Task]) -> RunPlan:
    """The plan for these tasks."""
    from evenkeel.config.memory import find_model_facts
    from evenkeel.config.plan import plan as plan_run

    letters = sum(len(task.prompt) for task in train) / max(1, len(train))
    return plan_run(
        config,
        num_train_tasks=len(train),
        num_validation_tasks=len(validation),
        mean_prompt_tokens=letters / LETTERS_PER_TOKEN,
        model_facts=find_model_facts(config.model.name),
    )


# --------------------------------------------------------------------------- shown to a person


def show_plan(console: Console, config: RunConfig, run_plan: RunPlan) -> None:
    """The plan as tables and sentences; `train` shows the same before it starts."""
    console.print(_figures(config, run_plan))
    console.print(_rates(config, run_plan))
    for finding in run_plan.findings:
        colour = "red" if finding.severity == "impossible" else "yellow"
        console.print(f"[{colour}]{finding.severity}[/{colour}]: {safe_text(finding.message)}")
    if not run_plan.findings:
        console.print("No contradictions found.")


def _figures(config: RunConfig, run_plan: RunPlan) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(title="The run", show_header=False, title_justify="left")
    for name, value in figures(config, run_plan):
        table.add_row(name, Text(plain_text(value)))  # paths come from the file: no markup in them
    return table


def figures(config: RunConfig, run_plan: RunPlan) -> list[tuple[str, str]]:
    """Each derived figure with the arithmetic that it comes from."""
    training, rlaif, length = config.training, config.rlaif, run_plan.length
    return [
        ("student", f"{config.model.name}, {_method(config)}"),
        ("train tasks", f"{length.num_train_tasks} from {config.data.train}; an epoch is one pass over them"),
        (
            "per rollout",
            f"{length.tasks_per_rollout} tasks x {rlaif.num_samples_per_prompt} samples = {length.completions_per_step} "
            "completions "
            f"(groups are formed first, then packed into {run_plan.micro_batches_per_step} micro-batches of up to "
            f"{training.batch_size})",
        ),
        ("samples per optimizer step", f"{length.completions_per_step}"),
        (
            "optimizer steps",
            f"{length.steps_per_epoch} an epoch, {length.total_steps} in {training.num_epochs} epochs "
            f"({length.rollouts_per_epoch} rollouts x {training.updates_per_rollout} updates an epoch)",
        ),
        ("schedule", f"{training.lr_scheduler_type}, warmup {_warmup(run_plan)}"),
        ("learning rate", f"{training.learning_rate:.3g} asked for, {run_plan.peak_learning_rate:.3g} reached"),
        ("tokens sampled", f"up to {run_plan.sampled_tokens_per_epoch:,} an epoch, {rlaif.max_new_tokens} a completion"),
        ("tokens of prompts", _an_epoch("about", run_plan.prompt_tokens_per_epoch)),
        ("tokens of validation", _an_epoch("up to", run_plan.validation_tokens_per_epoch)),
        ("memory", _memory(run_plan)),
    ]


def _method(config: RunConfig) -> str:
    return f"LoRA of rank {config.model.lora_r}" if config.model.method == "lora" else "all weights"


def _an_epoch(how: str, tokens: int | None) -> str:
    return "unknown: the tasks were not read" if tokens is None else f"{how} {tokens:,} an epoch"


def _warmup(run_plan: RunPlan) -> str:
    if run_plan.warmup_steps == 0:
        return "none"
    total = run_plan.length.total_steps
    if run_plan.warmup_steps > total:
        done = 100 * total / run_plan.warmup_steps
        return f"{run_plan.warmup_steps} steps, longer than the run: it ends at {done:.0f} % of its warmup"
    return f"{run_plan.warmup_steps} steps ({100 * run_plan.warmup_share:.0f} % of the run)"


def _memory(run_plan: RunPlan) -> str:
    memory = run_plan.memory
    if memory is None:
        return "unknown: the sizes of this model are not on this machine"
    return (
        f"about {_size(memory.total)} in {memory.assumed_dtype}: weights {_size(memory.weights)}, trainable state "
        f"{_size(memory.trainable)}, "
        f"and the larger of a micro-batch's update ({_size(memory.update)}) and sampling ({_size(memory.sampling)})"
    )


def _size(gib: float) -> str:
    return f"{gib:.1f} GiB" if gib >= 1 else f"{gib * 1024:.0f} MiB"


def _rates(config: RunConfig, run_plan: RunPlan) -> Table:
    from rich.table import Table

    table = Table(title="Learning rate at the end of each epoch", title_justify="left")
    for heading in ("epoch", "optimizer steps done", "applied in the last step", "the schedule goes on with"):
        table.add_column(heading, justify="right")
    for epoch in run_plan.epochs:
        table.add_row(
            str(epoch.epoch), str(epoch.steps_done), f"{epoch.last_learning_rate:.3g}", f"{epoch.next_learning_rate:.3g}"
        )
    return table
