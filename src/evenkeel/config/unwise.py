"""What a configuration asks that can be done and probably should not: warnings, never refusals.

Rules over the configuration alone, and rules that need the run's length. Each message carries the figures that it rests on.
The thresholds are starting points with a reason next to each, not laws.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from evenkeel.config.length import RunLength
from evenkeel.config.schedule import learning_rate_at, warmup_steps
from evenkeel.config.schema import RunConfig
from evenkeel.config.stages import schedule_settings

LORA_RATE_FLOOR = 2e-5
"""Usual peak rates of full fine-tuning end here; LoRA's best is about 10 times higher ("LoRA Without Regret", 2025)."""
FULL_RATE_CEILING = 1e-4
"""Reinforcement of all weights runs at 1e-6 to 1e-5 in published recipes. The embedded student, a thousand times smaller, is
exempt."""
WARMUP_SHARE = 0.3
FEW_STEPS = 10
FEW_COMPLETIONS = 32
"""Fewer per step make a noisy gradient."""
TEMPERATURES = (0.6, 1.3)
STALE_UPDATES = 4
STRONG_KL = 1.0
TINY_CLIP = 0.05
"""A policy gradient's norm is rarely below it, so every step would be scaled down: the clip would be the learning rate."""
GSPO_CLIP = 0.05
"""A sequence's mean ratio moves by thousandths; the paper clips at 3e-4 and 4e-4."""


def unwise(config: RunConfig, length: RunLength | None = None) -> Iterator[str]:
    """All warnings; those about steps and warmup only where the number of tasks is known."""
    for rule in RULES:
        yield from rule(config)
    if length is not None:
        for rule in LENGTH_RULES:
            yield from rule(config, length)


# --------------------------------------------------------------------------- the configuration alone


def _learning_rate(config: RunConfig) -> Iterator[str]:
    rate = config.training.learning_rate
    if config.model.method == "lora" and rate <= LORA_RATE_FLOOR:
        yield (
            f"`training.learning_rate` is {rate:g}, a rate of full fine-tuning: LoRA's best is about 10 times higher. Try "
            f"{rate * 10:g}, and watch the KL to the base."
        )
    if config.model.method == "full" and rate > FULL_RATE_CEILING and config.model.name != "embedded":
        yield (
            f"`training.learning_rate` is {rate:g} with `model.method: full`: full fine-tuning usually wants 1e-6 to 1e-5. "
            "Lower it, or train an adapter (`model.method: lora`)."
        )


def _cycles(config: RunConfig) -> Iterator[str]:
    kind, cycles = config.training.lr_scheduler_type, config.training.lr_scheduler_kwargs.num_cycles
    if kind == "cosine" and cycles is not None and cycles == int(cycles):
        yield (
            f"`cosine` with `num_cycles: {cycles:g}` ends at its peak: it goes down and up again {cycles:g} times, and is no "
            "faster decay. To end at 0 use 0.5 (the default), 1.5, ...; for a faster decay use `linear` and fewer epochs."
        )
    if kind == "cosine_with_restarts" and cycles is not None and cycles > 1:
        yield (
            f"`cosine_with_restarts` with `num_cycles: {cycles:g}` jumps back to the peak rate {_jumps(cycles)} times. It is "
            "no faster decay, and every jump can undo what was learnt at the low rate."
        )


def _jumps(cycles: float) -> int:
    """Restarts within the run: 2 cycles have one, 2.5 have two."""
    return int(cycles) - (1 if cycles == int(cycles) else 0)


def _sampling(config: RunConfig) -> Iterator[str]:
    rlaif = config.rlaif
    low, high = TEMPERATURES
    if rlaif.generation_temperature < low:
        yield (
            f"`rlaif.generation_temperature` is {rlaif.generation_temperature:g}: samples of one task become alike, and "
            "equal rewards teach nothing. Stay near 1."
        )
    if rlaif.generation_temperature > high:
        yield (
            f"`rlaif.generation_temperature` is {rlaif.generation_temperature:g}: most samples become noise, which also "
            "widens the gap between the mean and the best. Stay near 1."
        )
    if rlaif.top_p < 1 or rlaif.top_k is not None:
        yield (
            "`rlaif.top_p` or `rlaif.top_k` cuts the tail of the distribution: tokens outside it are never tried, so never "
            "learnt. The update keeps to the same set. The full distribution is the default."
        )
    if config.model.lora_dropout > 0:
        yield (
            f"`model.lora_dropout` is {config.model.lora_dropout:g}: the update then sees another policy than the one that "
            "sampled, and importance ratios are noisy. 0 keeps them exact."
        )


def _objective(config: RunConfig) -> Iterator[str]:
    rlaif, updates = config.rlaif, config.training.updates_per_rollout
    if rlaif.advantage == "none" and rlaif.loss != "best_of_n":
        yield (
            "`rlaif.advantage: none` has no baseline: every sample with a reward above 0 is pushed up, the bad ones too, "
            "and the gradient is noisy. `group` compares the samples of a task."
        )
    if rlaif.loss == "dr_grpo" and rlaif.advantage == "group":
        yield (
            "`rlaif.loss: dr_grpo` belongs with `rlaif.advantage: centred`; `group` brings back the division by the spread "
            "that it removes."
        )
    if rlaif.loss == "reinforce" and updates > 1:
        yield (
            f"`rlaif.loss: reinforce` has no importance ratio, but `training.updates_per_rollout` is {updates}: from the "
            "second update on the gradient is biased. Use 1 update, or a loss that clips (`grpo`)."
        )
    if rlaif.loss == "gspo" and updates > 1 and min(rlaif.clip_low, rlaif.clip_high) >= GSPO_CLIP:
        yield (
            f"`rlaif.loss: gspo` clips the mean ratio of a whole answer, which hardly moves: at clip_low {rlaif.clip_low:g} "
            f"and clip_high {rlaif.clip_high:g} nothing is ever clipped. The paper uses 3e-4 and 4e-4."
        )
    if updates == 1 and (rlaif.clip_low, rlaif.clip_high) != (0.2, 0.2) and rlaif.loss not in ("reinforce", "best_of_n"):
        yield (
            "`rlaif.clip_low` and `rlaif.clip_high` bound importance ratios, which are 1 as long as "
            "`training.updates_per_rollout` is 1: they have no effect in this run."
        )
    if updates > STALE_UPDATES:
        yield (
            f"`training.updates_per_rollout` is {updates}: late updates learn from samples of a policy that is long gone. 1 "
            "to 4 is usual; watch the clipped share."
        )
    if rlaif.kl_penalty >= STRONG_KL:
        yield (
            f"`rlaif.kl_penalty` is {rlaif.kl_penalty:g}: one nat of KL outweighs the whole reward, so the student will "
            "hardly move. 0 to 0.1 is usual."
        )
    if config.training.max_grad_norm < TINY_CLIP:
        yield (
            f"`training.max_grad_norm` is {config.training.max_grad_norm:g}: nearly every gradient is scaled down to it. "
            "Watch the norm before clipping and set it above its usual value."
        )


def _reward(config: RunConfig) -> Iterator[str]:
    rlaif = config.rlaif
    if isinstance(rlaif.reward_threshold, float) and rlaif.reward_threshold > rlaif.target_reward:
        yield (
            f"`rlaif.reward_threshold` is {rlaif.reward_threshold:g}, above `rlaif.target_reward` {rlaif.target_reward:g}: "
            "most "
            "samples would not train. {quantile: 0.25} leaves out the bottom quarter, whatever the level."
        )
    has_quality = config.reward.teacher > 0 and config.teacher.weights.quality > 0
    if rlaif.reward_shaping.enabled and rlaif.reward_shaping.quality_bonus > 0 and not has_quality:
        yield (
            "`rlaif.reward_shaping.quality_bonus` needs a quality score, and the teacher gives none: only the correctness "
            "bonus can be earned."
        )
    if config.data.validation is None and config.training.early_stopping.enabled:
        yield (
            "`data.validation` is null: early stopping cannot act and the gain cannot be measured. Name held-out tasks, or "
            "switch `training.early_stopping` off."
        )


RULES: tuple[Callable[[RunConfig], Iterator[str]], ...] = (_learning_rate, _cycles, _sampling, _objective, _reward)


# --------------------------------------------------------------------------- the configuration and its length


def _warmup(config: RunConfig, length: RunLength) -> Iterator[str]:
    settings, total = schedule_settings(config), length.total_steps
    warmup = warmup_steps(settings, total)
    if warmup >= total:
        peak = max(learning_rate_at(settings, step, total) for step in range(total))
        yield (
            f"The warmup ({warmup} steps) is not over when the run is ({total} steps): it ends at {100 * total / warmup:.0f} "
            f"% of its warmup, and the learning rate never exceeds {peak:.3g} of the {config.training.learning_rate:g} asked "
            "for. Warm up for 3 to 10 % of the run, or run longer."
        )
    elif warmup > WARMUP_SHARE * total:
        yield f"The warmup takes {warmup} of {total} optimizer steps ({100 * warmup / total:.0f} %). 3 to 10 % is usual."


def _steps(config: RunConfig, length: RunLength) -> Iterator[str]:
    if length.total_steps < FEW_STEPS:
        yield (
            f"The whole run has {length.total_steps} optimizer steps: too few for a policy to move. More tasks or epochs, or "
            "fewer completions per step (`training.batch_size` * `training.gradient_accumulation_steps`), give more."
        )
    if length.num_train_tasks < length.tasks_per_rollout:
        yield (
            f"There are {length.num_train_tasks} tasks, but an optimizer step wants {length.tasks_per_rollout}: every step "
            f"has only {length.num_train_tasks * config.rlaif.num_samples_per_prompt} completions."
        )


def _batch(config: RunConfig, length: RunLength) -> Iterator[str]:
    training = config.training
    asked = training.batch_size * training.gradient_accumulation_steps
    if asked != length.completions_per_step:
        yield (
            f"`training.batch_size` {training.batch_size} * `training.gradient_accumulation_steps` "
            f"{training.gradient_accumulation_steps} = {asked} is no multiple of `rlaif.num_samples_per_prompt` "
            f"{config.rlaif.num_samples_per_prompt}: groups are not split, so an optimizer step has "
            f"{length.completions_per_step} completions ({length.tasks_per_rollout} tasks)."
        )
    if length.completions_per_step < FEW_COMPLETIONS:
        yield (
            f"An optimizer step has {length.completions_per_step} completions: the gradient will be noisy. 64 to 512 is usual."
        )


LENGTH_RULES: tuple[Callable[[RunConfig, RunLength], Iterator[str]], ...] = (_warmup, _steps, _batch)
