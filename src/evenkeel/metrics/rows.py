"""Rows of run.db that are no records of the walk, and how records become JSON and come back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evenkeel.records import CreditedGroup, Grade, Outcome, RewardPart, ScoredGroup, ScoredSample, Verdict


@dataclass(frozen=True)
class Event:
    """Something that happened to a run, in words for a person and data for a program.

    >>> Event("dropped_step", "Step 7: the loss was not finite.", step=7).data
    {}
    """

    kind: str
    """A short identifier: `resumed`, `dropped_step`, `out_of_memory`, `early_stop`, ..."""
    message: str
    step: int | None = None
    """Optimizer steps done when it happened. An event with a step is rolled back with the steps."""
    data: Mapping[str, Any] = field(default_factory=dict)
    time: float | None = None
    """Unix seconds; None: now, when it is recorded."""
    id: int | None = None
    """Set by the store, rising."""


@dataclass(frozen=True)
class SampleRow:
    """One stored answer of the student. Texts are a model's: escape them where they are shown."""

    kind: str
    """`train`, or the kind of an evaluation (`validation`, `greedy`)."""
    epoch: int
    step: int
    group_index: int
    """Within the step."""
    sample_index: int
    """Within the group."""
    task_id: str
    text: str
    """The completion."""
    program: str
    """What was run."""
    outcome: Outcome
    detail: str
    tests_passed: int
    tests_total: int
    reward: float | None
    """Unshaped; None: not scored."""
    bonus: float
    advantage: float | None
    """None: evaluation."""
    trains: bool | None
    parts: tuple[RewardPart, ...]
    logprob_mean: float | None
    """Mean log-probability under the sampler, nats per token."""
    length: int
    """Tokens."""
    truncated: bool


SAMPLE_COLUMNS = tuple(SampleRow.__dataclass_fields__)


def train_sample_rows(epoch: int, step: int, groups: Sequence[CreditedGroup]) -> Iterator[tuple]:
    """Rows of the samples table, in the order of SAMPLE_COLUMNS."""
    for group_index, credited in enumerate(groups):
        credits = zip(credited.group.samples, credited.advantages, credited.trains, strict=True)
        for sample_index, (sample, advantage, trains) in enumerate(credits):
            place = ("train", epoch, step, group_index, sample_index, credited.group.task.task_id)
            yield _sample_row(place, sample, advantage, int(trains))


def evaluation_sample_rows(kind: str, epoch: int, step: int, groups: Sequence[ScoredGroup]) -> Iterator[tuple]:
    for group_index, group in enumerate(groups):
        for sample_index, sample in enumerate(group.samples):
            yield _sample_row((kind, epoch, step, group_index, sample_index, group.task.task_id), sample, None, None)


def _sample_row(place: tuple, sample: ScoredSample, advantage: float | None, trains: int | None) -> tuple:
    completion, verdict = sample.completion, sample.verdict
    logprob = sum(completion.logprobs) / len(completion.logprobs) if completion.logprobs else None
    return (
        *place, _text(completion.text), _text(sample.program), verdict.outcome.value, _text(verdict.detail),
        verdict.tests_passed, verdict.tests_total, sample.reward, sample.bonus, advantage, trains,
        dump(_parts_to_json(sample.parts)), logprob, completion.length, int(completion.truncated),
    )  # fmt: skip


def sample_from_row(row: Sequence[Any]) -> SampleRow:
    values = dict(zip(SAMPLE_COLUMNS, row, strict=True))
    values["outcome"] = Outcome(values["outcome"])
    values["parts"] = _parts_from_json(json.loads(values["parts"]))
    values["trains"] = None if values["trains"] is None else bool(values["trains"])
    values["truncated"] = bool(values["truncated"])
    return SampleRow(**values)


def grade_to_json(grade: Grade) -> str:
    """
    >>> grade = Grade(Verdict(Outcome.PASSED, 4, 4), (RewardPart("tests", 0.7, "scored", 1.0),))
    >>> grade_from_json(grade_to_json(grade)) == grade
    True
    """
    verdict = grade.verdict
    found = [verdict.outcome.value, verdict.tests_passed, verdict.tests_total, _text(verdict.detail), verdict.cpu_s]
    return dump({"verdict": found, "parts": _parts_to_json(grade.parts)})


def grade_from_json(text: str) -> Grade:
    values = json.loads(text)
    outcome, *rest = values["verdict"]
    return Grade(Verdict(Outcome(outcome), *rest), _parts_from_json(values["parts"]))


def dump(value: Any) -> str:
    """Compact JSON; a number that is not finite is our mistake: what was not measured is absent."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _parts_to_json(parts: Sequence[RewardPart]) -> list[list]:
    return [[part.name, part.weight, part.status, part.value, _text(part.reason)] for part in parts]


def _parts_from_json(rows: Sequence[Sequence[Any]]) -> tuple[RewardPart, ...]:
    return tuple(RewardPart(*row) for row in rows)


def _text(text: str) -> str:
    """SQLite stores UTF-8: half of a surrogate pair, which a student may write, becomes a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8")
