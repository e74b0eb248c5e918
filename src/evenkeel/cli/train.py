"""`evenkeel train`: start a run, go on with one, or branch from one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evenkeel.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from evenkeel.config.schema import RunConfig
    from evenkeel.train.session import Ending


def train(
    config: Annotated[Path | None, typer.Argument(help="YAML file; without one, the embedded default.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Change a setting; repeatable.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run directory; without it runs/0001, runs/0002, ...")] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Go on with this run; with --from, branch from it.")
    ] = None,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="PLACE", help="With --resume: epoch:N, step:N, best or last.")
    ] = None,
    sft: Annotated[bool, typer.Option("--sft", help="Warm start on the reference solutions first.")] = False,
    skip_bad_rows: Annotated[
        bool, typer.Option("--skip-bad-rows", help="Go on without rows that are no tasks: data.skip_bad_rows=true.")
    ] = False,
    allow_code: Annotated[
        bool, typer.Option("--allow-code", help="With --resume: import what its config.yaml names as module:name.")
    ] = False,
) -> None:
    """Train a student. Ctrl-C finishes the step, saves and exits with 130; --resume goes on from there."""
    from rich.console import Console

    # Launched by accelerate or torchrun, only the first process talks.
    console = Console(emoji=False, quiet=os.environ.get("RANK", "0") != "0")
    overrides = [*(set_ or []), *(["data.skip_bad_rows=true"] if skip_bad_rows else [])]
    _refuse_contradictions(config, resume, from_, overrides, out, sft)
    ending = _train(console, config, overrides, out, resume, from_, sft=sft, allow_code=allow_code)
    _say_goodbye(console, ending)
    if ending.reason == "interrupted":
        raise typer.Exit(130)


def _train(
    console: Console, config: Path | None, overrides: list[str], out: Path | None, resume: Path | None, from_: str | None, *,
    sft: bool, allow_code: bool,
) -> Ending:  # fmt: skip
    from evenkeel.cli.progress import TerminalListener

    with console.status("loading", spinner="line"):
        from evenkeel.train import session
    if resume is None:
        from evenkeel.config.load import load_config
        from evenkeel.config.named import trusted

        settings = load_config(config, overrides)
        permissions = session.Permissions(custom_code=trusted(config))
        _show_plan(console, settings, session, permissions)
        with TerminalListener(console) as listener:
            return session.start(settings, out, listener, permissions, sft=sft)
    permissions = session.Permissions(custom_code=allow_code)
    with TerminalListener(console) as listener:
        if from_ is None:
            return session.resume(resume, listener, permissions)
        return session.branch(resume, from_, overrides, out, listener, permissions)


def _refuse_contradictions(
    config: Path | None, resume: Path | None, from_: str | None, overrides: list[str], out: Path | None, sft: bool
) -> None:
    if resume is None and from_ is not None:
        raise UsageError("--from names a place in a run, but no run is given. Add --resume RUN.")
    if resume is None:
        return
    if config is not None:
        raise UsageError(
            "--resume takes the configuration of the run, so no CONFIG may be given. "
            "To change settings, branch: --from last --set ..."
        )
    if sft:
        raise UsageError("--sft is for the beginning of a run, and --resume goes on with one. Leave one of them out.")
    if from_ is None and (overrides or out):
        raise UsageError(
            "--resume alone goes on unchanged in the same directory. "
            "To change settings or the directory, branch: add --from last."
        )


def _show_plan(console: Console, settings: RunConfig, session, permissions) -> None:
    """The plan, as `evenkeel plan` shows it; the impossible ends here."""
    from evenkeel.cli.plan import make_plan, show_plan
    from evenkeel.config.check import refuse_impossible

    refuse_impossible(settings)
    tasks = session.read_tasks(settings, allow_custom_code=permissions.custom_code)
    show_plan(console, settings, make_plan(settings, tasks.train, tasks.validation))
    if settings.teacher.kind == "offline" and settings.reward.teacher > 0:
        console.print(
            "teacher: offline. A deterministic rubric stands in for an API teacher; no sample leaves this machine.",
            style="dim",
            highlight=False,
        )


def _say_goodbye(console: Console, ending: Ending) -> None:
    run = ending.directory
    words = {
        "finished": f"Finished. The run is in {run}.",
        "early_stop": f"Stopped early. The run is in {run}; its best checkpoint is kept.",
        "interrupted": f"Interrupted and saved. Go on with: evenkeel train --resume {run}",
        "already_finished": f"{run} is finished already. To train on, branch: "
        f"evenkeel train --resume {run} --from last --set training.num_epochs=8",
    }
    console.print(words[ending.reason], markup=False, highlight=False, soft_wrap=True)
    if ending.reason in ("finished", "early_stop"):
        console.print(f"Read what it writes: evenkeel samples {run}", markup=False, highlight=False, soft_wrap=True)
