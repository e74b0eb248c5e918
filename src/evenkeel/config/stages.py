"""The one map from the sections that users write to the sections that stages read.

Users think in `training`, `rlaif`, `model`; a stage is handed only what it needs, as a frozen dataclass that imports
neither pydantic nor torch. Read it with the walk: choose, sample, score, credit, update.
"""

from __future__ import annotations

from dataclasses import dataclass

from evenkeel.config.schema import QuantileThreshold, RunConfig


@dataclass(frozen=True)
class CurriculumSettings:
    enabled: bool
    num_epochs: int
    seed: int


@dataclass(frozen=True)
class SamplingSettings:
    """How one batch of completions is drawn."""

    num_samples: int
    """Completions per task."""
    temperature: float
    """0 means greedy (used by evaluation only)."""
    max_new_tokens: int
    top_p: float = 1.0
    top_k: int | None = None


@dataclass(frozen=True)
class ScoreSettings:
    tests_weight: float
    tests_mode: str
    """`share` or `all`."""
    teacher_weight: float
    format_weight: float
    rubric: dict[str, float]
    """Dimension -> weight: correctness, quality, efficiency, documentation."""
    custom: dict[str, float]
    """`module:name` -> weight."""


@dataclass(frozen=True)
class ShapingSettings:
    enabled: bool
    correctness_bonus: float
    quality_bonus: float


@dataclass(frozen=True)
class CreditSettings:
    advantage: str
    """`group`, `centred`, `rloo`, `batch` or `none`."""
    reward_weight: float
    """With `none`: advantage = reward_weight * reward."""
    threshold: float | None
    """Samples with a lower reward do not train."""
    threshold_quantile: float | None
    """Samples below this quantile of the step's rewards do not train."""
    keep_best: int | None
    """Only so many best samples of each group train; None: all."""
    mask_truncated: bool
    overlong_penalty: float
    """Subtracted from a truncated sample's reward, for the advantages only."""


@dataclass(frozen=True)
class ObjectiveSettings:
    loss: str
    clip_low: float
    clip_high: float
    kl_penalty: float
    kl_estimator: str
    """`k1` (reward only), `k2` or `k3`."""
    kl_placement: str
    """`loss` or `reward`."""
    target_kl: float | None
    entropy_bonus: float
    temperature: float
    """Of sampling: log-probabilities in the update use the same."""
    max_new_tokens: int
    """The constant length that `dr_grpo` divides by."""


@dataclass(frozen=True)
class ScheduleSettings:
    scheduler: str
    learning_rate: float
    warmup_steps: int | None
    """None: warmup_ratio counts."""
    warmup_ratio: float | None
    num_cycles: float | None
    power: float | None
    lr_end: float | None
    timescale: int | None


def curriculum_settings(config: RunConfig) -> CurriculumSettings:
    return CurriculumSettings(config.rlaif.curriculum_learning, config.training.num_epochs, config.training.seed)


def sampling_settings(config: RunConfig) -> SamplingSettings:
    rlaif = config.rlaif
    return SamplingSettings(
        rlaif.num_samples_per_prompt, rlaif.generation_temperature, rlaif.max_new_tokens, rlaif.top_p, rlaif.top_k
    )


def evaluation_sampling(
    config: RunConfig, *, temperature: float | None = None, num_samples: int | None = None
) -> SamplingSettings:
    """Held-out sampling; a temperature of 0 is greedy, which needs one sample."""
    settings = config.evaluation
    temperature = settings.temperature if temperature is None else temperature
    count = 1 if temperature == 0 else (num_samples or settings.num_samples)
    return SamplingSettings(count, temperature, config.rlaif.max_new_tokens, settings.top_p, None)


def score_settings(config: RunConfig) -> ScoreSettings:
    reward = config.reward
    return ScoreSettings(
        reward.tests, reward.tests_mode, reward.teacher, reward.format, config.teacher.weights.model_dump(), dict(reward.custom)
    )


def shaping_settings(config: RunConfig) -> ShapingSettings:
    shaping = config.rlaif.reward_shaping
    return ShapingSettings(shaping.enabled, shaping.correctness_bonus, shaping.quality_bonus)


def credit_settings(config: RunConfig) -> CreditSettings:
    rlaif = config.rlaif
    threshold = rlaif.reward_threshold
    quantile = threshold.quantile if isinstance(threshold, QuantileThreshold) else None
    lowest_reward = None if quantile is not None else threshold
    keep_best = {"all": None, "best": 1, "top_k": rlaif.top_k_samples}[rlaif.train_on]
    return CreditSettings(
        rlaif.advantage, rlaif.reward_weight, lowest_reward, quantile, keep_best, rlaif.mask_truncated, rlaif.overlong_penalty,
    )  # fmt: skip


def objective_settings(config: RunConfig) -> ObjectiveSettings:
    rlaif = config.rlaif
    return ObjectiveSettings(
        rlaif.loss, rlaif.clip_low, rlaif.clip_high, rlaif.kl_penalty, rlaif.kl_estimator, rlaif.kl_placement, rlaif.target_kl,
        rlaif.entropy_bonus, rlaif.generation_temperature, rlaif.max_new_tokens,
    )  # fmt: skip


def schedule_settings(config: RunConfig) -> ScheduleSettings:
    training = config.training
    arguments = training.lr_scheduler_kwargs
    warmup_steps = None if training.warmup_ratio is not None else training.warmup_steps
    return ScheduleSettings(
        training.lr_scheduler_type, training.learning_rate, warmup_steps, training.warmup_ratio,
        arguments.num_cycles, arguments.power, arguments.lr_end, arguments.timescale,
    )  # fmt: skip
