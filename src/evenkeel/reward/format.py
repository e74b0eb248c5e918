"""The reward for an answer in the form that was asked for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from evenkeel.records import Outcome, RewardPart
from evenkeel.reward.base import Submission

_FENCE_LINE = re.compile(r"^[ \t]*(?:`{3,}|~{3,})", re.MULTILINE)


@dataclass(frozen=True)
class FormatReward:
    """1 for exactly one closed code block, or for code alone; else 0.

    *Code alone* is an answer without any fence that the sandbox could parse, so prose without a fence is worth 0. Text
    around the one block costs nothing: a student that explains itself is not worse.
    """

    weight: float
    name: str = "format"
    needs_facts: bool = False

    def grade(self, submissions: Sequence[Submission]) -> list[list[RewardPart]]:
        return [[self._part(submission)] for submission in submissions]

    def _part(self, submission: Submission) -> RewardPart:
        if not submission.verdict.scored:
            return RewardPart(self.name, self.weight, "unscored", reason="the sandbox failed: nobody knows whether it parses")
        is_code = submission.verdict.outcome is not Outcome.PARSE_ERROR
        well_formed = is_code and count_fence_lines(submission.completion_text) in (0, 2)
        return RewardPart(self.name, self.weight, "scored", float(well_formed))


def count_fence_lines(text: str) -> int:
    """Lines that open or close a code block.

    >>> count_fence_lines("Sure:\\n```python\\nx = 1\\n```\\n")
    2
    """
    return len(_FENCE_LINE.findall(text))
