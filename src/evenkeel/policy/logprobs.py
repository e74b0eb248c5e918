"""Log-probabilities of given completions: the one computation that sampling, update and reference must agree on.

Legend: B rows, T = prompt and completion columns, C completion columns, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer


class PaddedRows(Protocol):
    """What a forward pass reads of a micro-batch; `algorithm/batch.py` has the real one."""

    prompt_ids_UP: Tensor
    prompt_mask_UP: Tensor
    prompt_of_row_B: Tensor
    input_ids_BT: Tensor
    attention_mask_BT: Tensor
    position_ids_BT: Tensor
    completion_ids_BC: Tensor
    completion_mask_BC: Tensor
    mask_BC: Tensor
    kept_tokens: Sequence | None


@dataclass(frozen=True)
class TokenStatistics:
    logprobs_BC: Tensor
    """Nats, float32: log-probability of each completion token at the sampling temperature; 0 on padding."""
    entropy_BC: Tensor
    """Nats, float32: of the distribution that the token was drawn from; 0 on padding."""


def completion_statistics(
    model: nn.Module, batch: PaddedRows, *, temperature: float, entropy_gradient: bool = False
) -> TokenStatistics:
    """Run the model once over a padded micro-batch.

        logprob_t = log softmax(logits_t / temperature)[token_t]         over the kept tokens only, where a set is given

    The logits are made float32 before the softmax.
    """
    share = len(batch.prompt_ids_UP) < len(batch.prompt_of_row_B) and _keeps_a_cache(model)
    logits_BCV = (_logits_with_shared_prompts if share else _logits_of_whole_rows)(model, batch).float() / temperature
    if batch.kept_tokens is not None:
        logits_BCV = logits_BCV.masked_fill(~kept_mask(batch.kept_tokens, logits_BCV.shape, logits_BCV.device), -torch.inf)
    log_softmax_BCV = torch.log_softmax(logits_BCV, dim=-1)
    logprobs_BC = log_softmax_BCV.gather(-1, batch.completion_ids_BC.unsqueeze(-1)).squeeze(-1)
    present_BC = batch.mask_BC.bool()
    # `where`, not a product: 0 * -inf on padding would be NaN.
    logprobs_BC = torch.where(present_BC, logprobs_BC, 0.0)
    # As a mere metric the entropy keeps no graph: it would hold a second [B, C, V] matrix until the backward pass.
    with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
        entropy_BC = token_entropy(log_softmax_BCV)
    return TokenStatistics(logprobs_BC, torch.where(present_BC, entropy_BC, 0.0))


def _logits_of_whole_rows(model: nn.Module, batch: PaddedRows) -> Tensor:
    """Logits [B, C, V] that predict the completion tokens, each row with its prompt. Position t predicts t + 1."""
    output = model(
        input_ids=batch.input_ids_BT, attention_mask=batch.attention_mask_BT, position_ids=batch.position_ids_BT,
        logits_to_keep=batch.completion_ids_BC.shape[1] + 1, use_cache=False,
    )  # fmt: skip
    return output.logits[:, :-1]


def _logits_with_shared_prompts(model: nn.Module, batch: PaddedRows) -> Tensor:
    """The same, each different prompt run once: its keys and values are handed to all its completions, with gradient.

    The first completion token is predicted by the prompt's last position, the others by the completion before them.
    """
    prompt_mask_BP = batch.prompt_mask_UP[batch.prompt_of_row_B]
    cache = DynamicCache(config=model.config)
    prompts = model(
        input_ids=batch.prompt_ids_UP, attention_mask=batch.prompt_mask_UP,
        position_ids=(batch.prompt_mask_UP.cumsum(1) - 1).clamp(min=0), past_key_values=cache, use_cache=True, logits_to_keep=1,
    )  # fmt: skip
    first_B1V = prompts.logits.index_select(0, batch.prompt_of_row_B)
    if batch.completion_ids_BC.shape[1] == 1:
        return first_B1V
    # index_select, not indexing: the gradient of indexing adds up with atomics, in whichever order threads arrive.
    for layer in cache.layers:
        layer.keys = layer.keys.index_select(0, batch.prompt_of_row_B)
        layer.values = layer.values.index_select(0, batch.prompt_of_row_B)
    before_last = slice(0, -1)
    completion_mask_BC = batch.completion_mask_BC[:, before_last]
    rest = model(
        input_ids=batch.completion_ids_BC[:, before_last],
        attention_mask=torch.cat([prompt_mask_BP, completion_mask_BC], dim=1),
        position_ids=batch.position_ids_BT[:, prompt_mask_BP.shape[1] : -1], past_key_values=cache, use_cache=True,
    )  # fmt: skip
    return torch.cat([first_B1V, rest.logits], dim=1)


def _keeps_a_cache(model: nn.Module) -> bool:
    """Gradient checkpointing runs layers again in the backward pass, which a cache would not survive; and only plain
    attention layers can hand their keys and values on."""
    checkpointing = model.training and any(getattr(module, "gradient_checkpointing", False) for module in model.modules())
    return not checkpointing and all(type(layer) is DynamicLayer for layer in DynamicCache(config=model.config).layers)


def token_entropy(log_softmax: Tensor) -> Tensor:
    """H = -sum_v p_v log p_v over the last dimension, nats; tokens with p = 0 add nothing.

    >>> round(token_entropy(torch.log(torch.tensor([0.5, 0.5]))).item(), 4)
    0.6931
    """
    return -(log_softmax.exp() * log_softmax.masked_fill(log_softmax == -torch.inf, 0.0)).sum(-1)


def kept_mask(kept_tokens: Sequence, shape: torch.Size, device: torch.device) -> Tensor:
    """True where a token could be drawn, [B, C, V]. Rows and positions without a set keep all tokens.

    With top-p or top-k the sampler normalised over this set; recomputing the set after an update could leave the drawn
    token out of it (minus infinity), so the drawn set is reused.
    """
    mask_BCV = torch.ones(shape, dtype=torch.bool, device=device)
    for row, sets in enumerate(kept_tokens):
        for column, kept in enumerate(sets or ()):
            mask_BCV[row, column] = False
            mask_BCV[row, column, list(kept)] = True
    return mask_BCV
