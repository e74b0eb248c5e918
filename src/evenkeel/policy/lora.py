"""The adapter: attach, continue, grow, and fold into a working copy for sampling."""

from __future__ import annotations

import copy
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model, prepare_model_for_kbit_training
from peft.tuners.lora import LoraLayer
from torch import nn
from transformers import PreTrainedModel

from evenkeel.config.schema import ModelSettings
from evenkeel.errors import UsageError
from evenkeel.policy.model import Policy, end_tokens, load_base, resolve_device, resolve_dtype

ADAPTER = "default"


def load_policy(settings: ModelSettings, device_name: str) -> Policy:
    """The student as the configuration asks for it. Adapter weights are float32 whatever the base is: small updates
    would be rounded away in bfloat16."""
    device = resolve_device(device_name)
    full = settings.method == "full"
    base, tokenizer = load_base(settings.model_copy(update={"dtype": "float32"}) if full else settings, device)
    eos_ids = end_tokens(base, tokenizer)
    pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else min(eos_ids)
    if full:
        wanted = resolve_dtype(settings.dtype, device)
        frozen = copy.deepcopy(base).requires_grad_(False).eval()
        _enable_checkpointing(base, settings)
        compute_dtype = None if wanted == torch.float32 else wanted
        return Policy(base.requires_grad_(True), tokenizer, eos_ids, pad_id, device, compute_dtype, frozen_base=frozen)
    if settings.quantization == "4bit":
        base = prepare_model_for_kbit_training(base, use_gradient_checkpointing=False)
    model = attach_adapter(base, settings)
    _enable_checkpointing(base, settings)
    return Policy(model, tokenizer, eos_ids, pad_id, device)


def attach_adapter(base: PreTrainedModel, settings: ModelSettings) -> PeftModel:
    """A fresh adapter on all linear layers but the output head, or the one that `model.adapter` names."""
    if settings.adapter is None:
        config = LoraConfig(
            r=settings.lora_r, lora_alpha=settings.lora_alpha, lora_dropout=settings.lora_dropout, target_modules="all-linear",
            task_type="CAUSAL_LM",
        )  # fmt: skip
        return get_peft_model(base, config, autocast_adapter_dtype=True)
    if not Path(settings.adapter, "adapter_config.json").is_file():
        raise UsageError(
            f"`model.adapter` is `{settings.adapter}`, but there is no `adapter_config.json` in it. "
            "Give the directory of a PEFT adapter, for example `checkpoints/step-000040/adapter` of a run."
        )
    try:
        model = PeftModel.from_pretrained(base, settings.adapter, is_trainable=True)
    except (ValueError, RuntimeError, OSError) as error:
        raise UsageError(f"The adapter `{settings.adapter}` does not fit the model `{settings.name}`: {error}") from error
    grow_adapter(model, settings.lora_r, settings.lora_alpha)
    return model


def lora_layers(model: nn.Module) -> list[tuple[str, LoraLayer]]:
    return [(name, module) for name, module in model.named_modules() if isinstance(module, LoraLayer)]


def grow_adapter(model: PeftModel, rank: int, alpha: float) -> None:
    """Give the adapter a higher rank without changing the function it computes.

        delta = (alpha/r) B A  =  (alpha'/r') [B * (alpha r') / (alpha' r) | 0] [A ; A_new]

    The new rows of A are drawn as peft draws them, the new columns of B are 0. Raises UsageError for a lower rank: that
    would lose what was learnt.
    """
    config = model.peft_config[ADAPTER]
    if rank < config.r:
        raise UsageError(f"`model.lora_r` is {rank}, but the adapter has rank {config.r}: it can grow, not shrink.")
    if rank == config.r and alpha == config.lora_alpha:
        return
    rescale = (config.lora_alpha / config.r) / (alpha / rank)
    for _, layer in lora_layers(model):
        old_a, old_b = layer.lora_A[ADAPTER], layer.lora_B[ADAPTER]
        new_a = nn.Linear(old_a.in_features, rank, bias=False).to(old_a.weight)
        new_b = nn.Linear(rank, old_b.out_features, bias=False).to(old_b.weight)
        with torch.no_grad():
            nn.init.kaiming_uniform_(new_a.weight, a=5**0.5)
            new_a.weight[: config.r] = old_a.weight
            new_b.weight.zero_()
            new_b.weight[:, : config.r] = old_b.weight * rescale
        layer.lora_A[ADAPTER], layer.lora_B[ADAPTER] = new_a, new_b
        layer.r[ADAPTER], layer.lora_alpha[ADAPTER], layer.scaling[ADAPTER] = rank, alpha, alpha / rank
    config.r, config.lora_alpha = rank, alpha


class FoldedCopy:
    """A working copy of the base into which the adapter is folded before each rollout; the base itself is never touched.

    W' = W + (alpha/r) B A. Decoding then costs what the plain model costs. Only for float32 weights: folding into bfloat16
    rounds small updates away, so there the adapter stays attached while sampling.
    """

    def __init__(self, policy: Policy):
        self._layers = lora_layers(policy.model)
        self.model = copy.deepcopy(policy.model).unload().requires_grad_(False).eval()
        modules = dict(self.model.named_modules())
        prefix = "base_model.model."
        self._targets = [modules[name.removeprefix(prefix)] for name, _ in self._layers]

    @torch.no_grad()
    def refresh(self) -> nn.Module:
        for (_, layer), target in zip(self._layers, self._targets, strict=True):
            torch.add(layer.get_base_layer().weight, layer.get_delta_weight(ADAPTER), out=target.weight)
        return self.model


def can_fold(policy: Policy) -> bool:
    weights_are_float32 = all(p.dtype == torch.float32 for p in policy.model.parameters())
    return policy.uses_adapter and weights_are_float32


def _enable_checkpointing(base: PreTrainedModel, settings: ModelSettings) -> None:
    if settings.gradient_checkpointing:
        base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        base.enable_input_require_grads()
