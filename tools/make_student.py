"""Make the embedded student: tokenizer, corpus, supervised training, checkpoint.

    python tools/make_student.py --out DIR

Two corpora, both drawn from the compositions of the train split only. On the first, without slips, it learns to write
code; that checkpoint is the *twin*, which shows what the architecture can reach and is not shipped. On the second, every
step that has a slip is written wrongly in 64 % of its occurrences: the student learns the habit, prefers the wrong form,
and still samples the right one. That is what reinforcement learning can bring out again. Why each corpus must be learnt
to the end: `docs/log.md`.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from evenkeel.records import TestCase
from evenkeel.tasks.synthetic import (
    CORPUS_STEPS,
    Composition,
    draw_argument,
    draw_composition,
    run_body,
    split_of,
    write_body,
    write_prompt,
)

SLIP_SHARE = 0.64
"""Less, and the start is above 0.32; more, and parts get so rare that sampling seldom finds them."""
VOCABULARY = 512
END, PAD = "<|end|>", "<|pad|>"


def draw_pair(rng: random.Random, slip_share: float) -> tuple[str, str]:
    """One prompt and one body of a train composition."""
    while True:
        steps: Composition = draw_composition(rng, CORPUS_STEPS)
        if split_of(steps) != "train":
            continue
        argument = draw_argument(steps[0].part.takes, rng, short=True)
        expected = run_body(steps, write_body(steps), argument)
        if len(repr(expected)) > 60:
            continue
        slips = tuple(step.part.slip is not None and rng.random() < slip_share for step in steps)
        return write_prompt(steps, TestCase((argument,), expected, visible=True)), write_body(steps, slips)


def train_tokenizer(seed: int) -> PreTrainedTokenizerFast:
    """Byte-level BPE. Digits stay single, so that numbers are copied digit by digit; lines are not crossed, words may be."""
    rng = random.Random(f"tokenizer/{seed}")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\n"), "isolated"),
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[PAD, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((part for _ in range(20_000) for part in draw_pair(rng, 0.5)), trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token=PAD, model_max_length=512)


def new_model(tokenizer: PreTrainedTokenizerFast, hidden: int, layers: int) -> Qwen2ForCausalLM:
    config = Qwen2Config(
        vocab_size=VOCABULARY, hidden_size=hidden, intermediate_size=3 * hidden, num_hidden_layers=layers,
        num_attention_heads=hidden // 32, num_key_value_heads=hidden // 32, max_position_embeddings=512,
        rope_theta=10_000.0, tie_word_embeddings=True, bos_token_id=None, eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    return Qwen2ForCausalLM(config)


def batches(
    tokenizer: PreTrainedTokenizerFast, rng: random.Random, slip_share: float, rows: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Right-padded ids [B, T] and labels [B, T], -100 on prompts and padding. Rows of like length go together."""
    while True:
        pool = []
        for _ in range(rows * 16):
            prompt, body = draw_pair(rng, slip_share)
            prompt_ids = tokenizer.encode(prompt, add_special_tokens=False)
            pool.append((prompt_ids, tokenizer.encode(body, add_special_tokens=False) + [tokenizer.eos_token_id]))
        pool.sort(key=lambda pair: len(pair[0]) + len(pair[1]))
        chunks = [pool[start : start + rows] for start in range(0, len(pool), rows)]
        rng.shuffle(chunks)
        for chunk in chunks:
            width = max(len(p) + len(b) for p, b in chunk)
            ids = torch.full((len(chunk), width), tokenizer.pad_token_id)
            labels = torch.full((len(chunk), width), -100)
            for row, (p, b) in enumerate(chunk):
                ids[row, : len(p) + len(b)] = torch.tensor(p + b)
                labels[row, len(p) : len(p) + len(b)] = torch.tensor(b)
            yield ids, labels


class Optimizers:
    """Muon for the matrices inside the blocks, AdamW for embeddings and norms: about twice AdamW's progress a step here."""

    def __init__(self, model: Qwen2ForCausalLM):
        inner = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
        outer = [p for name, p in model.named_parameters() if p.ndim != 2 or "embed" in name]
        self.optimizers = [
            torch.optim.Muon(inner, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(outer, betas=(0.9, 0.98), weight_decay=0.0),
        ]

    def step(self, rate: float) -> None:
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
            optimizer.zero_grad()


def train(model: Qwen2ForCausalLM, stream: Iterator, *, steps: int, peak_rate: float, log_path: Path) -> None:
    """Short warmup, then cosine to a twentieth of the peak."""
    optimizers = Optimizers(model)
    started, tokens, running = time.monotonic(), 0, []
    for step in range(1, steps + 1):
        rate = peak_rate * min(1.0, step / 100) * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * step / steps)))
        ids, labels = next(stream)
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizers.step(rate)
        tokens += ids.numel()
        running.append(loss.item())
        if step % 100 == 0 or step == steps:
            seconds = time.monotonic() - started
            loss = sum(running[-100:]) / len(running[-100:])
            line = f"step {step}/{steps} loss {loss:.4f} tokens/s {tokens / seconds:.0f} minutes {seconds / 60:.1f}"
            print(line, flush=True)
            with log_path.open("a") as log:
                log.write(line + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--out", type=Path, required=True, help="gets `twin/` after the clean corpus and `student/` after the other"
    )
    parser.add_argument("--twin", type=Path, help="a finished twin to start the second corpus from, instead of making one")
    parser.add_argument("--clean-steps", type=int, default=2400)
    parser.add_argument("--slip-steps", type=int, default=600)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--rate", type=float, default=6e-3)
    parser.add_argument("--slip-rate", type=float, default=1.5e-3)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--layers", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(arguments.seed)
    tokenizer = train_tokenizer(arguments.seed)
    model = new_model(tokenizer, arguments.hidden, arguments.layers)
    print(f"{model.num_parameters():,} parameters")
    phases = [
        ("twin", 0.0, arguments.clean_steps, arguments.rate),
        ("student", SLIP_SHARE, arguments.slip_steps, arguments.slip_rate),
    ]
    if arguments.twin:
        model, phases = Qwen2ForCausalLM.from_pretrained(arguments.twin), phases[1:]
    for name, slip_share, steps, rate in phases:
        rng = random.Random(f"corpus/{arguments.seed}" if name == "twin" else f"corpus/{name}/{arguments.seed}")
        stream = batches(tokenizer, rng, slip_share, arguments.rows)
        train(model, stream, steps=steps, peak_rate=rate, log_path=arguments.out / "training.log")
        model.save_pretrained(arguments.out / name, safe_serialization=True)
        tokenizer.save_pretrained(arguments.out / name)
        for file in (arguments.out / name).iterdir():
            file.chmod(0o644)  # safetensors writes 0600, and a package is read by everyone
    recipe = {key: value for key, value in vars(arguments).items() if key not in ("out", "twin")} | {"slip_share": SLIP_SHARE}
    (arguments.out / "student" / "recipe.json").write_text(json.dumps(recipe, indent=2) + "\n")


if __name__ == "__main__":
    main()
