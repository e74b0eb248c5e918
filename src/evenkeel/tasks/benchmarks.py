"""HumanEval and MBPP as published, and the warning when training has seen them.

    HumanEval   {"task_id", "prompt", "entry_point", "canonical_solution", "test"}                    openai/human-eval
    MBPP        {"task_id", "text", "code", "test_list", "test_setup_code", "challenge_test_list"}    google-research mbpp.jsonl
    sanitized   {"task_id", "prompt", "code", "test_list", "test_imports"}                            sanitized-mbpp.json

Their tests are asserts: see `Task.assert_source`. MBPP has no entry point of its own: it is the function that the first
assert calls and the reference defines. Its prompt is given in the usual form, a docstring with the text and the tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from evenkeel.records import Task
from evenkeel.tasks.base import defines, preamble_of

_CALL = re.compile(r"([A-Za-z_]\w*)\s*\(")
_ASSERT = re.compile(r"\bassert\b|^[ \t]*def check\b|\bcheck\s*\(", re.MULTILINE)
_SHOWN_TASKS = 5


class BadTask(Exception):
    """A row is no task; the message is the reason."""


def is_human_eval(row: Mapping[str, Any]) -> bool:
    return "canonical_solution" in row and "test" in row


def is_mbpp(row: Mapping[str, Any]) -> bool:
    return "test_list" in row and "code" in row


def human_eval_task(row: Mapping[str, Any]) -> Task:
    """A HumanEval row; raises BadTask."""
    task_id, prompt, entry_point, reference, test = (
        text_of(row, name) for name in ("task_id", "prompt", "entry_point", "canonical_solution", "test")
    )
    return Task(task_id, prompt, entry_point, assert_source=with_preamble(prompt, entry_point, test), reference=reference)


def mbpp_task(row: Mapping[str, Any]) -> Task:
    """An MBPP row of either flavour; raises BadTask."""
    asserts = row.get("test_list")
    if not isinstance(asserts, (list, tuple)) or not asserts or not all(isinstance(line, str) for line in asserts):
        raise BadTask("no tests: test_list must be a list of asserts")
    if row.get("task_id") is None:
        raise BadTask("task_id is missing")
    text = text_of(row, "text" if "text" in row else "prompt")
    code = text_of(row, "code").replace("\r\n", "\n")
    entry_point = _entry_point(asserts, code)
    imports = [line for line in row.get("test_imports") or () if isinstance(line, str)]
    setup = row.get("test_setup_code") or ""
    source = "\n".join([*imports, setup, *asserts]) + "\n"
    shown = "\n".join(asserts)
    prompt = f'"""\n{text.strip()}\n{shown}\n"""\n'
    task_id = str(row["task_id"])
    return Task(task_id if "/" in task_id else f"MBPP/{task_id}", prompt, entry_point, assert_source=source, reference=code)


def with_preamble(prompt: str, entry_point: str, asserts: str) -> str:
    """Asserts made to stand alone: what the prompt has before the entry point (imports, helpers that tests use) comes first."""
    if not _ASSERT.search(asserts):
        raise BadTask("no tests: the test source has neither an assert nor a check(candidate)")
    preamble = preamble_of(prompt, entry_point)
    return asserts if not preamble.strip() or asserts.startswith(preamble) else preamble + "\n" + asserts


def overlap(train_tasks: Iterable[Task], benchmark_tasks: Iterable[Task]) -> list[str]:
    """Warnings, one for each way in which train tasks are also in the benchmark; empty when none is.

    >>> task = Task("a", "def f(x):\\n    # Double it.\\n", "f")
    >>> overlap([task], [Task("b", "def f(x):   # double it", "f")])
    ['1 of 1 train tasks have the prompt of a benchmark task (a): a score on that benchmark is no measure of learning.']
    """
    train, benchmark = list(train_tasks), list(benchmark_tasks)
    prompts = {_words(task.prompt) for task in benchmark}
    solutions = {_solution(task) for task in benchmark if task.reference}
    same_prompt = [task.task_id for task in train if _words(task.prompt) in prompts]
    same_solution = [
        task.task_id
        for task in train
        if task.reference and _solution(task) in solutions and task.task_id not in set(same_prompt)
    ]
    warnings = []
    for found, what in ((same_prompt, "prompt"), (same_solution, "function name and reference")):
        if found:
            shown = ", ".join(found[:_SHOWN_TASKS]) + (", ..." if len(found) > _SHOWN_TASKS else "")
            warnings.append(
                f"{len(found)} of {len(train)} train tasks have the {what} of a benchmark task ({shown}): "
                "a score on that benchmark is no measure of learning."
            )
    return warnings


def _words(text: str) -> str:
    """What a prompt says, however it is set: no letter case, space or punctuation."""
    return " ".join(re.findall(r"\w+", text.casefold()))


def _solution(task: Task) -> tuple[str, str]:
    """Function name and reference without comments and spacing. Signs stay: `xs[1:]` and `xs[:1]` differ in nothing else."""
    code = re.sub(r"#.*", "", task.reference or "")
    return task.entry_point, " ".join(re.findall(r"\w+|[^\w\s]", code))


def _entry_point(asserts: Iterable[str], code: str) -> str:
    for line in asserts:
        for name in _CALL.findall(line):
            if defines(code, name):
                return name
    raise BadTask("no entry point: the asserts call no function that the code defines")


def text_of(row: Mapping[str, Any], name: str) -> str:
    """A field that must be a text and not empty; raises BadTask."""
    value = row.get(name)
    if value is None:
        raise BadTask(f"{name} is missing")
    if not isinstance(value, str) or not value.strip():
        raise BadTask(f"{name} must be a text that is not empty")
    return value
