"""Settings that another setting makes meaningless: moving one of them would change nothing, so it is an error, not a no-op.

A setting counts as moved by its value, not by whether it was written: a resolved configuration writes every setting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from evenkeel.config.schema import RunConfig


def meaningless(config: RunConfig) -> Iterator[str]:
    """One message for each setting that was moved from its default and has no effect."""
    for rule in MEANINGLESS:
        if rule.when(config):
            yield from _moved_settings(config, rule)


@dataclass(frozen=True)
class Meaningless:
    """Settings that change nothing as long as `when` holds; moving one from its default is an error."""

    settings: tuple[str, ...]
    when: Callable[[RunConfig], bool]
    reason: str
    """Why, after "but"."""
    cure: str
    """The other way out, after "Remove it, or"."""


MEANINGLESS = (
    Meaningless(
        ("training.lr_scheduler_kwargs.num_cycles",),
        lambda c: c.training.lr_scheduler_type not in ("cosine", "cosine_with_restarts"),
        "only the schedules `cosine` and `cosine_with_restarts` have cycles",
        "set `training.lr_scheduler_type` to one of them",
    ),
    Meaningless(
        ("training.lr_scheduler_kwargs.power", "training.lr_scheduler_kwargs.lr_end"),
        lambda c: c.training.lr_scheduler_type != "polynomial",
        "only the schedule `polynomial` has it",
        "set `training.lr_scheduler_type: polynomial`",
    ),
    Meaningless(
        ("training.lr_scheduler_kwargs.timescale",),
        lambda c: c.training.lr_scheduler_type != "inverse_sqrt",
        "only the schedule `inverse_sqrt` has it",
        "set `training.lr_scheduler_type: inverse_sqrt`",
    ),
    Meaningless(
        ("training.warmup_steps", "training.warmup_ratio"),
        lambda c: c.training.lr_scheduler_type == "constant",
        "the schedule `constant` has no warmup",
        "set `training.lr_scheduler_type: constant_with_warmup`",
    ),
    Meaningless(
        ("training.early_stopping.patience",),
        lambda c: not c.training.early_stopping.enabled,
        "early stopping is off",
        "set `training.early_stopping.enabled: true`",
    ),
    Meaningless(
        ("data.max_validation_samples",),
        lambda c: c.data.validation is None,
        "there are no validation tasks",
        "name them in `data.validation`",
    ),
    Meaningless(
        ("model.lora_r", "model.lora_alpha", "model.lora_dropout", "model.adapter", "model.quantization"),
        lambda c: c.model.method == "full",
        "`model.method: full` trains the weights themselves, without an adapter",
        "set `model.method: lora`",
    ),
    Meaningless(
        ("rlaif.reward_weight",),
        lambda c: c.rlaif.advantage != "none",
        "only `rlaif.advantage: none` multiplies by it",
        "set `rlaif.advantage: none`",
    ),
    Meaningless(
        ("rlaif.top_k_samples",),
        lambda c: c.rlaif.train_on != "top_k",
        "`rlaif.train_on` is not `top_k`",
        "set `rlaif.train_on: top_k`",
    ),
    Meaningless(
        ("rlaif.kl_estimator", "rlaif.kl_placement", "rlaif.target_kl"),
        lambda c: c.rlaif.kl_penalty == 0,
        "`rlaif.kl_penalty` is 0, and nothing moves it from there",
        "give `rlaif.kl_penalty` a value, for example 0.05",
    ),
    Meaningless(
        ("rlaif.clip_low", "rlaif.clip_high"),
        lambda c: c.rlaif.loss in ("reinforce", "best_of_n"),
        "this `rlaif.loss` has no importance ratio to clip",
        "choose another `rlaif.loss`",
    ),
    Meaningless(
        ("rlaif.advantage", "rlaif.overlong_penalty", "rlaif.reward_shaping.enabled"),
        lambda c: c.rlaif.loss == "best_of_n",
        "`rlaif.loss: best_of_n` uses no advantages",
        "choose another `rlaif.loss`",
    ),
    Meaningless(
        ("rlaif.reward_shaping.correctness_bonus", "rlaif.reward_shaping.quality_bonus"),
        lambda c: not c.rlaif.reward_shaping.enabled,
        "reward shaping is off",
        "set `rlaif.reward_shaping.enabled: true`",
    ),
    Meaningless(
        ("rlaif.dynamic_sampling.max_extra_tasks",),
        lambda c: not c.rlaif.dynamic_sampling.enabled,
        "dynamic sampling is off",
        "set `rlaif.dynamic_sampling.enabled: true`",
    ),
    Meaningless(("reward.tests_mode",), lambda c: c.reward.tests == 0, "`reward.tests` is 0", "give `reward.tests` a weight"),
    Meaningless(
        tuple(f"teacher.weights.{name}" for name in ("correctness", "quality", "efficiency", "documentation")),
        lambda c: c.reward.teacher == 0,
        "`reward.teacher` is 0",
        "give `reward.teacher` a weight",
    ),
)


def _moved_settings(config: RunConfig, rule: Meaningless) -> Iterator[str]:
    for path in rule.settings:
        value, default = _value_at(config, path), _value_at(RunConfig(), path)
        if value != default:
            yield (
                f"`{path}` is {_shown(value)}, but {rule.reason}: it would change nothing. Remove it (default "
                f"{_shown(default)}), or {rule.cure}."
            )


def _value_at(config: RunConfig, path: str) -> Any:
    value: Any = config
    for name in path.split("."):
        value = getattr(value, name)
    return value


def _shown(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
