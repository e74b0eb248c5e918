"""What a configuration asks that cannot be done.

Each rule yields one message per contradiction: what was asked, why it cannot be, what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from evenkeel.config.schema import RunConfig

COMPARES_SAMPLES = ("group", "rloo", "centred")


def impossible(config: RunConfig) -> Iterator[str]:
    """All contradictions of the configuration itself."""
    for rule in RULES:
        yield from rule(config)


def _samples_per_task(config: RunConfig) -> Iterator[str]:
    rlaif = config.rlaif
    count = rlaif.num_samples_per_prompt
    if count == 1 and rlaif.advantage in COMPARES_SAMPLES and rlaif.loss != "best_of_n":
        yield (
            f"`rlaif.num_samples_per_prompt` is 1, but `rlaif.advantage: {rlaif.advantage}` compares samples of the same "
            "task and needs at least 2. Raise `rlaif.num_samples_per_prompt`, or choose `rlaif.advantage: batch`."
        )
    if count == 1 and rlaif.train_on == "best":
        yield (
            "`rlaif.train_on: best` chooses among the samples of a task, but `rlaif.num_samples_per_prompt` is 1. Raise it, "
            "or set `rlaif.train_on: all`."
        )
    if rlaif.train_on == "top_k" and rlaif.top_k_samples >= count:
        yield (
            f"`rlaif.top_k_samples` is {rlaif.top_k_samples}, but `rlaif.num_samples_per_prompt` is {count}: nothing would "
            "be left out. Lower `rlaif.top_k_samples`, raise the samples, or set `rlaif.train_on: all`."
        )
    if rlaif.loss == "best_of_n" and rlaif.train_on == "all":
        yield (
            "`rlaif.loss: best_of_n` raises the likelihood of selected samples, but `rlaif.train_on: all` selects none: it "
            "would teach the bad ones too. Set `rlaif.train_on: best` or `top_k`."
        )


def _kl_placement(config: RunConfig) -> Iterator[str]:
    rlaif = config.rlaif
    if rlaif.kl_penalty == 0:
        return
    if rlaif.kl_placement == "loss" and rlaif.kl_estimator == "k1":
        yield (
            "`rlaif.kl_estimator: k1` with `rlaif.kl_placement: loss` has no gradient in expectation: it would add noise "
            "and hold nothing. Choose k2 or k3, or `rlaif.kl_placement: reward`."
        )
    if rlaif.kl_placement == "reward" and rlaif.kl_estimator != "k1":
        yield (
            f"`rlaif.kl_placement: reward` needs the unbiased `rlaif.kl_estimator: k1`, but it is {rlaif.kl_estimator}. Set "
            "k1, or `rlaif.kl_placement: loss`."
        )
    if rlaif.kl_placement == "reward" and rlaif.loss == "best_of_n":
        yield (
            "`rlaif.kl_placement: reward` acts through the advantages, and `rlaif.loss: best_of_n` uses none. Set "
            "`rlaif.kl_placement: loss` with k2 or k3."
        )


def _schedule(config: RunConfig) -> Iterator[str]:
    training = config.training
    if training.warmup_steps and training.warmup_ratio is not None:
        yield (
            f"`training.warmup_steps` is {training.warmup_steps} and `training.warmup_ratio` is {training.warmup_ratio}: "
            "only one can count. Remove one (`warmup_steps: 0` or `warmup_ratio: null`)."
        )
    lr_end = training.lr_scheduler_kwargs.lr_end
    if training.lr_scheduler_type == "polynomial" and lr_end is not None and lr_end >= training.learning_rate:
        yield (
            f"`training.lr_scheduler_kwargs.lr_end` is {lr_end:g}, but `polynomial` falls from `training.learning_rate` "
            f"{training.learning_rate:g} to it. Make it smaller than the rate."
        )


def _reward_weights(config: RunConfig) -> Iterator[str]:
    reward = config.reward
    if reward.tests == reward.teacher == reward.format == 0 and not any(reward.custom.values()):
        yield "All weights of `reward` are 0: every sample would be unscored. Give `reward.tests` or another part a weight."
    for name, weight in reward.custom.items():
        if weight < 0:
            yield (
                f"`reward.custom.{name}` is {weight:g}, but a weight is at least 0. For a penalty return a low reward from "
                "it and give it a positive weight."
            )
    if reward.teacher > 0 and not any(config.teacher.weights.model_dump().values()):
        yield (
            "`reward.teacher` has a weight, but all of `teacher.weights` are 0. Give one of them a weight, or set "
            "`reward.teacher: 0`."
        )


def _threshold(config: RunConfig) -> Iterator[str]:
    threshold = config.rlaif.reward_threshold
    if isinstance(threshold, float) and not 0 < threshold <= 1:
        what = "no sample would train" if threshold > 1 else "no sample is below it"
        yield (
            f"`rlaif.reward_threshold` is {threshold:g}, but rewards are between 0 and 1: {what}. Choose a reward in between, "
            "{quantile: 0.25} for the bottom quarter, or null for none."
        )


def _empty_switches(config: RunConfig) -> Iterator[str]:
    """A feature that is on, with nothing to do."""
    shaping, dynamic = config.rlaif.reward_shaping, config.rlaif.dynamic_sampling
    if shaping.enabled and shaping.correctness_bonus == shaping.quality_bonus == 0:
        yield "`rlaif.reward_shaping` is on, but both of its bonuses are 0. Give one a value, or switch it off."
    if shaping.enabled and config.training.num_epochs == 1:
        yield (
            "`rlaif.reward_shaping` rewards what beats earlier epochs, but `training.num_epochs` is 1. Raise it, or switch "
            "the shaping off."
        )
    if dynamic.enabled and dynamic.max_extra_tasks == 0:
        yield "`rlaif.dynamic_sampling` is on, but `max_extra_tasks` is 0. Raise it, or switch dynamic sampling off."


def _temperatures(config: RunConfig) -> Iterator[str]:
    for temperature in config.evaluation.baseline_temperatures:
        if temperature <= 0:
            yield (
                f"`evaluation.baseline_temperatures` has {temperature:g}, but temperatures are greater than 0. Remove it; "
                "`evaluation.greedy: true` measures temperature 0."
            )


def _autopilot(config: RunConfig) -> Iterator[str]:
    if config.rlaif.autopilot != "off":
        yield (
            f"`rlaif.autopilot` is {config.rlaif.autopilot}, but this version has no doctor that could advise. Set "
            "`rlaif.autopilot: off`."
        )


RULES: tuple[Callable[[RunConfig], Iterator[str]], ...] = (
    _samples_per_task, _kl_placement, _schedule, _reward_weights, _threshold, _empty_switches, _temperatures, _autopilot,
)  # fmt: skip
