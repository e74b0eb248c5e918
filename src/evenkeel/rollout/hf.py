"""The built-in engine: batched decoding with a Hugging Face model.

    tasks -> prompts, run once each -> key-value cache, repeated per sample -> one token a step for every running row
                                                                               rows that ended are dropped on the way

The base weights are never touched: with float32 weights the adapter is folded into a working copy, otherwise it stays
attached. Legend: G tasks, R = G * N rows, P prompt columns, V vocabulary.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from transformers import DynamicCache

from evenkeel.config.stages import SamplingSettings
from evenkeel.policy.lora import FoldedCopy, can_fold
from evenkeel.policy.model import Policy
from evenkeel.records import Completion, SampleGroup, Task
from evenkeel.rollout.cache import repeated
from evenkeel.rollout.prompt import prompt_tokens
from evenkeel.rollout.sampler import draw

MAX_ROWS = 256
"""Rows decoded together. More do not decode faster on a CPU and their cache grows without bound."""
COMPACT_AT = 0.25
"""Finished rows are dropped from the cache when they are this share of it: dropping copies the cache."""


@dataclass
class _Row:
    """One completion while it grows."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    kept: list[tuple[int, ...]] = field(default_factory=list)
    ended: bool = False


class HFEngine:
    """`SamplingEngine` on the policy's own model."""

    def __init__(self, policy: Policy):
        self._policy = policy
        self._folded = FoldedCopy(policy) if can_fold(policy) else None
        self._max_rows = MAX_ROWS

    def sample(self, tasks: Sequence[Task], settings: SamplingSettings, seeds: Sequence[int]) -> list[SampleGroup]:
        model = self._folded.refresh() if self._folded else self._policy.model
        was_training = model.training
        model.eval()
        groups: list[SampleGroup] = []
        while len(groups) < len(tasks):
            chunk = slice(len(groups), len(groups) + max(1, self._max_rows // settings.num_samples))
            try:
                with self._policy.precision():
                    groups += self._sample_chunk(model, tasks[chunk], settings, seeds[chunk])
            except torch.OutOfMemoryError:
                # A sample does not depend on what is sampled beside it, so fewer at a time give the same ones.
                if self._max_rows <= settings.num_samples:
                    raise
                self._max_rows //= 2
                gc.collect()
        model.train(was_training)
        return groups

    @torch.inference_mode()
    def _sample_chunk(
        self, model: nn.Module, tasks: Sequence[Task], settings: SamplingSettings, seeds: Sequence[int]
    ) -> list[SampleGroup]:
        prompts = [prompt_tokens(self._policy.tokenizer, task) for task in tasks]
        # All numbers are drawn at once, on the CPU: which rows end early then cannot shift the others' numbers.
        shape = (settings.num_samples, settings.max_new_tokens)
        uniforms_RT = torch.cat([torch.rand(shape, generator=torch.Generator().manual_seed(seed)) for seed in seeds])
        rows = self._decode(model, prompts, settings, uniforms_RT.to(self._policy.device))
        completions = [self._completion(row) for row in rows]
        count = settings.num_samples
        return [
            SampleGroup(task, prompt, tuple(completions[at * count : (at + 1) * count]))
            for at, (task, prompt) in enumerate(zip(tasks, prompts, strict=True))
        ]

    def _decode(
        self, model: nn.Module, prompts: Sequence[tuple[int, ...]], settings: SamplingSettings, uniforms_RT: Tensor
    ) -> list[_Row]:
        state = _DecodeState.start(model, prompts, settings.num_samples, self._policy)
        rows = [_Row() for _ in range(len(prompts) * settings.num_samples)]
        eos = torch.tensor(sorted(self._policy.eos_ids), device=self._policy.device)
        for position in range(settings.max_new_tokens):
            drawn = draw(state.logits_RV, uniforms_RT[state.row_ids_R, position], settings)
            ended_R = torch.isin(drawn.tokens_R, eos)
            _append(rows, state, drawn, ended_R)
            state.running_R &= ~ended_R
            if position + 1 == settings.max_new_tokens or not state.running_R.any():
                break
            state.advance(model, drawn.tokens_R)
        return rows

    def _completion(self, row: _Row) -> Completion:
        text = self._policy.tokenizer.decode(row.tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return Completion(
            tuple(row.tokens), tuple(row.logprobs), text, truncated=not row.ended, kept_tokens=tuple(row.kept) or None
        )


@dataclass
class _DecodeState:
    """The running rows, their cache and the logits of their next token."""

    row_ids_R: Tensor
    running_R: Tensor
    cache: DynamicCache
    attention_mask_RT: Tensor
    positions_R: Tensor
    logits_RV: Tensor

    @classmethod
    def start(cls, model: nn.Module, prompts: Sequence[tuple[int, ...]], num_samples: int, policy: Policy) -> _DecodeState:
        """Run each prompt once, padded left, then repeat cache and logits for its samples."""
        width = max(len(prompt) for prompt in prompts)
        device = policy.device
        ids_GP = torch.tensor([[policy.pad_id] * (width - len(p)) + list(p) for p in prompts], device=device)
        mask_GP = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=device)
        cache = DynamicCache(config=model.config)
        output = model(
            input_ids=ids_GP, attention_mask=mask_GP, position_ids=(mask_GP.cumsum(1) - 1).clamp(min=0), past_key_values=cache,
            use_cache=True, logits_to_keep=1,
        )  # fmt: skip
        count = len(prompts) * num_samples
        return cls(
            row_ids_R=torch.arange(count, device=device),
            running_R=torch.ones(count, dtype=torch.bool, device=device),
            cache=repeated(cache, num_samples),
            attention_mask_RT=mask_GP.repeat_interleave(num_samples, 0),
            positions_R=mask_GP.sum(1).repeat_interleave(num_samples, 0),
            logits_RV=output.logits[:, -1].repeat_interleave(num_samples, 0),
        )

    def advance(self, model: nn.Module, tokens_R: Tensor) -> None:
        """Feed the drawn tokens; drop the rows that ended once there are enough of them."""
        if (~self.running_R).sum() >= COMPACT_AT * len(self.running_R):
            tokens_R = self._compact(tokens_R)
        self.attention_mask_RT = torch.cat([self.attention_mask_RT, self.attention_mask_RT.new_ones(len(tokens_R), 1)], dim=1)
        output = model(
            input_ids=tokens_R[:, None], attention_mask=self.attention_mask_RT, position_ids=self.positions_R[:, None],
            past_key_values=self.cache, use_cache=True,
        )  # fmt: skip
        self.logits_RV = output.logits[:, -1]
        self.positions_R = self.positions_R + 1

    def _compact(self, tokens_R: Tensor) -> Tensor:
        keep = self.running_R.nonzero()[:, 0]
        self.cache.batch_select_indices(keep)
        self.row_ids_R, self.running_R = self.row_ids_R[keep], self.running_R[keep]
        self.attention_mask_RT, self.positions_R = self.attention_mask_RT[keep], self.positions_R[keep]
        return tokens_R[keep]


def _append(rows: list[_Row], state: _DecodeState, drawn, ended_R: Tensor) -> None:
    """Write the drawn tokens into the rows that are still running."""
    kept_lists = None
    if drawn.kept_RV is not None:
        kept_lists = [tuple(kept.nonzero()[:, 0].tolist()) for kept in drawn.kept_RV]
    columns = (
        state.row_ids_R.tolist(),
        state.running_R.tolist(),
        drawn.tokens_R.tolist(),
        drawn.logprobs_R.tolist(),
        ended_R.tolist(),
    )
    for at, (row_id, running, token, logprob, ended) in enumerate(zip(*columns, strict=True)):
        if not running:
            continue
        row = rows[row_id]
        row.tokens.append(token)
        row.logprobs.append(logprob)
        row.ended = ended
        if kept_lists is not None:
            row.kept.append(kept_lists[at])
