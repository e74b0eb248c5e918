"""Load a student: any causal language model in the Hugging Face format, with or without an adapter.

The embedded student goes through the same door as every other model; only its directory is ours.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import torch
import transformers
from safetensors import SafetensorError
from tokenizers import Tokenizer
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from evenkeel.config.schema import ModelSettings
from evenkeel.errors import MissingExtra, UsageError

transformers.utils.logging.disable_progress_bar()
# transformers renames gradient to activation checkpointing; peft 0.21 and the releases that we support use the old names.
warnings.filterwarnings("ignore", message=r"`\w*gradient_checkpointing\w*` is deprecated", category=FutureWarning)

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass
class Policy:
    """The student in training, and its unchanged base.

    `model` is a `PeftModel` with `method: lora`, the plain model with `method: full`.
    """

    model: nn.Module
    tokenizer: PreTrainedTokenizerBase
    eos_ids: frozenset[int]
    """Every token that ends a completion: of the tokenizer, the model's and the generation configuration. Never empty."""
    pad_id: int
    device: torch.device
    compute_dtype: torch.dtype | None = None
    """Autocast to this in the forward pass; None: compute in the type of the weights. Set with `method: full`, whose weights
    stay float32, because AdamW's small steps would be rounded away in bfloat16."""
    frozen_base: PreTrainedModel | None = None
    """With `method: full`: the copy that KL is measured against. With LoRA the base is the model without its adapter."""

    @property
    def uses_adapter(self) -> bool:
        return self.frozen_base is None

    def precision(self) -> torch.autocast:
        """Around every forward pass, in sampling and in training."""
        return torch.autocast(self.device.type, dtype=self.compute_dtype, enabled=self.compute_dtype is not None)

    @contextmanager
    def reference(self) -> Iterator[nn.Module]:
        """The base model, for KL: the adapter switched off, or the frozen copy."""
        if self.frozen_base is not None:
            yield self.frozen_base
            return
        with self.model.disable_adapter():
            yield self.model

    def trainable(self) -> list[tuple[str, nn.Parameter]]:
        return [(name, parameter) for name, parameter in self.model.named_parameters() if parameter.requires_grad]


def embedded_student() -> Path:
    """Directory of the student that ships with the package."""
    return Path(str(files("evenkeel.embedded").joinpath("student")))


def resolve_device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise UsageError("`training.device` is cuda, but torch finds no CUDA device. Set it to `auto` or `cpu`.")
    if name == "mps" and not torch.backends.mps.is_available():
        raise UsageError("`training.device` is mps, but torch finds no Apple GPU. Set it to `auto` or `cpu`.")
    return torch.device(name)


def resolve_dtype(name: str, device: torch.device) -> torch.dtype:
    if name != "auto":
        return DTYPES[name]
    return torch.bfloat16 if device.type == "cuda" and torch.cuda.is_bf16_supported() else torch.float32


def load_base(settings: ModelSettings, device: torch.device) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model and its tokenizer, in eval mode. Code that a model directory brings along is never run.

    Raises UsageError: no such directory, no tokenizer in it, weights that cannot be read, a hub that cannot be reached.
    """
    source = str(embedded_student()) if settings.name == "embedded" else settings.name
    looks_local = source.startswith((".", "/", "~")) or Path(source).exists()
    source = str(Path(source).expanduser()) if looks_local else source
    if looks_local and not Path(source, "config.json").is_file():
        raise UsageError(
            f"`model.name` is `{settings.name}`, but there is no `config.json` in that directory. Give a directory in the "
            "Hugging Face format (config.json, tokenizer.json, model.safetensors), a hub name, or `embedded`."
        )
    return _load_weights(settings, source, device), _load_tokenizer(settings.name, source)


def _load_tokenizer(name: str, source: str) -> PreTrainedTokenizerBase:
    found = [
        file
        for file in ("tokenizer.json", "tokenizer.model", "vocab.json", "tokenizer_config.json")
        if Path(source, file).is_file()
    ]
    if Path(source).is_dir() and not found:
        raise UsageError(
            f"`model.name` is `{name}`, but that directory has no tokenizer (tokenizer.json, tokenizer.model or vocab.json). "
            "Copy the tokenizer's files of the model it came from into it."
        )
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
        return tokenizer if _follows_its_file(tokenizer, source) else PreTrainedTokenizerFast.from_pretrained(source)
    except (OSError, ValueError) as error:
        raise UsageError(f"The tokenizer of `{name}` could not be loaded: {_first_line(error)}") from error


def _follows_its_file(tokenizer: PreTrainedTokenizerBase, source: str) -> bool:
    """Whether AutoTokenizer built what tokenizer.json says.

    For some model types (qwen2 among them) transformers 5 takes the class of the model type whatever the files say, and the
    class brings its own way of cutting text into words. A model with a tokenizer of its own then reads other tokens than it
    was trained on, in silence. The file is the truth.
    """
    file = Path(source, "tokenizer.json")
    if not file.is_file() or not tokenizer.is_fast:
        return True
    written = Tokenizer.from_file(str(file))
    return str(written.pre_tokenizer) == str(tokenizer.backend_tokenizer.pre_tokenizer)


def _load_weights(settings: ModelSettings, source: str, device: torch.device) -> PreTrainedModel:
    arguments: dict = {"dtype": resolve_dtype(settings.dtype, device), "trust_remote_code": False, "use_safetensors": True}
    if settings.quantization == "4bit":
        arguments["quantization_config"] = _four_bit(device)
    try:
        model = AutoModelForCausalLM.from_pretrained(source, **arguments)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise UsageError(
            f"The model `{settings.name}` could not be loaded: {_first_line(error)}. "
            "A directory must hold config.json and safetensors weights; a hub name needs the network or a filled cache."
        ) from error
    return (model if settings.quantization == "4bit" else model.to(device)).eval()


def _four_bit(device: torch.device) -> object:
    try:
        import bitsandbytes  # noqa: F401
    except ImportError as error:
        raise MissingExtra("bitsandbytes", "quantized", "`model.quantization: 4bit`") from error
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=resolve_dtype("auto", device),
    )  # fmt: skip


def end_tokens(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Every id that ends a completion. Several sources name several ids: missing one looks like truncation (TRL #7039)."""
    found: set[int] = set()
    for value in (tokenizer.eos_token_id, model.config.eos_token_id, model.generation_config.eos_token_id):
        found |= set(value) if isinstance(value, (list, tuple)) else {value} if value is not None else set()
    if not found:
        raise UsageError(
            "Neither the tokenizer nor the model's configuration names an end-of-sequence token, so no completion could end. "
            "Set `eos_token_id` in the model's config.json."
        )
    return frozenset(found)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
