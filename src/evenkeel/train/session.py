"""One call of `evenkeel train`: start a run, go on with one, or branch from one.

start    a new run directory, config.yaml, the walk from epoch 0
resume   the same directory, from its newest intact checkpoint; rows after it are dropped, grades stay
branch   a new directory with the parent's rows up to the checkpoint, the changed configuration, and the parent's name
"""

from __future__ import annotations

import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import quote

from evenkeel.config.check import refuse_impossible
from evenkeel.config.load import apply_overrides, dump_config, load_config
from evenkeel.config.schema import RunConfig
from evenkeel.distributed.world import World
from evenkeel.errors import UsageError
from evenkeel.metrics.rows import Event
from evenkeel.metrics.run_directory import lock, new_run_directory, removed_if_refused
from evenkeel.metrics.store import RunStore
from evenkeel.metrics.view import open_run
from evenkeel.policy.model import resolve_device
from evenkeel.train import loop
from evenkeel.train.build import Run, open_parts
from evenkeel.train.checkpoint import Checkpoint, damage, list_checkpoints, newest_intact
from evenkeel.train.epochs import measure_start, save_checkpoint
from evenkeel.train.listener import Listener
from evenkeel.train.sft import warm_start, with_references
from evenkeel.train.tasks import RunTasks, read_tasks, remarks


@dataclass(frozen=True)
class Ending:
    """How a call of `evenkeel train` ended."""

    directory: Path
    reason: str
    """`finished`, `early_stop`, `interrupted`, or `already_finished`."""


@dataclass(frozen=True)
class Permissions:
    """What the person at the keyboard allows."""

    custom_code: bool = False
    """Import what the configuration names as `module:name`."""


def start(config: RunConfig, out: Path | None, listener: Listener, permissions: Permissions, *, sft: bool = False) -> Ending:
    """Train from the beginning. What is refused is refused before anything is measured, and leaves no directory behind."""
    refuse_impossible(config)
    tasks = read_tasks(config, allow_custom_code=permissions.custom_code)
    if sft:
        with_references(tasks.train)
    with _new_run(config, tasks, out, listener, permissions) as run:
        run.store.set_facts({"sft": sft})
        for remark in remarks(tasks):
            run.note(remark)
        return _run(run, config, sft=sft)


def resume(directory: Path, listener: Listener, permissions: Permissions) -> Ending:
    """Go on with a run from its newest intact checkpoint."""
    config = config_of(directory)
    world = _world(config)
    tasks = read_tasks(config, allow_custom_code=permissions.custom_code)
    with _locked(directory, world):
        origin = _newest(directory, listener)
        if origin is not None and origin.state()["position"]["finished"]:
            return Ending(directory, "already_finished")
        with _opened(config, directory, tasks, world, listener, permissions, origin) as run:
            sft = bool(run.store.facts().get("sft", False))
            where = f"step {origin.step}" if origin else "the beginning: it was stopped before its first checkpoint"
            if world.is_main:
                run.store.truncate_after(origin.step if origin else -1, origin.epoch if origin else -1)
                run.store.record_event(Event("resumed", f"Resumed from {where}.", origin.step if origin else 0))
            listener.note(f"Going on from {where}.")
            return _run(run, config, sft=sft)


def branch(
    parent: Path, place: str, overrides: Sequence[str], out: Path | None, listener: Listener, permissions: Permissions
) -> Ending:
    """A new run that starts at a checkpoint of another, with changed settings. The parent is not touched."""
    config = apply_overrides(config_of(parent), overrides)
    refuse_impossible(config)
    origin = find_checkpoint(parent, place)
    tasks = read_tasks(config, allow_custom_code=permissions.custom_code)
    history = partial(_copy_history, parent, origin, overrides)
    with _new_run(config, tasks, out, listener, permissions, origin=origin, fill=history) as run:
        save_checkpoint(run, ends_epoch=origin.ends_epoch)
        return _run(run, config, sft=False)


def _run(run: Run, config: RunConfig, *, sft: bool) -> Ending:
    if run.position.epoch == 0:
        measure_start(run, then=(lambda: warm_start(run, config.sft)) if sft else None)
    return Ending(run.directory, loop.train(run))


def _world(config: RunConfig) -> World:
    return World(cpu=resolve_device(config.training.device).type == "cpu")


@contextmanager
def _new_run(
    config: RunConfig, tasks: RunTasks, out: Path | None, listener: Listener, permissions: Permissions, *,
    origin: Checkpoint | None = None, fill: Callable[[Path], None] = lambda directory: None,
) -> Iterator[Run]:  # fmt: skip
    """A run in a directory of its own, made and filled by the main process."""
    world = _world(config)
    directory = world.from_main(new_run_directory(out) if world.is_main else None)
    with ExitStack() as closing:
        with removed_if_refused(directory) if world.is_main else nullcontext():
            if world.is_main:
                dump_config(config, directory / "config.yaml")
                fill(directory)
            closing.enter_context(_locked(directory, world))
            run = closing.enter_context(_opened(config, directory, tasks, world, listener, permissions, origin))
        yield run


@contextmanager
def _opened(
    config: RunConfig, directory: Path, tasks: RunTasks, world: World, listener: Listener, permissions: Permissions,
    origin: Checkpoint | None,
) -> Iterator[Run]:  # fmt: skip
    with interruptible(listener) as stop_requested:
        parts = open_parts(
            config, directory, tasks.train, tasks.validation, world, listener=listener, stop_requested=stop_requested,
            origin=origin, allow_custom_code=permissions.custom_code,
        )  # fmt: skip
        with parts as run:
            yield run


def _locked(directory: Path, world: World) -> AbstractContextManager[None]:
    """The run is held by its main process, for all."""
    return lock(directory) if world.is_main else nullcontext()


# --------------------------------------------------------------------------- what is read


def config_of(directory: Path) -> RunConfig:
    if not (directory / "config.yaml").is_file() or not (directory / "run.db").is_file():
        raise UsageError(
            f"{directory} is no run directory: it holds no config.yaml and run.db. Give the directory that `train` printed."
        )
    return load_config(directory / "config.yaml", [])


def _newest(directory: Path, listener: Listener) -> Checkpoint | None:
    """None when the run was stopped before its first checkpoint."""
    checkpoints = directory / "checkpoints"
    return newest_intact(checkpoints, listener.note) if any(checkpoints.glob("step-*")) else None


def find_checkpoint(directory: Path, place: str) -> Checkpoint:
    """`epoch:N`: at the end of that epoch; `step:N`: at that step; `best`: of the best epoch; `last`: the newest."""
    kind, _, number = place.partition(":")
    found = list_checkpoints(directory / "checkpoints")
    wanted: list[Checkpoint] = []
    if kind == "epoch" and number.isdigit():
        wanted = [c for c in found if c.ends_epoch and c.epoch == int(number)]
    elif kind == "step" and number.isdigit():
        wanted = [c for c in found if c.step == int(number)]
    elif place == "best":
        with open_run(directory) as view:
            best_step = view.facts().get("best_step")
        wanted = [c for c in found if c.step == best_step]
    elif place == "last":
        wanted = found[-1:]
    else:
        raise UsageError(f"--from is `{place}`; write `epoch:N`, `step:N`, `best` or `last`.")
    if not wanted:
        there = ", ".join(f"epoch:{c.epoch}" if c.ends_epoch else f"step:{c.step}" for c in found) or "none"
        raise UsageError(
            f"{directory} has no checkpoint `{place}`; it has {there}. "
            "Choose one of these, or keep more with `training.keep_checkpoints`."
        )
    problem = damage(wanted[-1].path)
    if problem:
        raise UsageError(f"The checkpoint `{place}` of {directory} is damaged: {problem}. Choose another one.")
    return wanted[-1]


def _copy_history(parent: Path, origin: Checkpoint, overrides: Sequence[str], directory: Path) -> None:
    """The parent's rows up to the checkpoint, its best checkpoint so far, and where the branch comes from."""
    with (
        closing(sqlite3.connect(f"file:{quote(str(parent / 'run.db'))}?mode=ro", uri=True)) as source,
        closing(sqlite3.connect(directory / "run.db")) as target,
    ):
        source.backup(target)
    for best in list_checkpoints(parent / "checkpoints"):
        if best.step == origin.state()["position"]["best_step"] and damage(best.path) is None:
            shutil.copytree(best.path, directory / "checkpoints" / best.path.name)
    with closing(RunStore(directory / "run.db")) as store:
        store.truncate_after(origin.step, origin.epoch)
        store.set_facts(
            {"parent": {"run": str(parent), "checkpoint": origin.path.name, "step": origin.step, "overrides": list(overrides)}}
        )
        changes = ", ".join(overrides) or "nothing changed"
        store.record_event(Event("branched", f"Branched from {parent} at {origin.path.name}: {changes}.", origin.step))


@contextmanager
def interruptible(listener: Listener) -> Iterator[Callable[[], bool]]:
    """Ctrl-C asks the loop to finish its step and save; a second one ends at once. Yields the question whether it was asked."""
    asked = False

    def ask(number: int, frame: object) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        listener.note("Asked to stop: the step is finished and saved first. Once more stops at once; --resume goes on anyway.")

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
