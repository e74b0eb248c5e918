"""Stage 4, credit: which samples train, and how hard each is pushed up or down. Torch-free.

    list[ScoredGroup] --- credit ---> list[CreditedGroup]

    1  reward for the advantages = reward + bonus - overlong penalty (truncated) - kl_penalty * KL (kl_placement: reward)
    2  advantages, over all scored samples, also those that will not train
    3  what trains: scored, not masked for truncation, not below the threshold, among the best of its group

Step 3 never changes an advantage. Centring again over the survivors would push half of the best samples down
(cause `recentred_selection`). The threshold and best-of-N look at the plain reward, without bonus or penalty.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from evenkeel.config.stages import CreditSettings, ObjectiveSettings
from evenkeel.records import CreditedGroup, ScoredGroup, ScoredSample

SPREAD_TOLERANCE = 1e-6
"""Reward points. Rewards that differ by no more than this count as equal. A judge's weighted means differ by rounding
(1e-16 to 1e-9); divided by their own spread, such differences would become advantages of full size. The smallest
difference that means something, one test of a thousand, is a thousand times larger."""

ADVANTAGE_FREE_LOSSES = frozenset({"best_of_n"})
"""Losses that train what was selected, whatever its advantage."""


@dataclass(frozen=True)
class KlInReward:
    """The KL part of the reward, with `kl_placement: reward`.

    >>> KlInReward(kl_penalty=0.1, nats=((0.5, 2.0),)).nats[0][1]
    2.0
    """

    kl_penalty: float
    """Reward points per nat."""
    nats: tuple[tuple[float, ...], ...]
    """For each group, each sample: sum over its tokens of k1 = log policy - log base."""


def credit(
    groups: Sequence[ScoredGroup],
    settings: CreditSettings,
    *,
    uses_advantages: bool = True,
    kl_in_reward: KlInReward | None = None,
) -> list[CreditedGroup]:
    """Give every sample its advantage and decide which samples train.

    An unscored sample has advantage 0, does not train and is in no baseline. A truncated sample counts in the mean of
    its group, and does not train when `mask_truncated`.

    uses_advantages: False for a loss of ADVANTAGE_FREE_LOSSES. A group then has signal when anything of it trains.
    """
    shaped = [_rewards_for_advantages(group, index, settings, kl_in_reward) for index, group in enumerate(groups)]
    scored = [[reward for reward in rewards if reward is not None] for rewards in shaped]
    advantages = [_spread_out(values, rewards) for values, rewards in zip(_advantages(scored, settings), shaped, strict=True)]
    threshold = reward_threshold([reward for group in groups for reward in group.rewards], settings)
    credited = []
    for group, values in zip(groups, advantages, strict=True):
        trains = _what_trains(group.samples, threshold, settings)
        has_signal = any(train and (value != 0.0 or not uses_advantages) for train, value in zip(trains, values, strict=True))
        credited.append(CreditedGroup(group, tuple(values), tuple(trains), has_signal))
    return credited


def skipping_is_exact(settings: ObjectiveSettings, kl_penalty: float) -> bool:
    """May samples with advantage 0 stay out of the forward pass without changing the gradient?

    Their policy loss is exactly 0, and the divisors of the step still count them (`TrainBatch.num_sequences`). A KL
    penalty in the loss and an entropy bonus pull on every trained token, so then they must stay in.

    kl_penalty: of this step; the controller may have moved it.
    """
    kl_in_loss = kl_penalty > 0 and settings.kl_placement == "loss"
    return settings.loss not in ADVANTAGE_FREE_LOSSES and not kl_in_loss and settings.entropy_bonus == 0


# --------------------------------------------------------------------------- advantages of one group


def group_advantages(rewards: Sequence[float], *, eps: float = 1e-6) -> list[float]:
    """Centre one task's rewards and divide by their spread.

        A_k = (r_k - mean(r)) / (std(r) + eps)        std over K, not K - 1

    Shapes:  rewards [K] -> [K], K samples of the same task.
    Units:   reward points -> none.
    Edge:    rewards within SPREAD_TOLERANCE of each other give all zeros: the group teaches nothing. The caller counts it.
    Source:  GRPO, Shao et al. 2024, arXiv:2402.03300, section 4.1.
    Departs: the tolerance. (Without the division it is Dr. GRPO: see `centred_advantages`.)

    >>> [round(a, 3) for a in group_advantages([1.0, 0.0, 0.0, 1.0])]
    [1.0, -1.0, -1.0, 1.0]
    >>> group_advantages([0.3, 0.3 + 1e-9])
    [0.0, 0.0]
    """
    centred = centred_advantages(rewards)
    if not any(centred):
        return centred
    std = math.sqrt(math.fsum(value * value for value in centred) / len(centred))
    return [value / (std + eps) for value in centred]


def centred_advantages(rewards: Sequence[float]) -> list[float]:
    """Subtract the mean of one task's rewards.

        A_k = r_k - mean(r)

    Shapes:  rewards [K] -> [K], K samples of the same task.
    Units:   reward points -> reward points: a task where all samples nearly agree stays quiet.
    Edge:    rewards within SPREAD_TOLERANCE of each other give all zeros.
    Source:  Dr. GRPO, Liu et al. 2025, arXiv:2503.20783, section 3.2.
    Departs: the tolerance.

    >>> centred_advantages([1.0, 0.0, 0.5, 0.5])
    [0.5, -0.5, 0.0, 0.0]
    """
    if _equal(rewards):
        return [0.0] * len(rewards)
    # fsum is exact, so the order of the samples cannot change the mean
    mean = math.fsum(rewards) / len(rewards)
    return [reward - mean for reward in rewards]


def rloo_advantages(rewards: Sequence[float]) -> list[float]:
    """Compare each sample with the mean of the others.

        A_k = r_k - mean_{j != k}(r_j)  =  K / (K - 1) * (r_k - mean(r))

    Shapes:  rewards [K] -> [K], K samples of the same task.
    Units:   reward points -> reward points.
    Edge:    one sample has no others to compare with: 0. Rewards within SPREAD_TOLERANCE of each other: all zeros.
    Source:  RLOO, Kool et al. 2019; Ahmadian et al. 2024, arXiv:2402.14740, equation 8.
    Departs: the tolerance.

    >>> rloo_advantages([1.0, 0.0, 0.0])
    [1.0, -0.5, -0.5]
    """
    num_samples = len(rewards)
    if num_samples < 2:
        return [0.0] * num_samples
    return [value * num_samples / (num_samples - 1) for value in centred_advantages(rewards)]


# --------------------------------------------------------------------------- advantages of one step


def batch_advantages(rewards: Sequence[Sequence[float]], *, eps: float = 1e-6) -> list[list[float]]:
    """Centre and scale over the whole optimizer step instead of within each task.

        A_gk = (r_gk - mean(all r)) / (std(all r) + eps)        std over the number of samples

    Shapes:  rewards [G][K_g] -> [G][K_g]; groups may differ in size.
    Units:   reward points -> none.
    Edge:    a group of equal rewards has signal when it lies above or below the step's mean: easy tasks are pushed up as
             a whole and hard ones down. The whole step within SPREAD_TOLERANCE: all zeros.
    Source:  REINFORCE++, Hu et al. 2025, arXiv:2501.03262.
    Departs: one reward per sequence, and no KL inside it unless `kl_placement: reward`; the tolerance.

    >>> [[round(a, 3) for a in group] for group in batch_advantages([[1.0, 1.0], [0.0, 0.0]])]
    [[1.0, 1.0], [-1.0, -1.0]]
    """
    flat = iter(group_advantages([reward for group in rewards for reward in group], eps=eps))
    return [[next(flat) for _ in group] for group in rewards]


def raw_advantages(rewards: Sequence[float], reward_weight: float) -> list[float]:
    """Plain REINFORCE: the reward itself, without a baseline.

        A_k = reward_weight * r_k

    Shapes:  rewards [K] -> [K].
    Edge:    rewards in 0 .. 1 push every sample up, wrong ones only less: high variance (cause `no_baseline`).
    Source:  REINFORCE, Williams 1992, Machine Learning 8.
    Departs: none.

    >>> raw_advantages([1.0, 0.25], 2.0)
    [2.0, 0.5]
    """
    return [reward_weight * reward for reward in rewards]


def with_kl_in_reward(rewards: Sequence[float], kl_nats: Sequence[float], kl_penalty: float) -> list[float]:
    """Charge each sample for how far the policy went from the base to write it.

        r'_k = r_k - kl_penalty * sum_t (log policy_t - log base_t)

    The sum over the tokens, not their mean: its expectation is the KL divergence of whole answers, whose gradient this
    score-function form then has. So the same kl_penalty bites about L times harder here than in a sequence-mean loss.

    Shapes:  rewards [K], kl_nats [K] (summed k1 of each sample; single samples may be negative) -> [K].
    Units:   reward points; kl_penalty in reward points per nat.
    Source:  Ziegler et al. 2019, arXiv:1909.08593, equation 2; as one reward per sequence in RLOO, arXiv:2402.14740.
    Departs: none from RLOO. (Ziegler et al. pay it token by token.)

    >>> with_kl_in_reward([1.0, 0.0], [2.0, -1.0], kl_penalty=0.25)
    [0.5, 0.25]
    """
    return [reward - kl_penalty * nats for reward, nats in zip(rewards, kl_nats, strict=True)]


# --------------------------------------------------------------------------- what trains


def reward_threshold(rewards: Sequence[float], settings: CreditSettings) -> float | None:
    """The reward below which a sample of this step does not train; None: no threshold.

    A quantile q leaves out the floor(q * n) lowest of the step's n rewards. Rewards equal to the lowest that stays also
    stay: with [0, 0, 0, 1] and q = 0.25 nothing is left out, because no reward is below 0.
    """
    if settings.threshold_quantile is None or not rewards:
        return settings.threshold
    # 0.29 * 100 is 28.999999999999996 in floats and must leave out 29
    left_out = math.floor(settings.threshold_quantile * len(rewards) + 1e-9)
    return sorted(rewards)[min(left_out, len(rewards) - 1)]


def _what_trains(samples: Sequence[ScoredSample], threshold: float | None, settings: CreditSettings) -> list[bool]:
    """Best-of-N picks among the samples that may train, so a masked truncated best gives its place to the next.

    Equal rewards: the lower index wins. Samples of a task are exchangeable, so this favours nothing, and it is repeatable.
    """
    able = [
        index
        for index, sample in enumerate(samples)
        if sample.reward is not None
        and not (settings.mask_truncated and sample.completion.truncated)
        and (threshold is None or sample.reward >= threshold)
    ]
    kept = set(sorted(able, key=lambda index: (-samples[index].reward, index))[: settings.keep_best])
    return [index in kept for index in range(len(samples))]


# --------------------------------------------------------------------------- helpers


def _rewards_for_advantages(
    group: ScoredGroup, group_index: int, settings: CreditSettings, kl_in_reward: KlInReward | None
) -> list[float | None]:
    """Length N; None where the sample was not scored."""
    rewards = [
        None
        if sample.reward is None
        else sample.reward + sample.bonus - (settings.overlong_penalty if sample.completion.truncated else 0.0)
        for sample in group.samples
    ]
    if kl_in_reward is None:
        return rewards
    nats = kl_in_reward.nats[group_index]
    charged = with_kl_in_reward([reward or 0.0 for reward in rewards], nats, kl_in_reward.kl_penalty)
    return [None if reward is None else after for reward, after in zip(rewards, charged, strict=True)]


def _advantages(rewards: Sequence[Sequence[float]], settings: CreditSettings) -> list[list[float]]:
    """[G][scored samples] -> the same shape, by the name in the configuration."""
    over_the_step = {
        "group": lambda: [group_advantages(group) for group in rewards],
        "centred": lambda: [centred_advantages(group) for group in rewards],
        "rloo": lambda: [rloo_advantages(group) for group in rewards],
        "batch": lambda: batch_advantages(rewards),
        "none": lambda: [raw_advantages(group, settings.reward_weight) for group in rewards],
    }
    return over_the_step[settings.advantage]()


def _spread_out(values: Sequence[float], rewards: Sequence[float | None]) -> list[float]:
    """Put the advantages of the scored samples back in their places, 0 in the others."""
    remaining = iter(values)
    return [0.0 if reward is None else next(remaining) for reward in rewards]


def _equal(rewards: Sequence[float]) -> bool:
    return not rewards or max(rewards) - min(rewards) <= SPREAD_TOLERANCE
