"""Stage 6, update: a packed batch in, changed weights and an `UpdateReport` out.

    micro-batch -> log-probabilities of policy (with gradient) and base (without)
                -> loss + kl_penalty * KL - entropy_bonus * entropy, each divided by the counts of the whole step
                -> backward; gradients add up over micro-batches (and processes) -> norm, clip -> AdamW

Because every divisor is a count of the whole optimizer step, the gradient does not depend on how the step was cut into
micro-batches: after an out-of-memory the size halves and the step starts over.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from evenkeel.algorithm.aggregation import AGGREGATIONS, LossInputs
from evenkeel.algorithm.batch import MicroBatch, TrainBatch
from evenkeel.algorithm.kl import k3, kl_term
from evenkeel.algorithm.losses import LOSSES
from evenkeel.config.stages import ObjectiveSettings
from evenkeel.distributed.world import World
from evenkeel.errors import RunError
from evenkeel.policy.logprobs import completion_statistics
from evenkeel.policy.model import Policy
from evenkeel.records import UpdateReport


@dataclass(frozen=True)
class StepSettings:
    """What one optimizer step is told beside its batch."""

    learning_rate: float
    kl_penalty: float
    max_grad_norm: float
    micro_batch_size: int


@dataclass
class RolloutMemory:
    """What the first update on a rollout computed and the later ones reuse, by row of the batch."""

    old_logprobs: dict[int, Tensor] = field(default_factory=dict)
    """Under the policy before the first update: what importance ratios compare with."""
    reference_logprobs: dict[int, Tensor] = field(default_factory=dict)
    """Under the base."""


@dataclass
class _Totals:
    """Sums over the micro-batches of one process."""

    loss: float = 0.0
    policy_loss: float = 0.0
    kl: float = 0.0
    sampler_kl: float = 0.0
    entropy: float = 0.0
    tokens: float = 0.0
    clipped: float = 0.0
    ratio_max: float = 0.0

    def summed(self, world: World) -> _Totals:
        numbers = [self.loss, self.policy_loss, self.kl, self.sampler_kl, self.entropy, self.tokens, self.clipped]
        return _Totals(*world.sum_numbers(numbers), ratio_max=max(world.gather([self.ratio_max])))


class Updater:
    """Applies optimizer steps to a policy. Holds the optimizer and the micro-batch size that fits the memory."""

    def __init__(self, policy: Policy, optimizer: torch.optim.Optimizer, objective: ObjectiveSettings, world: World):
        self.policy = policy
        self.optimizer = optimizer
        self._objective = objective
        self._loss = LOSSES[objective.loss]
        self._aggregate = AGGREGATIONS[objective.loss]
        self._world = world
        self.reference_seconds = 0.0
        """Wall clock that the last update spent on the base model."""

    def update(self, batch: TrainBatch, settings: StepSettings, memory: RolloutMemory) -> UpdateReport:
        """One optimizer step. Not finite: nothing is applied, and the report says what was seen."""
        self.reference_seconds = 0.0
        if not batch.rows:
            return self._dropped(settings, batch, "no sample had anything to teach", nonfinite=False)
        size = settings.micro_batch_size
        while (totals := self._backward_all(batch, size, settings, memory)) is None:
            if size == 1:
                raise RunError(
                    "Out of memory with a single completion per micro-batch. Lower `rlaif.max_new_tokens`, set "
                    "`model.gradient_checkpointing: true`, or choose a smaller model."
                )
            size = max(1, size // 2)
        return self._apply(batch, size, settings, totals)

    def _backward_all(self, batch: TrainBatch, size: int, settings: StepSettings, memory: RolloutMemory) -> _Totals | None:
        """Gradients of the whole step, summed over processes; None when memory ran out in any of them."""
        self.optimizer.zero_grad(set_to_none=True)
        self.policy.model.train()
        totals, out_of_memory = _Totals(), False
        try:
            for micro in self._world.share(batch.micro_batches(size)):
                self._backward(micro.to(self.policy.device), batch, settings, memory, totals)
        except torch.OutOfMemoryError:
            out_of_memory = True
        if self._world.sum_numbers([float(out_of_memory)])[0] > 0:
            if self.policy.device.type == "cuda":
                torch.cuda.empty_cache()
            return None
        self._world.sum_gradients(parameter for _, parameter in self.policy.trainable())
        return totals.summed(self._world)

    def _backward(
        self, micro: MicroBatch, batch: TrainBatch, settings: StepSettings, memory: RolloutMemory, totals: _Totals
    ) -> None:
        with_bonus = self._objective.entropy_bonus > 0
        reference_BC = self._remembered(memory.reference_logprobs, micro, lambda: self._reference(micro))
        with self.policy.precision():
            now = completion_statistics(
                self.policy.model, micro, temperature=self._objective.temperature, entropy_gradient=with_bonus
            )
        old_BC = self._remembered(memory.old_logprobs, micro, lambda: now.logprobs_BC.detach())
        inputs = LossInputs(
            now.logprobs_BC, old_BC, micro.advantages_B, micro.mask_BC, self._objective.clip_low, self._objective.clip_high,
            batch.num_sequences, batch.num_tokens, batch.max_new_tokens,
        )  # fmt: skip
        value = self._loss(inputs)
        loss = value.loss
        if settings.kl_penalty > 0 and self._objective.kl_placement == "loss":
            loss = loss + settings.kl_penalty * kl_term(inputs, reference_BC, self._objective.kl_estimator, self._aggregate)
        if with_bonus:
            loss = loss - self._objective.entropy_bonus * self._aggregate(now.entropy_BC, inputs)
        loss.backward()
        with torch.no_grad():
            _add_up(totals, micro, inputs, reference_BC, now.entropy_BC, loss, value)

    def _reference(self, micro: MicroBatch) -> Tensor:
        started = time.monotonic()
        with torch.no_grad(), self.policy.precision(), self.policy.reference() as base:
            was_training = base.training
            base.eval()
            logprobs_BC = completion_statistics(base, micro, temperature=self._objective.temperature).logprobs_BC
            base.train(was_training)
        self.reference_seconds += time.monotonic() - started
        return logprobs_BC

    def _remembered(self, known: dict[int, Tensor], micro: MicroBatch, compute: Callable[[], Tensor]) -> Tensor:
        """Log-probabilities [B, C] of these rows: from memory where they are, else computed and kept."""
        if all(row in known for row in micro.row_indices):
            width = micro.mask_BC.shape[1]
            return torch.stack([torch.nn.functional.pad(known[row], (0, width - len(known[row]))) for row in micro.row_indices])
        values_BC = compute()
        for values_C, length, row in zip(values_BC, micro.mask_BC.sum(1).long().tolist(), micro.row_indices, strict=True):
            known[row] = values_C[:length].clone()
        return values_BC

    def _apply(self, batch: TrainBatch, size: int, settings: StepSettings, totals: _Totals) -> UpdateReport:
        parameters = [parameter for _, parameter in self.policy.trainable()]
        grad_norm = torch.nn.utils.clip_grad_norm_(parameters, settings.max_grad_norm).item()
        if not (math.isfinite(grad_norm) and math.isfinite(totals.loss)):
            self.optimizer.zero_grad(set_to_none=True)
            return self._dropped(settings, batch, f"loss {totals.loss:g}, gradient norm {grad_norm:g}", nonfinite=True)
        for group in self.optimizer.param_groups:
            group["lr"] = settings.learning_rate
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        tokens = max(totals.tokens, 1.0)
        return UpdateReport(
            loss=totals.loss, policy_loss=totals.policy_loss, kl_to_reference=totals.kl / tokens,
            kl_sampler_to_trainer=totals.sampler_kl / tokens, entropy=totals.entropy / tokens, grad_norm=grad_norm,
            grad_clipped=grad_norm > settings.max_grad_norm, clip_fraction=totals.clipped / tokens, ratio_max=totals.ratio_max,
            learning_rate=settings.learning_rate, kl_penalty=settings.kl_penalty, trained_tokens=batch.num_tokens,
            trained_samples=batch.num_sequences, micro_batch_size=size,
        )  # fmt: skip

    def _dropped(self, settings: StepSettings, batch: TrainBatch, reason: str, *, nonfinite: bool) -> UpdateReport:
        return UpdateReport(
            loss=0.0, policy_loss=0.0, kl_to_reference=0.0, kl_sampler_to_trainer=0.0, entropy=0.0, grad_norm=0.0,
            grad_clipped=False, clip_fraction=0.0, ratio_max=0.0,
            learning_rate=settings.learning_rate, kl_penalty=settings.kl_penalty,
            trained_tokens=batch.num_tokens, trained_samples=batch.num_sequences, applied=False, dropped_reason=reason,
            nonfinite=nonfinite,
        )  # fmt: skip


def _add_up(
    totals: _Totals, micro: MicroBatch, inputs: LossInputs, reference_BC: Tensor, entropy_BC: Tensor, loss: Tensor, value
) -> None:
    """Diagnostics of one micro-batch. Padding is 0 on both sides of every difference, so sums need no mask."""
    logprobs_BC = inputs.logprobs_BC.detach()
    totals.loss += loss.item()
    totals.policy_loss += value.loss.item()
    totals.kl += k3(logprobs_BC, reference_BC).sum().item()
    totals.sampler_kl += k3(micro.sampler_logprobs_BC, inputs.old_logprobs_BC).sum().item()
    totals.entropy += entropy_BC.sum().item()
    totals.tokens += micro.num_tokens
    totals.clipped += value.clipped_tokens.item()
    totals.ratio_max = max(totals.ratio_max, (logprobs_BC - inputs.old_logprobs_BC).exp().max().item())


def make_optimizer(policy: Policy, *, betas: tuple[float, float], epsilon: float, weight_decay: float) -> torch.optim.AdamW:
    """AdamW on the parameters that train. The rate is set before every step by the schedule, so 0 here is never used."""
    parameters = [parameter for _, parameter in policy.trainable()]
    return torch.optim.AdamW(parameters, lr=0.0, betas=betas, eps=epsilon, weight_decay=weight_decay)
