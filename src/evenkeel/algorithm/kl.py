"""KL to the base model: estimators per token, the term of the loss, and the controller of its weight.

With x drawn from the policy and d = log policy(x) - log base(x), in nats (Schulman 2020, "Approximating KL divergence"):

            value                  as a value         gradient in expectation, when it is differentiated as a loss
    k1      d                      unbiased, noisy    0: it would only add noise. Used in the reward, refused in the loss
    k2      d^2 / 2                biased, steady     that of KL(policy || base): what one wants
    k3      exp(-d) - 1 + d        unbiased, steady   that of KL(base || policy), the other direction; like k2 for small d

The gradients: k1's is grad log policy, whose mean is 0. k2's is d * grad log policy, whose mean is grad KL(policy || base).
k3's is (1 - base/policy) * grad log policy; the 1 drops out and what stays, -sum_x base * grad log policy, is
grad KL(base || policy). See Tang and Munos 2025, arXiv:2506.09477. As there: token by token these are partial gradients
of the KL of whole answers (they hold the prefix fixed); `kl_placement: reward` has the whole.

The tokens must be the policy's own. With several updates per rollout they are the old policy's; no ratio corrects for it,
and within the clipping range the error is small.

Legend: B rows of the micro-batch, C completion columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from evenkeel.algorithm.aggregation import Aggregation, LossInputs, masked
from evenkeel.errors import UsageError

K3_LINEAR_FROM = 10.0
"""Nats. Where the base likes a token e^10 = 22,000 times better than the policy does, k3 goes on along its tangent: the
value cannot overflow (float32 does at 88) and the gradient keeps its direction and is bounded. Tokens drawn from the policy
get there with a probability of at most e^-10."""

ADAPTIVE_GAIN = 0.1
"""K_beta of Ziegler et al.: with errors within +-0.2 the penalty moves by at most 2 % per step."""
ADAPTIVE_ERROR_LIMIT = 0.2
ADAPTIVE_RANGE = 100.0
"""The penalty stays between a hundredth and a hundred times its start: a target that cannot be met must not run away."""


def k1(logprobs_BC: Tensor, reference_logprobs_BC: Tensor) -> Tensor:
    """d, nats per token; single tokens may be negative."""
    return logprobs_BC - reference_logprobs_BC


def k2(logprobs_BC: Tensor, reference_logprobs_BC: Tensor) -> Tensor:
    """d^2 / 2, nats per token, never negative. d = 0.5 gives 0.125."""
    return 0.5 * (logprobs_BC - reference_logprobs_BC).square()


def k3(logprobs_BC: Tensor, reference_logprobs_BC: Tensor) -> Tensor:
    """exp(-d) - 1 + d, nats per token, never negative. d = log 2 gives 0.5 - 1 + 0.6931 = 0.1931.

    Departs: beyond -d = K3_LINEAR_FROM it goes on along its tangent.
    """
    gap_BC = reference_logprobs_BC - logprobs_BC
    beyond_BC = (gap_BC - K3_LINEAR_FROM).clamp(min=0)
    # expm1 keeps the digits that exp(x) - 1 loses where the two policies nearly agree, which is everywhere at first
    curved_BC = gap_BC - beyond_BC
    return torch.expm1(curved_BC) - curved_BC + beyond_BC * math.expm1(K3_LINEAR_FROM)


KL_ESTIMATORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"k1": k1, "k2": k2, "k3": k3}


def kl_term(inputs: LossInputs, reference_logprobs_BC: Tensor, estimator: str, aggregate: Aggregation) -> Tensor:
    """This micro-batch's share of the step's KL, to be multiplied by kl_penalty and added to the policy loss.

    aggregate: that of the loss beside it, `AGGREGATIONS[loss]`, so that both count tokens and sequences alike.
    """
    if estimator == "k1":
        raise UsageError(
            "`rlaif.kl_estimator: k1` has no gradient in expectation when it is part of the loss: it would add noise and "
            "hold nothing. Choose k2 or k3, or `rlaif.kl_placement: reward`."
        )
    # On padding both sides are 0, so that infinities there reach neither the value nor the gradient
    policy_BC, base_BC = masked(inputs.logprobs_BC, inputs), masked(reference_logprobs_BC.detach(), inputs)
    return aggregate(KL_ESTIMATORS[estimator](policy_BC, base_BC), inputs)


class KlController:
    """The weight of the KL penalty: fixed, or moved so that the KL stays near a target.

        e      = clip((KL - target) / target, -0.2, 0.2)
        beta' = beta * (1 + 0.1 * e)

    Source:  Ziegler et al. 2019, arXiv:1909.08593, section 2.2.
    Departs: beta stays within 1/100 .. 100 times its start; KL is in nats per token, not per answer.

    >>> controller = KlController(0.1, target_kl=0.05)
    >>> controller.observe(0.1)
    >>> round(controller.kl_penalty, 6)  # the error of +100 % is clipped to 20 %: 0.1 * (1 + 0.1 * 0.2)
    0.102
    """

    def __init__(self, kl_penalty: float, target_kl: float | None = None):
        if target_kl is not None and kl_penalty <= 0:
            raise UsageError(
                f"`rlaif.target_kl` is {target_kl}, but `rlaif.kl_penalty` is {kl_penalty}: the controller multiplies the "
                "penalty and cannot move it from 0. Give `rlaif.kl_penalty` a start, for example 0.05, or "
                "remove `rlaif.target_kl`."
            )
        self.kl_penalty = kl_penalty
        """Of the next step."""
        self._start = kl_penalty
        self._target_kl = target_kl

    def observe(self, kl_to_reference: float) -> None:
        """Take the KL of an applied step, nats per token. Dropped steps are not shown to the controller."""
        assert math.isfinite(kl_to_reference), kl_to_reference
        if self._target_kl is None:
            return
        error = (kl_to_reference - self._target_kl) / self._target_kl
        error = min(max(error, -ADAPTIVE_ERROR_LIMIT), ADAPTIVE_ERROR_LIMIT)
        moved = self.kl_penalty * (1 + ADAPTIVE_GAIN * error)
        self.kl_penalty = min(max(moved, self._start / ADAPTIVE_RANGE), self._start * ADAPTIVE_RANGE)

    def state(self) -> dict[str, float]:
        """JSON-able."""
        return {"kl_penalty": self.kl_penalty, "start": self._start}

    def restore(self, state: dict[str, float]) -> None:
        """Go on from a saved state, unless the configuration now asks for another start: then the configuration wins."""
        if self._target_kl is not None and state["start"] == self._start:
            self.kl_penalty = state["kl_penalty"]
