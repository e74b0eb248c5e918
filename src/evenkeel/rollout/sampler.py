"""Draw one token per row from logits, with uniform numbers that are given.

Legend: R rows, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evenkeel.config.stages import SamplingSettings


@dataclass(frozen=True)
class Draw:
    tokens_R: Tensor
    """int64"""
    logprobs_R: Tensor
    """float32, nats, of the drawn token in the distribution it was drawn from."""
    kept_RV: Tensor | None
    """bool: which tokens could be drawn; None when all could."""


def draw(logits_RV: Tensor, uniforms_R: Tensor, settings: SamplingSettings) -> Draw:
    """Sample by inverting the cumulative distribution.

        p = softmax(logits / temperature) over the kept tokens;  token = first v with  cumsum(p)_v > u

    The numbers come from outside, so the draw of a row depends neither on which other rows are still running nor on the
    device's generator, and two runs that are given the same numbers can be compared pair by pair. A temperature of 0 takes
    the most likely token (its log-probability is reported at temperature 1).
    """
    logits_RV = logits_RV.float()
    if settings.temperature == 0:
        logprobs_RV = torch.log_softmax(logits_RV, dim=-1)
        tokens_R = logits_RV.argmax(dim=-1)
        return Draw(tokens_R, logprobs_RV.gather(-1, tokens_R[:, None])[:, 0], None)
    logits_RV = logits_RV / settings.temperature
    kept_RV = kept_tokens(logits_RV, settings.top_p, settings.top_k)
    if kept_RV is not None:
        logits_RV = logits_RV.masked_fill(~kept_RV, -torch.inf)
    logprobs_RV = torch.log_softmax(logits_RV, dim=-1)
    cumulative_RV = logprobs_RV.exp().cumsum(dim=-1, dtype=torch.float32)
    # The last sum can round below 1: scaling by it keeps every u < 1 inside the vocabulary. The smallest u is 0, which must
    # not fall on a token of probability 0: `right=True` finds the first sum that is greater than u.
    target_R1 = (uniforms_R * cumulative_RV[:, -1])[:, None]
    tokens_R = torch.searchsorted(cumulative_RV, target_R1, right=True)[:, 0].clamp(max=logits_RV.shape[-1] - 1)
    return Draw(tokens_R, logprobs_RV.gather(-1, tokens_R[:, None])[:, 0], kept_RV)


def kept_tokens(logits_RV: Tensor, top_p: float, top_k: int | None) -> Tensor | None:
    """The tokens that top-k and top-p leave, bool [R, V]; None for the full distribution.

    top-k: the k most likely. top-p: the most likely ones until their sum reaches p, the one that reaches it included
    (Holtzman et al. 2020, arXiv:1904.09751), taken after top-k.
    """
    if top_p >= 1.0 and (top_k is None or top_k >= logits_RV.shape[-1]):
        return None
    order_RV = logits_RV.argsort(dim=-1, descending=True, stable=True)
    rank_RV = order_RV.argsort(dim=-1)
    kept_RV = rank_RV < (top_k or logits_RV.shape[-1])
    if top_p < 1.0:
        sorted_p_RV = torch.softmax(logits_RV.masked_fill(~kept_RV, -torch.inf), dim=-1).gather(-1, order_RV)
        before_RV = sorted_p_RV.cumsum(dim=-1) - sorted_p_RV
        kept_RV &= (before_RV < top_p).gather(-1, rank_RV)
    return kept_RV
