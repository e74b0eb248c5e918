"""How much memory a run needs, from the model's `config.json` alone. Torch-free; an
estimate by the formulas below, to tell 8 GiB from 80, not a promise.

    config.json --read_model_facts--> ModelFacts --estimate_memory--> MemoryEstimate

Peak = weights + trainable state + the larger of one micro-batch's update and the sampling cache.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from evenkeel.config.length import tasks_per_rollout
from evenkeel.config.schema import RunConfig

GIB = 2**30
DECODED_ROWS = 256
"""Most completions that the `hf` engine decodes together (`MAX_ROWS` in rollout/hf.py; a test compares)."""
LOGIT_COPIES = 5
"""Float32 matrices of completions x vocabulary alive in the backward pass: scaled logits, their log-softmax, its gradient, that
of the logits, and one temporary."""
FOUR_BIT_BYTES = 0.56
"""4 bits and the double-quantised scales of nf4 blocks of 64."""


@dataclass(frozen=True)
class ModelFacts:
    """The sizes of a decoder of the Llama and Qwen family.

    >>> qwen = ModelFacts(896, 24, 151_936, 14, 2, 64, 4864, tied_embeddings=True)  # Qwen2.5-Coder-0.5B
    >>> round(qwen.num_parameters / 1e6)
    494
    """

    hidden_size: int
    num_layers: int
    vocab_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    tied_embeddings: bool

    @property
    def linear_shapes(self) -> tuple[tuple[int, int], ...]:
        """(in, out) of the linear maps of one layer: q, k, v, o, gate, up, down."""
        width, queries, keys = self.hidden_size, self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        inner = self.intermediate_size
        return (width, queries), (width, keys), (width, keys), (queries, width), (width, inner), (width, inner), (inner, width)

    @property
    def num_linear_parameters(self) -> int:
        return self.num_layers * sum(inputs * outputs for inputs, outputs in self.linear_shapes)

    @property
    def num_parameters(self) -> int:
        """Linear maps, embedding and output head; norms and biases are below a thousandth."""
        return self.num_linear_parameters + self.vocab_size * self.hidden_size * (1 if self.tied_embeddings else 2)

    def num_adapter_parameters(self, rank: int) -> int:
        """A [r, in] and B [out, r] on every linear map of every layer."""
        return self.num_layers * rank * sum(inputs + outputs for inputs, outputs in self.linear_shapes)


@dataclass(frozen=True)
class MemoryEstimate:
    """All in GiB."""

    weights: float
    """The model, and its second copy: the frozen base of full fine-tuning, or the float32 copy into which LoRA is folded to
    sample."""
    trainable: float
    """Adapter (or nothing, with `full`), gradients and AdamW's two moments."""
    update: float
    """Activations and logits of one micro-batch."""
    sampling: float
    """Keys and values of the completions decoded together."""
    assumed_dtype: str
    """`float32`, `bfloat16` or `float16`: what `dtype: auto` was taken for."""

    @property
    def total(self) -> float:
        return self.weights + self.trainable + max(self.update, self.sampling)


def find_model_facts(name: str) -> ModelFacts | None:
    """Facts of the embedded student, of a directory, or of a hub model in the local cache; None when none is there."""
    if name == "embedded":
        return read_model_facts(Path(str(files("evenkeel").joinpath("embedded", "student", "config.json"))))
    local = Path(name).expanduser() / "config.json"
    if local.is_file():
        return read_model_facts(local)
    try:
        from huggingface_hub import try_to_load_from_cache
        from huggingface_hub.errors import HFValidationError
    except ImportError:
        return None
    try:
        cached = try_to_load_from_cache(name, "config.json")
    except HFValidationError:
        return None
    return read_model_facts(Path(cached)) if isinstance(cached, str) else None


def read_model_facts(path: Path) -> ModelFacts | None:
    """None for a file that is absent, unreadable or of another family: the plan then has no memory estimate."""
    try:
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        heads = values["num_attention_heads"]
        return ModelFacts(
            hidden_size=values["hidden_size"],
            num_layers=values["num_hidden_layers"],
            vocab_size=values["vocab_size"],
            num_heads=heads,
            num_kv_heads=values.get("num_key_value_heads") or heads,
            head_dim=values.get("head_dim") or values["hidden_size"] // heads,
            intermediate_size=values["intermediate_size"],
            tied_embeddings=bool(values.get("tie_word_embeddings", False)),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def estimate_memory(config: RunConfig, facts: ModelFacts, *, prompt_tokens: float, num_validation_tasks: int) -> MemoryEstimate:
    """Weights, trainable state, and the larger of update and sampling.

    prompt_tokens: tokens of a typical prompt.
    """
    dtype = _dtype(config)
    width = 4 if dtype == "float32" else 2
    return MemoryEstimate(
        weights=_weight_bytes(config, facts, width) / GIB,
        trainable=_trainable_bytes(config, facts, width) / GIB,
        update=_update_bytes(config, facts, width, prompt_tokens) / GIB,
        sampling=_sampling_bytes(config, facts, width, prompt_tokens, num_validation_tasks) / GIB,
        assumed_dtype=dtype,
    )


def _dtype(config: RunConfig) -> str:
    """`auto` is float32 on CPU; where the device is `auto` too, a model of one's own is taken to run on a GPU."""
    if config.model.dtype != "auto":
        return config.model.dtype
    on_gpu = config.training.device == "cuda" or (config.training.device == "auto" and config.model.name != "embedded")
    return "bfloat16" if on_gpu else "float32"


def _weight_bytes(config: RunConfig, facts: ModelFacts, width: int) -> float:
    if config.model.quantization == "4bit":
        return facts.num_linear_parameters * FOUR_BIT_BYTES + (facts.num_parameters - facts.num_linear_parameters) * width
    copies = 2 if config.model.method == "full" or width == 4 else 1
    return copies * facts.num_parameters * width


def _trainable_bytes(config: RunConfig, facts: ModelFacts, width: int) -> float:
    """LoRA in float32: weight 4, gradient 4, two moments 8. Full: gradient and two moments in the model's own width."""
    if config.model.method == "full":
        return facts.num_parameters * 3 * width
    return facts.num_adapter_parameters(config.model.lora_r) * 16


def _update_bytes(config: RunConfig, facts: ModelFacts, width: int, prompt_tokens: float) -> float:
    """What the backward pass of one micro-batch keeps.

    per token and layer: width * (4 H + 2 h_q d + 2 h_kv d + 4 I)       norms in and out; q and attention; k, v; the gated MLP
    below float32 also:  16 H for the norms, and with LoRA 4 * (5 H + h_q d + I): each adapter casts its own input
    with checkpointing:  width * H per layer, and one whole layer
    logits:              LOGIT_COPIES * 4 * completion tokens * V
    """
    hidden, queries, keys = facts.hidden_size, facts.num_heads * facts.head_dim, facts.num_kv_heads * facts.head_dim
    layer = width * (4 * hidden + 2 * queries + 2 * keys + 4 * facts.intermediate_size)
    if width < 4:
        layer += 16 * hidden
        layer += 4 * (5 * hidden + queries + facts.intermediate_size) if config.model.method == "lora" else 0
    layers = facts.num_layers * width * hidden + layer if config.model.gradient_checkpointing else facts.num_layers * layer
    rows, new_tokens = config.training.batch_size, config.rlaif.max_new_tokens
    logits = LOGIT_COPIES * 4 * rows * new_tokens * facts.vocab_size
    return rows * (prompt_tokens + new_tokens) * layers + logits


def _sampling_bytes(config: RunConfig, facts: ModelFacts, width: int, prompt_tokens: float, num_validation_tasks: int) -> float:
    """Keys and values of all rows decoded together, at full length: rows * tokens * layers * 2 * h_kv d * width."""
    samples = config.rlaif.num_samples_per_prompt
    wanted = max(tasks_per_rollout(config) * samples, num_validation_tasks * config.evaluation.num_samples)
    rows = max(samples, min(wanted, DECODED_ROWS))
    return (
        rows
        * (prompt_tokens + config.rlaif.max_new_tokens)
        * facts.num_layers
        * 2
        * facts.num_kv_heads
        * facts.head_dim
        * width
    )
