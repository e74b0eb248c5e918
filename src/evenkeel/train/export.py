"""`evenkeel export --merged`: a plain transformers model with the adapter folded in."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import torch

from evenkeel.config.schema import RunConfig
from evenkeel.errors import UsageError
from evenkeel.metrics.view import open_run
from evenkeel.train.build import policy_at
from evenkeel.train.checkpoint import Checkpoint, damage, list_checkpoints, newest_intact
from evenkeel.train.session import config_of


def trained_checkpoint(directory: Path) -> Checkpoint:
    """The best checkpoint of a run, or the newest intact one where the best is unknown or damaged."""
    checkpoints = directory / "checkpoints"
    with closing(open_run(directory)) as view:
        best_step = view.facts().get("best_step")
    for checkpoint in list_checkpoints(checkpoints):
        if checkpoint.step == best_step and damage(checkpoint.path) is None:
            return checkpoint
    return newest_intact(checkpoints, warn=lambda message: None)


def export_merged(directory: Path, target: Path) -> Checkpoint:
    """Write weights, configuration and tokenizer; transformers alone loads them, and computes the same logits. Returns the
    checkpoint that was taken.

    The adapter is folded in float32 and the result is rounded once to the base's type. A base that was loaded in 4 bit is
    loaded in full for this.
    """
    if target.exists() and any(target.iterdir()):
        raise UsageError(f"{target} exists and is not empty. Give a new directory with --merged.")
    config = config_of(directory)
    origin = trained_checkpoint(directory)
    policy = policy_at(_at_full_precision(config), origin)
    dtype = torch.bfloat16 if config.model.dtype == "bfloat16" else None
    model = policy.model.merge_and_unload() if policy.uses_adapter else policy.model
    model = model.to(dtype) if dtype else model
    target.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(target, safe_serialization=True)
    policy.tokenizer.save_pretrained(target)
    return origin


def _at_full_precision(config: RunConfig) -> RunConfig:
    model = config.model.model_copy(update={"quantization": "none", "dtype": "float32"})
    return config.model_copy(update={"model": model, "training": config.training.model_copy(update={"device": "cpu"})})
