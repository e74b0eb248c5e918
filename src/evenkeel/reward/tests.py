"""The reward that the hidden tests give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from evenkeel.records import Outcome, RewardPart, Verdict
from evenkeel.reward.base import Submission


@dataclass(frozen=True)
class TestsReward:
    """The hidden tests, as a share or all-or-nothing.

        share:  hidden tests passed / hidden tests
        all:    1 when every one passed, else 0

    A verdict that is a failure of ours is unscored.

    >>> verdict = Verdict(Outcome.WRONG_ANSWER, tests_passed=3, tests_total=4)
    >>> TestsReward(0.7).value(verdict), TestsReward(0.7, "all").value(verdict)
    (0.75, 0.0)
    """

    __test__ = False  # not a pytest class

    weight: float
    mode: Literal["share", "all"] = "share"
    name: str = "tests"
    needs_facts: bool = False

    def grade(self, submissions: Sequence[Submission]) -> list[list[RewardPart]]:
        return [[self._part(submission.verdict)] for submission in submissions]

    def value(self, verdict: Verdict) -> float:
        if self.mode == "share":
            return verdict.share
        return float(verdict.outcome is Outcome.PASSED)

    def _part(self, verdict: Verdict) -> RewardPart:
        if not verdict.scored:
            return RewardPart(self.name, self.weight, "unscored", reason=verdict.detail or "the sandbox failed")
        return RewardPart(self.name, self.weight, "scored", self.value(verdict))
