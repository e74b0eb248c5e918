"""Stage 5, pack: from credited samples to padded tensors.

    list[CreditedGroup] --- pack ---> TrainBatch --- micro_batches ---> list[MicroBatch]

    columns of a micro-batch, width T = P + C:

        | pad  pad  prompt prompt | completion completion EOS pad |
          `------ P, left padded '  `------ C, right padded ----'

The completions are the last C columns of every row, so log-probabilities and logits are needed for these only. Each
micro-batch is only as wide as its own longest prompt and longest completion. Samples of one task stay together, so that
a micro-batch holds few different prompts: each is stored, and can be run, once.

Legend: B rows of the micro-batch, U different prompts in it, P prompt columns, C completion columns, T = P + C.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from evenkeel.records import Completion, CreditedGroup, ScoredGroup


@dataclass(frozen=True)
class TrainRow:
    """One sample that trains.

    >>> TrainRow((1, 2), (5, 9), (-0.1, -0.7), advantage=1.0).length
    2
    """

    prompt_ids: tuple[int, ...]
    """Length >= 1."""
    completion_ids: tuple[int, ...]
    """Length L >= 1, the end-of-sequence token included when it was drawn."""
    sampler_logprobs: tuple[float, ...]
    """Length L, nats."""
    advantage: float
    kept_tokens: tuple[tuple[int, ...], ...] | None = None
    """Length L: with top-p or top-k the token ids that could be drawn at each position."""

    @property
    def length(self) -> int:
        return len(self.completion_ids)


@dataclass(frozen=True)
class MicroBatch:
    """Some rows of a `TrainBatch` as tensors."""

    row_indices: tuple[int, ...]
    """Length B: row b is `TrainBatch.rows[row_indices[b]]`."""
    prompt_ids_UP: Tensor
    """int64: the different prompts, padded left."""
    prompt_mask_UP: Tensor
    """int64, 1 on the prompt, 0 on padding."""
    prompt_of_row_B: Tensor
    """int64: row b continues prompt prompt_of_row_B[b]."""
    completion_ids_BC: Tensor
    """int64, padded right."""
    completion_mask_BC: Tensor
    """int64, 1 on the completion, 0 on padding."""
    mask_BC: Tensor
    """float32: 1 on the tokens that train, 0 on padding."""
    sampler_logprobs_BC: Tensor
    """float32, nats; 0 on padding."""
    advantages_B: Tensor
    """float32."""
    kept_tokens: tuple[tuple[tuple[int, ...], ...] | None, ...] | None
    """Length B, None when no row has sets: see `TrainRow.kept_tokens`."""

    @property
    def num_tokens(self) -> int:
        """Tokens that train in this micro-batch."""
        return int(self.mask_BC.sum().item())

    @property
    def input_ids_BT(self) -> Tensor:
        """Prompt and completion of every row, int64."""
        return torch.cat([self.prompt_ids_UP[self.prompt_of_row_B], self.completion_ids_BC], dim=1)

    @property
    def attention_mask_BT(self) -> Tensor:
        """int64, 1 on prompt and completion, 0 on padding."""
        return torch.cat([self.prompt_mask_UP[self.prompt_of_row_B], self.completion_mask_BC], dim=1)

    @property
    def position_ids_BT(self) -> Tensor:
        """int64: 0 on the first prompt token whatever the padding before it; on padding any valid position."""
        return (self.attention_mask_BT.cumsum(dim=1) - 1).clamp(min=0)

    def to(self, device: torch.device | str) -> MicroBatch:
        tensors = {f.name: getattr(self, f.name) for f in fields(self) if isinstance(getattr(self, f.name), Tensor)}
        return replace(self, **{name: tensor.to(device) for name, tensor in tensors.items()})


@dataclass(frozen=True)
class TrainBatch:
    """All that one optimizer step trains on. The counts are over the whole step and are the losses' divisors.

    >>> row = TrainRow((1,), (5, 9), (-0.1, -0.7), 1.0)
    >>> batch = TrainBatch((row,), num_sequences=2, num_tokens=5, max_new_tokens=8, pad_token_id=0)
    >>> batch.num_skipped
    1
    """

    rows: tuple[TrainRow, ...]
    """In the order of the groups and of the samples in them."""
    num_sequences: int
    """Samples that train, also those left out of `rows` because their advantage is 0."""
    num_tokens: int
    """Completion tokens of these samples."""
    max_new_tokens: int
    """Token limit of a completion: the constant length that `dr_grpo` divides by."""
    pad_token_id: int

    @property
    def num_skipped(self) -> int:
        return self.num_sequences - len(self.rows)

    def micro_batches(self, size: int) -> list[MicroBatch]:
        """Rows of one prompt together, prompts of like completion length together, `size` rows at a time.

        The longest come first, so that running out of memory shows in the first micro-batch, before work is lost. Ties
        keep the order of the rows: the split is a function of the rows alone.
        """
        assert size >= 1, size
        longest: dict[tuple[int, ...], int] = {}
        first: dict[tuple[int, ...], int] = {}
        for index, row in enumerate(self.rows):
            longest[row.prompt_ids] = max(row.length, longest.get(row.prompt_ids, 0))
            first.setdefault(row.prompt_ids, index)

        def place(index: int) -> tuple[int, ...]:
            row = self.rows[index]
            return -longest[row.prompt_ids], -len(row.prompt_ids), first[row.prompt_ids], -row.length, index

        order = sorted(range(len(self.rows)), key=place)
        return [self._micro_batch(order[start : start + size]) for start in range(0, len(order), size)]

    def _micro_batch(self, row_indices: Sequence[int]) -> MicroBatch:
        rows = [self.rows[index] for index in row_indices]
        prompts = list(dict.fromkeys(row.prompt_ids for row in rows))
        prompt_width = max(len(prompt) for prompt in prompts)
        completion_width = max(row.length for row in rows)
        completion_ids_BC = _pad([row.completion_ids for row in rows], completion_width, self.pad_token_id, torch.int64)
        # The mask follows the lengths, never the ids: the pad token is often the end-of-sequence token, which trains.
        completion_mask_BC = _pad([[1] * row.length for row in rows], completion_width, 0, torch.int64)
        return MicroBatch(
            row_indices=tuple(row_indices),
            prompt_ids_UP=_pad(prompts, prompt_width, self.pad_token_id, torch.int64, left=True),
            prompt_mask_UP=_pad([[1] * len(prompt) for prompt in prompts], prompt_width, 0, torch.int64, left=True),
            prompt_of_row_B=torch.tensor([prompts.index(row.prompt_ids) for row in rows]),
            completion_ids_BC=completion_ids_BC,
            completion_mask_BC=completion_mask_BC,
            mask_BC=completion_mask_BC.to(torch.float32),
            sampler_logprobs_BC=_pad([row.sampler_logprobs for row in rows], completion_width, 0.0, torch.float32),
            advantages_B=torch.tensor([row.advantage for row in rows], dtype=torch.float32),
            kept_tokens=tuple(row.kept_tokens for row in rows) if any(row.kept_tokens for row in rows) else None,
        )


def pack(
    groups: Sequence[CreditedGroup], *, pad_token_id: int, max_new_tokens: int, keep_zero_advantages: bool = True
) -> TrainBatch:
    """Collect the samples that train into one optimizer step.

    keep_zero_advantages: False leaves samples with advantage 0 out of the rows, which saves their forward and backward
    pass. They still count in `num_sequences` and `num_tokens`, so the gradient is exactly the same wherever
    `advantages.skipping_is_exact` says so; elsewhere it must stay True.
    """
    training = [
        _row(group.group.prompt_ids, sample.completion, advantage)
        for group in groups
        for sample, advantage, trains in zip(group.group.samples, group.advantages, group.trains, strict=True)
        if trains
    ]
    rows = tuple(row for row in training if keep_zero_advantages or row.advantage != 0.0)
    return TrainBatch(rows, len(training), sum(row.length for row in training), max_new_tokens, pad_token_id)


def pack_all(groups: Sequence[ScoredGroup], *, pad_token_id: int, max_new_tokens: int) -> TrainBatch:
    """Every sample, trained or not, with advantage 0: to measure log-probabilities before credit is given."""
    rows = tuple(_row(group.prompt_ids, sample.completion, 0.0) for group in groups for sample in group.samples)
    return TrainBatch(rows, len(rows), sum(row.length for row in rows), max_new_tokens, pad_token_id)


def _row(prompt_ids: tuple[int, ...], completion: Completion, advantage: float) -> TrainRow:
    assert prompt_ids and completion.token_ids, "a row needs a prompt and a completion"
    assert len(completion.logprobs) == completion.length, (len(completion.logprobs), completion.length)
    return TrainRow(prompt_ids, completion.token_ids, completion.logprobs, advantage, completion.kept_tokens)


def _pad(rows: Sequence[Sequence], width: int, value: float, dtype: torch.dtype, *, left: bool = False) -> Tensor:
    padded = [[value] * (width - len(row)) + list(row) if left else list(row) + [value] * (width - len(row)) for row in rows]
    return torch.tensor(padded, dtype=dtype)
