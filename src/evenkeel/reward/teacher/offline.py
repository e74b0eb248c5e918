"""A teacher that needs no network: the rubric of the seed, read off the syntax tree."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from evenkeel.records import RewardPart, Task
from evenkeel.reward.base import Submission
from evenkeel.sandbox.base import CodeFacts
from evenkeel.tasks.base import defines

HOUSE_LIMITS = CodeFacts("parsed", cyclomatic_complexity=10, max_nesting=3, num_loops=3, max_loop_depth=2, num_statements=20)
"""The yardstick of a task without reference: McCabe's limit of 10, and what fits half a screen."""

DOCSTRING_CHARS = 40
"""A docstring of so many characters, a short sentence, is a whole one."""

DEFAULT_RUBRIC = {"correctness": 0.3, "quality": 0.3, "efficiency": 0.2, "documentation": 0.2}


@dataclass(frozen=True)
class OfflineTeacher:
    """A deterministic stand-in for an AI teacher behind an API: same parts, same weights, no judgement of meaning.

    Four dimensions, each a part `teacher/<dimension>` with weight = `weight` * its rubric weight / sum of rubric weights.
    With s = share of hidden tests passed, and fit(own, ref) = min(1, (1 + ref) / (1 + own)) of a count in the answer
    against the same count in the task's reference (`HOUSE_LIMITS` where there is none):

        correctness   = s
        quality       = s * (0.30 fit(complexity) + 0.20 fit(nesting) + 0.15 fit(unused names)
                             + 0.15 fit(repeated statements) + 0.10 fit(long lines) + 0.10 fit(bare excepts))
        efficiency    = s * (0.50 fit(loop depth) + 0.25 fit(loops) + 0.25 fit(statements))
        documentation = s * fit(short names)                                where the prompt has the function's head
                      = s * (0.50 min(1, docstring characters / 40) + 0.25 fit(short names) + 0.25 annotations)   elsewhere

    A prompt with `def entry_point` brings its own docstring and annotations: the answer earns nothing for them, and is
    judged by the names it chose. annotations = min(1, own share / reference's share), 1 where the reference has none.

    An answer equal to the reference has fit 1 everywhere, so 1.0 in every dimension of a continuation. Counts come from
    the syntax tree: comments and `noqa` buy nothing, and nothing is timed.

    Worked: `return sum(xs)` is the reference (2 statements with the def, complexity 1, no loop). An answer that passes all
    tests with `total = 0; for x in xs: total += x; return total` has 5 statements, complexity 2, nesting 1, 1 loop of
    depth 1, one more short name (x):

        quality       = 0.30 * 2/3 + 0.20 * 1/2 + 0.50              = 0.80
        efficiency    = 0.50 * 1/2 + 0.25 * 1/2 + 0.25 * 3/6        = 0.50
        documentation = 1/2                                         = 0.50

    With half of the tests passed each is halved. A program that passes tests and cannot be read by its own doing (more than
    64 KiB, say) has correctness alone and 0 in the rest: were these unscored, one such answer would take them away from its
    whole group. Unscored is only what we failed at: all parts where the sandbox could not run the program, all but
    correctness where it could not inspect the program or the reference.
    """

    weight: float
    rubric: Mapping[str, float] = field(default_factory=lambda: dict(DEFAULT_RUBRIC))
    """Dimension -> weight; a dimension of weight 0 is not reported."""
    name: str = "teacher"
    needs_facts: bool = True

    def grade(self, submissions: Sequence[Submission]) -> list[list[RewardPart]]:
        weights = {dimension: weight for dimension, weight in self.rubric.items() if weight > 0}
        total = sum(weights.values())
        return [
            [self._part(submission, dimension, self.weight * weight / total) for dimension, weight in weights.items()]
            for submission in submissions
        ]

    def _part(self, submission: Submission, dimension: str, weight: float) -> RewardPart:
        name = f"{self.name}/{dimension}"
        verdict, facts = submission.verdict, submission.facts
        if not verdict.scored:
            return RewardPart(name, weight, "unscored", reason="the sandbox failed: nobody knows whether it works")
        if dimension == "correctness" or verdict.share == 0:
            return RewardPart(name, weight, "scored", verdict.share)
        if _not_inspected(facts) or (submission.reference_facts and _not_inspected(submission.reference_facts)):
            return RewardPart(name, weight, "unscored", reason="the sandbox failed: the code was not inspected")
        if not facts.parses:
            return RewardPart(name, weight, "scored", 0.0, reason=f"the program cannot be read: {facts.error}")
        value = DIMENSIONS[dimension](submission.task, facts, submission.reference_facts)
        return RewardPart(name, weight, "scored", verdict.share * value)


def _not_inspected(facts: CodeFacts | None) -> bool:
    return facts is None or facts.status == "not_inspected"


def quality(task: Task, facts: CodeFacts, reference: CodeFacts | None) -> float:
    """How cleanly it is written, 0 .. 1. See `OfflineTeacher`.

    >>> task, reference = Task("sum", "def total(xs):\\n", "total"), CodeFacts("parsed", cyclomatic_complexity=1)
    >>> round(quality(task, CodeFacts("parsed", cyclomatic_complexity=2, max_nesting=1), reference), 6)
    0.8
    """
    yardstick = reference or HOUSE_LIMITS
    return (
        0.30 * fit(facts.cyclomatic_complexity, yardstick.cyclomatic_complexity)
        + 0.20 * fit(facts.max_nesting, yardstick.max_nesting)
        + 0.15 * fit(facts.num_unused_names, yardstick.num_unused_names)
        + 0.15 * fit(facts.num_repeated_statements, yardstick.num_repeated_statements)
        + 0.10 * fit(facts.num_long_lines, yardstick.num_long_lines)
        + 0.10 * fit(facts.num_bare_excepts, yardstick.num_bare_excepts)
    )


def efficiency(task: Task, facts: CodeFacts, reference: CodeFacts | None) -> float:
    """How much work its structure does against the reference's, 0 .. 1. Read, never timed."""
    yardstick = reference or HOUSE_LIMITS
    return (
        0.50 * fit(facts.max_loop_depth, yardstick.max_loop_depth)
        + 0.25 * fit(facts.num_loops, yardstick.num_loops)
        + 0.25 * fit(facts.num_statements, yardstick.num_statements)
    )


def documentation(task: Task, facts: CodeFacts, reference: CodeFacts | None) -> float:
    """How well it explains itself, 0 .. 1, by what the answer itself wrote."""
    names = fit(facts.num_short_names, (reference or HOUSE_LIMITS).num_short_names)
    if defines(task.prompt, task.entry_point):
        return names
    docstring = min(1.0, facts.docstring_chars / DOCSTRING_CHARS)
    return 0.50 * docstring + 0.25 * names + 0.25 * _annotations(facts, reference)


DIMENSIONS: dict[str, Callable[[Task, CodeFacts, CodeFacts | None], float]] = {
    "quality": quality,
    "efficiency": efficiency,
    "documentation": documentation,
}


def fit(own: int, allowed: int) -> float:
    """1 within the allowance, falling towards 0 beyond it: min(1, (1 + allowed) / (1 + own)).

    >>> fit(1, 2), fit(2, 2), fit(5, 2)
    (1.0, 1.0, 0.5)
    """
    return min(1.0, (1 + allowed) / (1 + own))


def _annotations(facts: CodeFacts, reference: CodeFacts | None) -> float:
    wanted = _annotated_share(reference) if reference else 1.0
    return min(1.0, _annotated_share(facts) / wanted) if wanted else 1.0


def _annotated_share(facts: CodeFacts) -> float:
    places = facts.num_parameters + facts.num_functions
    return min(1.0, facts.num_annotations / places) if places else 1.0
