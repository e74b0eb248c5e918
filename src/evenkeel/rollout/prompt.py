"""From a task to prompt tokens. The prompt is tokenised alone; what is sampled after it is never re-tokenised."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenkeel.records import Task

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

INSTRUCTION = (
    "Write the Python function `{entry_point}` that the following asks for. "
    "Answer with the whole function in one ```python block.\n\n{prompt}"
)


def prompt_text(tokenizer: PreTrainedTokenizerBase, task: Task) -> str:
    """What the model reads: the prompt itself, or the chat template around an instruction where the tokenizer has one."""
    if not tokenizer.chat_template:
        return task.prompt
    message = {"role": "user", "content": INSTRUCTION.format(entry_point=task.entry_point, prompt=task.prompt)}
    return tokenizer.apply_chat_template([message], tokenize=False, add_generation_prompt=True)


def prompt_tokens(tokenizer: PreTrainedTokenizerBase, task: Task) -> tuple[int, ...]:
    """Token ids, length >= 1. A chat template writes its special tokens itself; a plain prompt gets the tokenizer's own
    (a beginning-of-sequence token where the model was trained with one), but never an end-of-sequence token."""
    ids = tokenizer.encode(prompt_text(tokenizer, task), add_special_tokens=not tokenizer.chat_template)
    if len(ids) > 1 and ids[-1] == tokenizer.eos_token_id:
        ids = ids[:-1]
    return tuple(ids)
