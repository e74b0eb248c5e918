"""Where a run lives, and that only one process writes it."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evenkeel.errors import RunError, UsageError

_LOCK_NAME = "run.lock"


def new_run_directory(out: Path | None, root: Path = Path("runs")) -> Path:
    """Make the directory of a new run: `out` itself, or without it the next number under `root` (runs/0001, ...)."""
    try:
        return _numbered(root) if out is None else _given(out)
    except OSError as error:
        raise UsageError(
            f"The run directory {out or root} cannot be made: {error.strerror}. Give a directory that you may write with --out."
        ) from error


@contextmanager
def removed_if_refused(directory: Path) -> Iterator[None]:
    """Around what may still be refused after a run's directory was made: a UsageError takes the directory away again."""
    try:
        yield
    except UsageError:
        shutil.rmtree(directory, ignore_errors=True)
        raise


@contextmanager
def lock(run_directory: Path) -> Iterator[None]:
    """Hold the run for writing. The kernel lets go of the lock when the process ends, however it ends."""
    path = run_directory / _LOCK_NAME
    try:
        # Not truncated on opening: the number in it is the holder's until we hold it.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise UsageError(f"{run_directory} cannot be written: {error.strerror}. Check its owner and permissions.") from error
    with os.fdopen(descriptor, "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(
                f"{run_directory} is being written by process {file.read().strip() or 'unknown'}. "
                "Wait until it ends, stop it, or train into another directory with --out."
            ) from error
        try:
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
        except OSError as error:
            raise RunError(f"{path} cannot be written: {error.strerror}. Free some space and try again.") from error
        yield


def _given(out: Path) -> Path:
    if out.exists() and not out.is_dir():
        raise UsageError(f"--out {out} is a file. Give a directory that does not exist yet, or leave --out away.")
    if out.is_dir() and any(out.iterdir()):
        raise UsageError(
            f"--out {out} exists and is not empty. Give another directory, leave --out away to get a numbered one, or go on "
            f"with the run in it: `evenkeel train --resume {out}`."
        )
    out.mkdir(parents=True, exist_ok=True)
    _require_writable(out)
    return out


def _numbered(root: Path) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    taken = [int(entry.name) for entry in root.iterdir() if entry.name.isdecimal()]
    number = max(taken, default=0) + 1
    while True:
        directory = root / f"{number:04d}"
        try:
            directory.mkdir()
        except FileExistsError:
            # Another run took the number between our look and now.
            number += 1
        else:
            return directory


def _require_writable(directory: Path) -> None:
    if not os.access(directory, os.W_OK | os.X_OK):
        raise PermissionError(13, "permission denied")
