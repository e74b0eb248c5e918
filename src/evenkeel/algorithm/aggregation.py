"""What a loss is given, what it gives back, and the three ways to add up tokens.

Every divisor is a count over the whole optimizer step, so the sum over micro-batches is the loss of one large batch,
however the step was split. The KL and entropy terms are added up like the policy loss beside them, so that `kl_penalty`
weighs the same against it for short and long answers.

Legend: B rows of the micro-batch, C completion columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class LossInputs:
    """One micro-batch, and the size of the step that it belongs to."""

    logprobs_BC: Tensor
    """Log-probabilities in nats of the sampled tokens under the policy that is being trained, with gradient."""
    old_logprobs_BC: Tensor
    """The same under the policy that the importance ratio compares with, without gradient."""
    advantages_B: Tensor
    mask_BC: Tensor
    """1 on tokens that train, 0 on padding. What the other tensors hold on padding does not matter, infinities included."""
    clip_low: float
    """Ratios below 1 - clip_low are clipped, 0 < clip_low < 1."""
    clip_high: float
    """Ratios above 1 + clip_high are clipped, > 0."""
    step_sequences: int
    """Sequences that train in the whole optimizer step: `TrainBatch.num_sequences`."""
    step_tokens: int
    """Their completion tokens: `TrainBatch.num_tokens`."""
    max_new_tokens: int
    """Token limit of a completion."""

    def __post_init__(self):
        shape = self.logprobs_BC.shape
        assert self.old_logprobs_BC.shape == shape, (self.old_logprobs_BC.shape, shape)
        assert self.mask_BC.shape == shape, (self.mask_BC.shape, shape)
        assert self.advantages_B.shape == shape[:1], (self.advantages_B.shape, shape)
        assert self.step_sequences >= 1 and self.step_tokens >= 1 and self.max_new_tokens >= 1

    @property
    def trains_BC(self) -> Tensor:
        """The mask as booleans."""
        return self.mask_BC > 0


@dataclass(frozen=True)
class LossValue:
    loss: Tensor
    """Scalar: this micro-batch's share of the step's loss."""
    clipped_tokens: Tensor
    """Scalar: tokens of this micro-batch whose importance ratio was clipped; in `gspo`, the tokens of clipped sequences."""


Aggregation = Callable[[Tensor, LossInputs], Tensor]
"""(values_BC, inputs) -> this micro-batch's share of the step's value."""


def masked(values_BC: Tensor, inputs: LossInputs) -> Tensor:
    """Zero on padding. By selection, not by a product: 0 * inf would be NaN."""
    return torch.where(inputs.trains_BC, values_BC, torch.zeros_like(values_BC))


def sequence_mean(values_BC: Tensor, inputs: LossInputs) -> Tensor:
    """Mean over the tokens of each sequence, then over sequences: every answer weighs the same, long or short.

        1/S * sum_b 1/L_b * sum_t values[b, t]        S = step_sequences, L_b = tokens of sequence b

    Worked: values [[1, 3], [5, -]], S = 2: (4/2 + 5/1) / 2 = 3.5.
    """
    lengths_B = inputs.mask_BC.sum(dim=1).clamp(min=1)
    return (masked(values_BC, inputs).sum(dim=1) / lengths_B).sum() / inputs.step_sequences


def token_mean(values_BC: Tensor, inputs: LossInputs) -> Tensor:
    """Mean over all tokens of the step: every token weighs the same, so a long answer weighs more than a short one.

        1/N * sum_b sum_t values[b, t]        N = step_tokens

    Worked: values [[1, 3], [5, -]], N = 3: 9 / 3 = 3.
    """
    return masked(values_BC, inputs).sum() / inputs.step_tokens


def constant_length_mean(values_BC: Tensor, inputs: LossInputs) -> Tensor:
    """Sum over the tokens of each sequence, divided by one constant length for all.

        1/(S * M) * sum_b sum_t values[b, t]        S = step_sequences, M = max_new_tokens

    Worked: values [[1, 3], [5, -]], S = 2, M = 10: 9 / 20 = 0.45.
    """
    return masked(values_BC, inputs).sum() / (inputs.step_sequences * inputs.max_new_tokens)


AGGREGATIONS: dict[str, Aggregation] = {
    "grpo": sequence_mean,
    "dr_grpo": constant_length_mean,
    "dapo": token_mean,
    "gspo": sequence_mean,
    "cispo": token_mean,
    "reinforce": sequence_mean,
    "best_of_n": sequence_mean,
}
"""How each loss adds up tokens; a test holds this table against the losses themselves."""
