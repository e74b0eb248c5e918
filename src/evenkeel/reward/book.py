"""Grades that were given before, so that nobody is asked twice: within a run, and in a replay after a crash.

A grade depends on the task as it is graded, the text of the answer, and the rewards that graded it; `grade_key` is a digest
of these. The run's database is a book, and so is the one in memory here.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from evenkeel.codec import to_tree
from evenkeel.records import Grade, Task
from evenkeel.reward.base import Reward


class GradeBook(Protocol):
    """Keeps settled grades by their key."""

    def look_up(self, keys: Sequence[str]) -> Mapping[str, Grade]:
        """The grades of those keys that are known."""

    def enter(self, grades: Mapping[str, Grade]) -> None:
        """Keeps these grades. All of them or none survive a crash."""


class MemoryGradeBook:
    """A book that ends with the process."""

    def __init__(self) -> None:
        self._grades: dict[str, Grade] = {}

    def look_up(self, keys: Sequence[str]) -> dict[str, Grade]:
        return {key: self._grades[key] for key in keys if key in self._grades}

    def enter(self, grades: Mapping[str, Grade]) -> None:
        self._grades.update(grades)


def grade_key(task: Task, completion_text: str, rewards: Iterable[Reward] = ()) -> str:
    """Digest of all that a grade depends on, 64 hexadecimal digits, the same in every process.

    Not in it: the task's difficulty, its name, and the sandbox's limits.

    >>> task = Task("a", "def inc(x):\\n", "inc")
    >>> grade_key(task, "    return 1") == grade_key(dataclasses.replace(task, difficulty=0.5), "    return 1")
    True
    """
    return text_key(grading_digest(task, rewards), completion_text)


def grading_digest(task: Task, rewards: Iterable[Reward]) -> str:
    """The part of `grade_key` that all answers to a task share."""
    cases = [[to_tree(case.args), to_tree(case.expected), case.visible, case.tolerance] for case in task.cases]
    graded = [task.prompt, task.entry_point, task.language, cases, task.assert_source, task.reference]
    return _digest([_sorted_sets(graded), [_settings_of(reward) for reward in rewards]])


def text_key(grading_digest: str, completion_text: str) -> str:
    return _digest([grading_digest, completion_text])


def _settings_of(reward: Reward) -> Any:
    """Name, weight and, of a frozen dataclass, every field: changed settings must not meet old grades. What may change
    while it runs, a counter say, is no setting."""
    frozen = dataclasses.is_dataclass(reward) and reward.__dataclass_params__.frozen
    fields = dataclasses.fields(reward) if frozen else ()
    return [reward.name, reward.weight, [[field.name, repr(getattr(reward, field.name))] for field in fields]]


def _sorted_sets(tree: Any) -> Any:
    """The codec's tree with the items of sets in a fixed order; a set's own order changes from process to process."""
    if isinstance(tree, list):
        return [_sorted_sets(item) for item in tree]
    if isinstance(tree, dict):
        items = _sorted_sets(tree["v"])
        return {"$": tree["$"], "v": sorted(items, key=json.dumps) if tree["$"] in ("set", "frozenset") else items}
    return tree


def _digest(tree: Any) -> str:
    return hashlib.sha256(json.dumps(tree).encode()).hexdigest()
