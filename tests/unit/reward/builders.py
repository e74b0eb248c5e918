"""A sandbox that answers from a table, and short ways to write down groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evenkeel.records import Completion, Outcome, SampleGroup, Task, TestCase, Verdict
from evenkeel.sandbox.base import CodeFacts, Isolation, Job
from evenkeel.sandbox.facts import facts_of

PROMPT = "def total(xs):\n"
TASK = Task("total", PROMPT, "total", cases=(TestCase(([1, 2],), 3), TestCase(([],), 0)), reference="    return sum(xs)\n")

RIGHT = "    return sum(xs)\n"
HALF = "    return sum(xs) if xs else 1\n"
WRONG = "    return 7\n"
BROKEN = "    return 8  # the sandbox fails on this one\n"

PASSED = Verdict(Outcome.PASSED, 2, 2)
VERDICTS = {
    PROMPT + RIGHT: PASSED,
    PROMPT + HALF: Verdict(Outcome.WRONG_ANSWER, 1, 2),
    PROMPT + WRONG: Verdict(Outcome.WRONG_ANSWER, 0, 2),
    PROMPT + BROKEN: Verdict(Outcome.INFRASTRUCTURE, detail="no memory left"),
}


class TableSandbox:
    """A Sandbox whose verdicts are written down; it notes what it was asked. Facts are the real ones."""

    isolation = Isolation((), (), uid=1000, weak=False)

    def __init__(self, verdicts: Mapping[str, Verdict] = VERDICTS):
        self.verdicts = verdicts
        self.ran: list[str] = []
        self.inspected: list[str] = []

    def run(self, jobs: Sequence[Job]) -> list[Verdict]:
        self.ran += [job.program for job in jobs]
        return [self.verdicts[job.program] for job in jobs]

    def inspect(self, programs: Sequence[str]) -> list[CodeFacts]:
        self.inspected += programs
        return [CodeFacts(**facts_of(program)) for program in programs]

    def close(self) -> None:
        pass


def group(*texts: str, task: Task = TASK) -> SampleGroup:
    return SampleGroup(task, (1, 2), tuple(Completion((5, 2), (-0.1, -0.2), text, truncated=False) for text in texts))


def facts(program: str) -> CodeFacts:
    return CodeFacts(**facts_of(program))
