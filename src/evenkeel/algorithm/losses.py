"""Stage 6, the policy losses. Each is one whole function of `LossInputs`; `LOSSES` names them.

Symbols: pi = logprobs, old = old_logprobs, r = exp(pi - old) the importance ratio of a token, A the advantage of its
sequence, S and N the sequences and tokens of the whole optimizer step, L_b the tokens of sequence b. Losses are
minimised. Units: advantages have none (or reward points, see `advantages.py`), log-probabilities are nats.

In the first update on fresh samples r = 1: the value of a clipped loss is then minus the mean advantage, 0 for group
advantages, and says nothing about progress. Its gradient does the work.

Legend: B rows of the micro-batch, C completion columns.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from evenkeel.algorithm.aggregation import LossInputs, LossValue, constant_length_mean, masked, sequence_mean, token_mean

LossFunction = Callable[[LossInputs], LossValue]

DUAL_CLIP_RATIO = 3.0
"""With a negative advantage the loss of PPO grows with the ratio without bound: one token that the policy now finds 1000
times likelier outweighs the whole step, and clipping the gradient norm then hands the step to it. Beyond this ratio such a
token gets no gradient. Source and value: dual-clip PPO, Ye et al. 2019, arXiv:1912.09729."""

LOG_RATIO_LIMIT = 20.0
"""Nats. exp overflows float32 at 88; a ratio of e^20 is clipped by every loss here."""


def grpo(inputs: LossInputs) -> LossValue:
    """Clipped surrogate, mean over each sequence, then over sequences.

        loss = 1/S * sum_b 1/L_b * sum_t clipped(r, A)            clipped: see `_clipped_surrogate`

    Source:  GRPO, Shao et al. 2024, arXiv:2402.03300, equation 3 (the KL term is apart, in `kl.py`).
    Departs: dual clip for A < 0; clip_low and clip_high may differ; S counts the step's sequences over all its tasks.
    Worked:  one sequence, r = (1, 1.5), A = 1, clip_high 0.2: -(1 + 1.2) / 2 = -1.1, one token clipped.
    """
    values_BC, clipped_BC = _clipped_surrogate(_ratios(inputs), inputs.advantages_B[:, None], inputs)
    return LossValue(sequence_mean(values_BC, inputs), _count(clipped_BC, inputs))


def dr_grpo(inputs: LossInputs) -> LossValue:
    """Clipped surrogate, divided by a constant length, so that long wrong answers are not punished less per token.

        loss = 1/(S * max_new_tokens) * sum_b sum_t clipped(r, A)

    Source:  Dr. GRPO, Liu et al. 2025, arXiv:2503.20783. Its advantage is `centred`.
    Departs: as `grpo`. The paper's formula has a plain sum over tokens; the constant is that of its code, and only
             scales the learning rate.
    Worked:  one sequence, r = (1, 1.5), A = 1, clip_high 0.2, max_new_tokens 10: -(1 + 1.2) / 10 = -0.22.
    """
    values_BC, clipped_BC = _clipped_surrogate(_ratios(inputs), inputs.advantages_B[:, None], inputs)
    return LossValue(constant_length_mean(values_BC, inputs), _count(clipped_BC, inputs))


def dapo(inputs: LossInputs) -> LossValue:
    """Clipped surrogate with its upper bound set apart ("clip-higher"), mean over all tokens of the step.

        loss = 1/N * sum_b sum_t clipped(r, A)

    Source:  DAPO, Yu et al. 2025, arXiv:2503.14476, equation 8; its bounds are clip_low 0.2, clip_high 0.28.
    Departs: dual clip for A < 0. DAPO's dynamic sampling and overlong penalty are settings of their own.
    Worked:  sequences of 1 and 3 tokens, r = 1, A = 1 and -1: -(1 - 3) / 4 = 0.5, where grpo has 0.
    """
    values_BC, clipped_BC = _clipped_surrogate(_ratios(inputs), inputs.advantages_B[:, None], inputs)
    return LossValue(token_mean(values_BC, inputs), _count(clipped_BC, inputs))


def gspo(inputs: LossInputs) -> LossValue:
    """Clipped surrogate of one ratio per sequence: the reward belongs to the whole answer, and so does the ratio.

        s_b  = exp(1/L_b * sum_t (pi - old))                      geometric mean of the token ratios
        loss = 1/S * sum_b clipped(s_b, A_b)

    Source:  GSPO, Zheng et al. 2025, arXiv:2507.18071, equations 5 and 7.
    Departs: dual clip for A < 0. The mean shrinks the ratio's spread, so its bounds are narrow: the paper's are
             clip_low 3e-4, clip_high 4e-4; at 0.2 hardly anything is ever clipped.
    Worked:  r = (1, 1.44): s = sqrt(1.44) = 1.2; A = 1, clip_high 0.1: -1.1, both tokens count as clipped.
    """
    log_ratios_BC = _log_ratios(inputs)
    lengths_B = inputs.mask_BC.sum(dim=1).clamp(min=1)
    ratios_B1 = (log_ratios_BC.sum(dim=1) / lengths_B).exp()[:, None]
    values_B1, clipped_B1 = _clipped_surrogate(ratios_B1, inputs.advantages_B[:, None], inputs)
    values_BC = values_B1.expand_as(log_ratios_BC)
    return LossValue(sequence_mean(values_BC, inputs), _count(clipped_B1.expand_as(log_ratios_BC), inputs))


def cispo(inputs: LossInputs) -> LossValue:
    """Policy gradient weighted by a clipped, constant ratio: a clipped token keeps its gradient, at a bounded weight.

        loss = -1/N * sum_b sum_t stop_gradient(clip(r, 1 - clip_low, 1 + clip_high)) * A * pi

    Source:  CISPO, MiniMax-M1, Chen et al. 2025, arXiv:2506.13585, equations 4 and 5.
    Departs: none in the formula. The paper runs without a lower bound, and tunes the upper one: clip_low near 1 and
             clip_high of several units are nearer to it than the defaults.
    Worked:  one token, r = 1.5, pi = -0.5, A = 2, clip_high 0.2: -(1.2 * 2 * -0.5) = 1.2, gradient by pi -2.4.
    """
    ratios_BC = _ratios(inputs).detach()
    low, high = 1 - inputs.clip_low, 1 + inputs.clip_high
    advantages_B1 = inputs.advantages_B[:, None]
    values_BC = -ratios_BC.clamp(low, high) * advantages_B1 * masked(inputs.logprobs_BC, inputs)
    clipped_BC = ((ratios_BC < low) | (ratios_BC > high)) & (advantages_B1 != 0)
    return LossValue(token_mean(values_BC, inputs), _count(clipped_BC, inputs))


def reinforce(inputs: LossInputs) -> LossValue:
    """Plain policy gradient: no ratio, no clipping.

        loss = -1/S * sum_b A_b * 1/L_b * sum_t pi

    Right only while the samples are the policy's own: with several updates per rollout it is biased, and unbounded
    for A < 0.

    Source:  REINFORCE, Williams 1992, Machine Learning 8. (With `advantage: rloo`: RLOO, arXiv:2402.14740.)
    Departs: the mean over the tokens instead of their sum, so that the rate does not depend on the length. An answer's
             weight is then 1/L_b of the exact policy gradient's.
    Worked:  pi = (-0.5, -1.5), A = 2: -2 * (-2 / 2) = 2, gradient by each pi -2/2 = -1.
    """
    values_BC = -inputs.advantages_B[:, None] * masked(inputs.logprobs_BC, inputs)
    return LossValue(sequence_mean(values_BC, inputs), torch.zeros_like(inputs.mask_BC).sum())


def best_of_n(inputs: LossInputs) -> LossValue:
    """Negative log-likelihood of the selected samples; advantages are not used.

        loss = -1/S * sum_b 1/L_b * sum_t pi

    What trains is chosen by `rlaif.train_on` and `rlaif.reward_threshold`. Without a threshold the best of a task that
    nobody solved trains too.

    Source:  RAFT, Dong et al. 2023, arXiv:2304.06767 (reward-ranked fine-tuning).
    Departs: mean over each sequence, not over all tokens, so that one long answer does not dominate.
    Worked:  pi = (-0.5, -1.5): (0.5 + 1.5) / 2 = 1, gradient by each pi -1/2.
    """
    return LossValue(sequence_mean(-masked(inputs.logprobs_BC, inputs), inputs), torch.zeros_like(inputs.mask_BC).sum())


LOSSES: dict[str, LossFunction] = {
    "grpo": grpo,
    "dr_grpo": dr_grpo,
    "dapo": dapo,
    "gspo": gspo,
    "cispo": cispo,
    "reinforce": reinforce,
    "best_of_n": best_of_n,
}


# --------------------------------------------------------------------------- shared by the clipped losses


def _log_ratios(inputs: LossInputs) -> Tensor:
    """pi - old in nats, 0 on padding, within +-LOG_RATIO_LIMIT."""
    return masked(inputs.logprobs_BC - inputs.old_logprobs_BC.detach(), inputs).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def _ratios(inputs: LossInputs) -> Tensor:
    return _log_ratios(inputs).exp()


def _clipped_surrogate(ratios: Tensor, advantages: Tensor, inputs: LossInputs) -> tuple[Tensor, Tensor]:
    """Minus the pessimistic surrogate, and where clipping took the gradient away.

        clipped(r, A) = -min(r * A, clip(r, 1 - clip_low, 1 + clip_high) * A)        A >= 0
                      = the same, at most -c * A                                     A <  0

    c = DUAL_CLIP_RATIO, or 1 + clip_high where that is larger.

    Source:  PPO, Schulman et al. 2017, arXiv:1707.06347, equation 7; the last line arXiv:1912.09729, equation 5.
    Worked:  clip 0.2: (r, A) = (1.5, 1) -> -1.2; (0.5, 1) -> -0.5; (1.5, -1) -> 1.5; (0.5, -1) -> 0.8; (9, -1) -> 3.
    """
    low, high = 1 - inputs.clip_low, 1 + inputs.clip_high
    limit = max(DUAL_CLIP_RATIO, high)
    values = -torch.minimum(ratios * advantages, ratios.clamp(low, high) * advantages)
    values = torch.where(advantages < 0, torch.minimum(values, -limit * advantages), values)
    ratios = ratios.detach()
    clipped = ((advantages > 0) & (ratios > high)) | ((advantages < 0) & ((ratios < low) | (ratios > limit)))
    return values, clipped


def _count(clipped_BC: Tensor, inputs: LossInputs) -> Tensor:
    return (clipped_BC & inputs.trains_BC).sum()
