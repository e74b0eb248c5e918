"""Runs of the real command on the embedded student, small enough for a test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SMALL = {
    "data.max_train_samples": 24, "data.max_validation_samples": 12, "training.num_epochs": 2, "training.batch_size": 8,
    "training.gradient_accumulation_steps": 4, "rlaif.num_samples_per_prompt": 4, "rlaif.max_new_tokens": 48,
    "training.num_threads": 1, "training.checkpoint_every_steps": 2, "evaluation.num_samples": 2,
    "evaluation.baseline_temperatures": "[]", "sandbox.workers": 1,
}  # fmt: skip
"""8 tasks x 4 samples a step, 3 steps an epoch, 6 in all."""


def arguments(out: Path | None = None, **changes) -> list[str]:
    """`evenkeel train` with the small settings; keys of `changes` write `.` as `__`."""
    settings = SMALL | {key.replace("__", "."): value for key, value in changes.items()}
    sets = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    return ["train", *sets, *(["--out", str(out)] if out else [])]


def start(command: list[str], **keywords) -> subprocess.Popen:
    return _popen([sys.executable, "-m", "evenkeel.cli", *command], **keywords)


def evenkeel(command: list[str], *, expect: int = 0, **keywords) -> subprocess.CompletedProcess:
    return _finished(start(command, **keywords), expect)


def run_python(command: list[str]) -> subprocess.CompletedProcess:
    """Any command, expected to succeed."""
    return _finished(_popen(command), 0)


def _popen(command: list[str], **keywords) -> subprocess.Popen:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment} | keywords
    return subprocess.Popen(command, **pipes)


def _finished(process: subprocess.Popen, expect: int) -> subprocess.CompletedProcess:
    out, err = process.communicate(timeout=280)
    assert process.returncode == expect, f"exit code {process.returncode}\n{out}\n{err}"
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)
