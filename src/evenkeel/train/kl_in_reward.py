"""The KL part of the reward, with `rlaif.kl_placement: reward`: measured on the samples before credit is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from evenkeel.algorithm.advantages import KlInReward
from evenkeel.algorithm.batch import pack_all
from evenkeel.policy.logprobs import completion_statistics
from evenkeel.records import ScoredGroup

if TYPE_CHECKING:
    from evenkeel.train.build import Run


def measured_kl(run: Run, groups: Sequence[ScoredGroup]) -> KlInReward | None:
    """Sum of k1 = log policy - log base over each completion, nats; None when the penalty is not in the reward."""
    if run.settings.objective.kl_placement != "reward" or run.kl.kl_penalty == 0:
        return None
    batch = pack_all(groups, pad_token_id=run.policy.pad_id, max_new_tokens=run.settings.sampling.max_new_tokens)
    nats = [0.0] * len(batch.rows)
    temperature = run.settings.objective.temperature
    run.policy.model.eval()
    with torch.no_grad(), run.policy.precision():
        for micro in batch.micro_batches(run.position.micro_batch_size):
            micro = micro.to(run.policy.device)
            own_BC = completion_statistics(run.policy.model, micro, temperature=temperature).logprobs_BC
            with run.policy.reference() as base:
                base_BC = completion_statistics(base, micro, temperature=temperature).logprobs_BC
            for row, value in zip(micro.row_indices, (own_BC - base_BC).sum(1).tolist(), strict=True):
                nats[row] = value
    values = iter(nats)
    return KlInReward(run.kl.kl_penalty, tuple(tuple(next(values) for _ in group.samples) for group in groups))
