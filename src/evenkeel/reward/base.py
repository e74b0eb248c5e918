"""What a reward is asked and what it answers.

    Submission, Submission, ... --grade--> [RewardPart, ...] for each

The whole batch is handed over at once, so that a reward that asks somebody else can ask once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from evenkeel.records import RewardPart, Task, Verdict
from evenkeel.sandbox.base import CodeFacts


@dataclass(frozen=True)
class Submission:
    """One answer to one task, already run against its hidden tests.

    It holds nothing that is not a function of the task and the text, because a grade is stored and reused by these two.

    >>> from evenkeel.records import Outcome
    >>> task, answer = Task("inc", "def inc(x):\\n", "inc"), "    return x + 1\\n"
    >>> Submission(task, answer, task.prompt + answer, Verdict(Outcome.PASSED, 4, 4)).verdict.share
    1.0
    """

    task: Task
    completion_text: str
    program: str
    """What was run; empty when the answer holds no code."""
    verdict: Verdict
    facts: CodeFacts | None = None
    """Of the program. None when no reward asked for facts, or the answer holds no code."""
    reference_facts: CodeFacts | None = None
    """Of the task's reference program. None when no reward asked, or the task has no (readable) reference; `not_inspected`
    when our side failed on it, and then nothing may be measured against it."""


class Reward(Protocol):
    """Extension point: a judge of answers, named in the configuration as `module:name` under `reward.custom`.

    `examples/own_reward.py` is a whole one.
    """

    name: str
    """Of its part; parts of one reward are named `name` or `name/...`, and no two parts of a sample share a name."""
    weight: float
    """>= 0: what its parts weigh together."""
    needs_facts: bool = False
    """Whether `Submission.facts` and `.reference_facts` must be filled in."""

    def grade(self, submissions: Sequence[Submission]) -> list[list[RewardPart]]:
        """The parts of each submission, in the order of the submissions. What could not be judged is `unscored`, never 0."""
