"""Checkpoints: safetensors and JSON, written aside and renamed, so that one is either whole or not there.

    checkpoints/step-000040/
        adapter/ (or model/)      weights, as peft (or transformers) writes them
        optimizer.safetensors     AdamW's moments, by parameter name
        state.json                position, curriculum, KL controller, shaping, early stopping, seed, threads
        manifest.json             written last: format version, size and SHA-256 of every file

Nothing is ever unpickled. A checkpoint whose files do not match its manifest is passed over for the one before, and said so.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from evenkeel.errors import RunError, UsageError
from evenkeel.policy.model import Policy

FORMAT = 1
STEP_CHECKPOINTS_KEPT = 2
"""Besides those at the ends of epochs: the newest, and one to fall back on."""


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint on disk."""

    path: Path
    step: int
    epoch: int
    """Epochs finished."""
    ends_epoch: bool

    @property
    def weights(self) -> Path:
        return self.path / "adapter" if (self.path / "adapter").is_dir() else self.path / "model"

    def state(self) -> dict[str, Any]:
        return json.loads((self.path / "state.json").read_text())


def save(
    directory: Path,
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    state: dict[str, Any],
    *,
    step: int,
    epoch: int,
    ends_epoch: bool,
) -> Checkpoint:
    """Write checkpoints/step-NNNNNN; `directory` is the run's `checkpoints`.

    Raises RunError when the disk is full or the directory cannot be written; what was there before stays whole.
    """
    target = directory / f"step-{step:06d}"
    aside = directory / f".{target.name}.{os.getpid()}"
    try:
        directory.mkdir(exist_ok=True)
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        _write_parts(aside, policy, optimizer, state)
        files = {str(file.relative_to(aside)): _fingerprint(file) for file in sorted(aside.rglob("*")) if file.is_file()}
        manifest = {"format": FORMAT, "step": step, "epoch": epoch, "ends_epoch": ends_epoch, "files": files}
        _write_text(aside / "manifest.json", json.dumps(manifest, indent=1))
        _sync_tree(aside)
        shutil.rmtree(target, ignore_errors=True)
        os.rename(aside, target)
        _sync(directory)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(aside, ignore_errors=True)
        what = "the disk is full" if _is_full(error) else str(error)
        raise RunError(
            f"The checkpoint of step {step} could not be written to {directory}: {what}. "
            "The ones before it are whole: free some space (or lower `training.keep_checkpoints`) and go on with --resume."
        ) from error
    return Checkpoint(target, step, epoch, ends_epoch)


def _is_full(error: Exception) -> bool:
    """safetensors has an error of its own, with the number in its text."""
    number = error.errno if isinstance(error, OSError) else int((re.search(r"os error (\d+)", str(error)) or [0, 0])[1])
    return number in (errno.ENOSPC, errno.EDQUOT)


def _write_parts(aside: Path, policy: Policy, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    weights = aside / ("adapter" if policy.uses_adapter else "model")
    policy.model.save_pretrained(weights, safe_serialization=True)
    save_file(optimizer_tensors(policy, optimizer), aside / "optimizer.safetensors")
    _write_text(aside / "state.json", json.dumps(state))


def optimizer_tensors(policy: Policy, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """AdamW's state as named tensors: `<parameter>/<exp_avg | exp_avg_sq | step>`. Empty before the first step."""
    return {
        f"{name}/{key}": value.detach().cpu().contiguous()
        for name, parameter in policy.trainable()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def load_into(checkpoint: Checkpoint, policy: Policy, optimizer: torch.optim.Optimizer) -> bool:
    """Put weights and moments of the checkpoint into a policy that was loaded with `model.adapter` (or `model.name`)
    pointing at `checkpoint.weights`. Returns False when the shapes changed (a grown adapter): the moments then start anew."""
    tensors = load_file(checkpoint.path / "optimizer.safetensors")
    for name, parameter in policy.trainable():
        moments = {key.rsplit("/", 1)[1]: value for key, value in tensors.items() if key.rsplit("/", 1)[0] == name}
        if not moments:
            continue
        if moments["exp_avg"].shape != parameter.shape:
            optimizer.state.clear()
            return False
        optimizer.state[parameter] = {
            key: value if key == "step" else value.to(parameter.device, parameter.dtype) for key, value in moments.items()
        }
    return True


def list_checkpoints(directory: Path) -> list[Checkpoint]:
    """All with a readable manifest, oldest first. Their files are not verified here."""
    found = []
    for path in sorted(directory.glob("step-*")):
        try:
            manifest = json.loads((path / "manifest.json").read_text())
            found.append(Checkpoint(path, manifest["step"], manifest["epoch"], manifest["ends_epoch"]))
        except (OSError, ValueError, KeyError):
            continue
    return found


def newest_intact(directory: Path, warn: Callable[[str], None]) -> Checkpoint:
    """The newest checkpoint whose files match its manifest; each that does not is reported through `warn`."""
    for path in sorted(directory.glob("step-*"), reverse=True):
        problem = damage(path)
        if problem is None:
            manifest = json.loads((path / "manifest.json").read_text())
            return Checkpoint(path, manifest["step"], manifest["epoch"], manifest["ends_epoch"])
        warn(f"Checkpoint {path.name} is damaged ({problem}); the one before it is used.")
    raise UsageError(f"{directory} holds no intact checkpoint, so there is nothing to go on from. Start the run anew.")


def damage(path: Path) -> str | None:
    """What is wrong with a checkpoint, or None."""
    try:
        manifest = json.loads((path / "manifest.json").read_text())
        version, files = manifest["format"], manifest["files"]
    except OSError:
        return "its manifest.json is missing"
    except (ValueError, KeyError, TypeError):
        return "its manifest.json cannot be read"
    if version != FORMAT:
        return f"its format is {version}, this version reads {FORMAT}"
    for name, fingerprint in files.items():
        if not (path / name).is_file():
            return f"{name} is missing"
        if _fingerprint(path / name) != fingerprint:
            return f"{name} does not match its checksum"
    return None


def prune(directory: Path, *, keep: int, best_step: int) -> None:
    """Keep the last `keep` ends of epochs, the best one, and the newest STEP_CHECKPOINTS_KEPT of any kind."""
    checkpoints = list_checkpoints(directory)
    kept = {c.step for c in [c for c in checkpoints if c.ends_epoch][-keep:]} | {
        c.step for c in checkpoints[-STEP_CHECKPOINTS_KEPT:]
    }
    for checkpoint in checkpoints:
        if checkpoint.step not in kept | {best_step}:
            shutil.rmtree(checkpoint.path)


def _fingerprint(file: Path) -> dict[str, Any]:
    with file.open("rb") as stream:
        return {"bytes": file.stat().st_size, "sha256": hashlib.file_digest(stream, "sha256").hexdigest()}


def _write_text(path: Path, text: str) -> None:
    path.write_text(text + "\n")


def _sync_tree(directory: Path) -> None:
    for path in [*directory.rglob("*"), directory]:
        _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
