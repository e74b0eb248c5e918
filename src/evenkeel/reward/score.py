"""Stage 3, score: what each completion is worth.

    SampleGroup --program_of--> programs --sandbox.run--> Verdicts --Reward.grade--> RewardParts --mean--> ScoredGroup
                     |                                                      |
                     +-- grades in the book are not asked for again --------+-- settled grades enter the book

Waits for the sandbox and, where one is configured, for the teacher. A part that is unscored for one sample is left out for
its whole group, so that the rewards inside a group can be compared; the parts stay on the samples, where they are counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from evenkeel.errors import RunError, UsageError
from evenkeel.records import Grade, Outcome, RewardPart, SampleGroup, ScoredGroup, ScoredSample, Task, Verdict
from evenkeel.reward.base import Reward, Submission
from evenkeel.reward.book import GradeBook, MemoryGradeBook, grade_key, grading_digest, text_key
from evenkeel.sandbox.base import CodeFacts, Job, Sandbox
from evenkeel.tasks.base import program_of

__all__ = ["GradeBook", "MemoryGradeBook", "Scorer", "grade_key", "score"]


@dataclass(frozen=True)
class Scorer:
    """All that scoring needs; one for the whole run."""

    sandbox: Sandbox
    rewards: tuple[Reward, ...]
    book: GradeBook = field(default_factory=MemoryGradeBook)
    reference_facts: dict[str, CodeFacts] = field(default_factory=dict)
    """Reference program -> its facts, each found once."""


@dataclass(frozen=True)
class _Answer:
    """One text to one task; equal texts are one answer."""

    task: Task
    text: str
    program: str


def score(groups: Sequence[SampleGroup], scorer: Scorer) -> list[ScoredGroup]:
    """Grade every completion and give it its reward.

        reward = sum(weight * value) / sum(weight)      over the parts that are scored in the whole group

    A sample on which the sandbox failed has no reward and does not cost its group a part. No part left: no reward.

    Raises RunError when the sandbox failed on more than half of the samples.
    """
    digests = [grading_digest(group.task, scorer.rewards) for group in groups]
    keys = [[text_key(digest, done.text) for done in group.completions] for group, digest in zip(groups, digests, strict=True)]
    answers = {
        key: _Answer(group.task, done.text, program_of(group.task, done.text) or "")
        for group, group_keys in zip(groups, keys, strict=True)
        for key, done in zip(group_keys, group.completions, strict=True)
    }
    known = dict(scorer.book.look_up(list(answers)))
    fresh = _grade({key: answer for key, answer in answers.items() if key not in known}, scorer)
    scorer.book.enter({key: grade for key, grade in fresh.items() if grade.settled})
    grades = known | fresh
    _expect_a_working_sandbox([grades[key].verdict for group_keys in keys for key in group_keys])
    return [_scored_group(group, group_keys, answers, grades) for group, group_keys in zip(groups, keys, strict=True)]


# --------------------------------------------------------------------------- grading


def _grade(answers: Mapping[str, _Answer], scorer: Scorer) -> dict[str, Grade]:
    """Run and judge answers that no book knows."""
    if not answers:
        return {}
    verdicts = _run(list(answers.values()), scorer.sandbox)
    submissions = _submissions(list(answers.values()), verdicts, scorer)
    parts: list[list[RewardPart]] = [[] for _ in submissions]
    for reward in scorer.rewards:
        for own, more in zip(parts, _checked(reward, reward.grade(submissions), len(submissions)), strict=True):
            own.extend(more)
    for own in parts:
        _expect_different_names(own)
    return {key: Grade(verdict, tuple(own)) for key, verdict, own in zip(answers, verdicts, parts, strict=True)}


def _run(answers: Sequence[_Answer], sandbox: Sandbox) -> list[Verdict]:
    jobs = [Job(answer.task, answer.program) for answer in answers if answer.program]
    ran = iter(sandbox.run(jobs) if jobs else [])
    return [next(ran) if answer.program else _no_code(answer.task) for answer in answers]


def _no_code(task: Task) -> Verdict:
    total = 1 if task.assert_source else len(task.hidden_cases)
    return Verdict(Outcome.PARSE_ERROR, 0, total, detail="no code in the answer")


def _submissions(answers: Sequence[_Answer], verdicts: Sequence[Verdict], scorer: Scorer) -> list[Submission]:
    references = [""] * len(answers)
    facts: Mapping[str, CodeFacts] = {}
    if any(reward.needs_facts for reward in scorer.rewards):
        references = [_reference_program(answer.task) for answer in answers]
        facts = _inspect({answer.program for answer in answers}, set(references), scorer)
    yardsticks = {program: found for program, found in facts.items() if found.status != "unreadable"}
    return [
        Submission(answer.task, answer.text, answer.program, verdict, facts.get(answer.program), yardsticks.get(reference))
        for answer, verdict, reference in zip(answers, verdicts, references, strict=True)
    ]


def _inspect(programs: set[str], references: set[str], scorer: Scorer) -> dict[str, CodeFacts]:
    """Facts by program, found in one batch. Those of references are remembered, unless our side failed on them."""
    unknown = sorted((programs | references) - {""} - scorer.reference_facts.keys())
    found = dict(zip(unknown, scorer.sandbox.inspect(unknown), strict=True)) if unknown else {}
    inspected = {program: found[program] for program in references & found.keys() if found[program].status != "not_inspected"}
    scorer.reference_facts.update(inspected)
    return scorer.reference_facts | found


def _reference_program(task: Task) -> str:
    return (program_of(task, task.reference) if task.reference else None) or ""


# --------------------------------------------------------------------------- rewards


def _scored_group(
    group: SampleGroup, keys: Sequence[str], answers: Mapping[str, _Answer], grades: Mapping[str, Grade]
) -> ScoredGroup:
    usable = _parts_scored_everywhere([grades[key] for key in keys])
    samples = tuple(
        ScoredSample(done, answers[key].program, grades[key].verdict, grades[key].parts, _reward(grades[key], usable))
        for done, key in zip(group.completions, keys, strict=True)
    )
    return ScoredGroup(group.task, group.prompt_ids, samples)


def _parts_scored_everywhere(grades: Sequence[Grade]) -> set[str]:
    """Names of the parts that every sample has and has scored; samples on which the sandbox failed have no say."""
    scored = [{part.name for part in grade.parts if part.status == "scored"} for grade in grades if grade.verdict.scored]
    return set.intersection(*scored) if scored else set()


def _reward(grade: Grade, usable: set[str]) -> float | None:
    """Weighted mean of the usable parts.

    >>> parts = (RewardPart("tests", 0.6, "scored", 1.0), RewardPart("teacher/quality", 0.2, "scored", 0.5))
    >>> round(_reward(Grade(Verdict(Outcome.PASSED, 4, 4), parts), {"tests", "teacher/quality"}), 6)  # (0.6 + 0.1) / 0.8
    0.875
    """
    parts = [part for part in grade.parts if part.name in usable]
    total = sum(part.weight for part in parts)
    if not grade.verdict.scored or total == 0:
        return None
    return sum(part.weight * part.value for part in parts) / total


# --------------------------------------------------------------------------- checks


def _expect_a_working_sandbox(verdicts: Sequence[Verdict]) -> None:
    failed = [verdict for verdict in verdicts if not verdict.scored]
    if 2 * len(failed) > len(verdicts):
        raise RunError(
            f"The sandbox could not run {len(failed)} of {len(verdicts)} programs of a batch; the first: {failed[0].detail}\n"
            "This is a failure of the machine or of evenkeel, not of the answers, so nothing was scored as 0. "
            "Run `evenkeel sandbox` to see what is missing, free memory and disk, or lower sandbox.workers."
        )


def _checked(reward: Reward, graded: list[list[RewardPart]], count: int) -> list[list[RewardPart]]:
    """The parts as given, after a look at what an own reward may get wrong."""
    if len(graded) != count:
        raise UsageError(
            f"The reward `{reward.name}` was given {count} submissions and returned parts for {len(graded)}. "
            "`grade` must return one list of parts for each submission, in the same order."
        )
    for part in (part for parts in graded for part in parts):
        problem = _problem_of(part)
        if problem:
            raise UsageError(f"The reward `{reward.name}` gave its part `{part.name}` {problem}")
    return graded


def _problem_of(part: RewardPart) -> str | None:
    if part.status not in ("scored", "unscored"):
        return f"the status {part.status!r}; it must be `scored` or `unscored`."
    if not 0 <= part.weight < float("inf"):
        return f"the weight {part.weight!r}; it must be 0 or more."
    if part.status == "scored" and not (isinstance(part.value, (int, float)) and 0 <= part.value <= 1):
        return f"the value {part.value!r}; it must lie between 0 and 1, and what could not be judged has the status `unscored`."
    return None


def _expect_different_names(parts: Sequence[RewardPart]) -> None:
    names = [part.name for part in parts]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"Two parts of one reward are named `{name}`. Give each reward a name of its own.")
