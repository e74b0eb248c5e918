"""The records that travel through the walk, in the order in which they travel.

    Task -> SampleGroup -> ScoredGroup -> CreditedGroup -> (TrainBatch) -> UpdateReport -> StepRecord -> EpochRecord

`TrainBatch` holds tensors and lives in `algorithm/batch.py`; everything here is plain data and imports no torch.
What the world does wrong is data with a status. *Not scored* is a status, never 0.0 and never NaN.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

# --------------------------------------------------------------------------- 1 choose: tasks


@dataclass(frozen=True)
class TestCase:
    """One call of the entry point and the value that it must return.

    >>> TestCase(args=([3, 4],), expected=7).visible
    False
    """

    __test__ = False  # not a pytest class

    args: tuple
    """Positional arguments: plain data (None, bool, int, float, str, bytes, list, tuple, dict, set, frozenset, complex)."""
    expected: Any
    """The value to compare with, plain data."""
    visible: bool = False
    """True when the prompt shows this case. Visible cases never enter the reward."""
    tolerance: float = 0.0
    """Absolute tolerance on floats (also inside containers); 0 compares with ==."""


@dataclass(frozen=True)
class Task:
    """One programming task.

    >>> prompt, reference = 'def add(xs):\\n    \"\"\"Sum.\"\"\"\\n', "    return sum(xs)\\n"
    >>> task = Task("add", prompt, "add", cases=(TestCase(([1, 2],), 3),), reference=reference)
    >>> task.language, len(task.cases)
    ('python', 1)
    """

    task_id: str
    """Unique within its file."""
    prompt: str
    """What the student is given: code to continue, or an instruction."""
    entry_point: str
    """Name of the function that the tests call."""
    language: str = "python"
    cases: tuple[TestCase, ...] = ()
    """Tests as data. A task has cases or an assert source, not both."""
    assert_source: str | None = None
    """Tests as code: defines `check(candidate)`, as HumanEval does, or is a series of asserts that call the entry point, as
    MBPP's are."""
    difficulty: float | None = None
    """0 easy .. 1 hard, as declared; None when the file does not say."""
    reference: str | None = None
    """A right answer in the form of a completion: it continues the prompt, or is a whole program that defines the entry
    point."""

    @property
    def hidden_cases(self) -> tuple[TestCase, ...]:
        return tuple(case for case in self.cases if not case.visible)


# --------------------------------------------------------------------------- 2 sample


@dataclass(frozen=True)
class Completion:
    """One answer of the student, as sampled.

    `token_ids` are kept as drawn and never re-tokenised: joining and splitting strings moves token borders.
    The end-of-sequence token, when it was drawn, is the last element and a training target.

    >>> Completion(token_ids=(5, 9, 2), logprobs=(-0.1, -0.7, -0.01), text="return 1", truncated=False).length
    3
    """

    token_ids: tuple[int, ...]
    """Length L >= 1."""
    logprobs: tuple[float, ...]
    """Length L: log-probability in nats of each token under the sampler, at the sampling temperature and filters."""
    text: str
    """Decoded, without special tokens."""
    truncated: bool
    """True when the token limit ended it, not an end-of-sequence token."""
    kept_tokens: tuple[tuple[int, ...], ...] | None = None
    """Only with top-p or top-k: for each position the token ids that could be drawn. The update normalises over the same
    set."""

    @property
    def length(self) -> int:
        return len(self.token_ids)


@dataclass(frozen=True)
class SampleGroup:
    """N completions of one task."""

    task: Task
    prompt_ids: tuple[int, ...]
    """The prompt as the model saw it, chat template included."""
    completions: tuple[Completion, ...]
    """Length N = rlaif.num_samples_per_prompt."""


# --------------------------------------------------------------------------- 3 score


class Outcome(StrEnum):
    """How running one program against one task's tests ended."""

    PASSED = "passed"
    """Every test answered, and rightly."""
    WRONG_ANSWER = "wrong_answer"
    EXCEPTION = "exception"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT_LIMIT = "output_limit"
    FORBIDDEN_CALL = "forbidden_call"
    NOT_DATA = "not_data"
    """The answer was an object that is not plain data."""
    PROTOCOL_VIOLATION = "protocol_violation"
    CRASHED = "crashed"
    PARSE_ERROR = "parse_error"
    """The text is no program: a syntax error, or no code in the answer."""
    INFRASTRUCTURE = "infrastructure"
    """Our fault, not the sample's: unscored, never 0."""


@dataclass(frozen=True)
class Verdict:
    """What the sandbox found out about one program on one task.

    >>> Verdict(Outcome.WRONG_ANSWER, tests_passed=3, tests_total=4).share
    0.75
    """

    outcome: Outcome
    """Of the worst test: PASSED only when all passed."""
    tests_passed: int = 0
    """0 .. tests_total"""
    tests_total: int = 0
    """Number of hidden tests (an assert source counts as one)."""
    detail: str = ""
    """One line for a person, at most 500 characters, made of model output: escape it where it is shown."""
    cpu_s: float | None = None
    """CPU seconds of the child. Measured, so never part of the embedded reward."""

    @property
    def scored(self) -> bool:
        return self.outcome is not Outcome.INFRASTRUCTURE

    @property
    def share(self) -> float:
        """Share of the hidden tests that passed, 0 .. 1."""
        return self.tests_passed / self.tests_total if self.tests_total else 0.0


@dataclass(frozen=True)
class RewardPart:
    """One part of a reward.

    >>> RewardPart("teacher", weight=0.5, status="unscored", reason="reply had no verdict").value is None
    True
    """

    name: str
    """`tests`, `format`, `teacher/correctness`, `teacher/quality`, ... or the `module:name` of a user's own reward."""
    weight: float
    """>= 0; the weights of the scored parts of a group are renormalised to their sum."""
    status: str
    """`scored` or `unscored`."""
    value: float | None = None
    """0 .. 1 when scored, None when not."""
    reason: str = ""
    """Why it is unscored, or one line for a person."""


@dataclass(frozen=True)
class Grade:
    """All that grading one completion of one task found out; stored before the update, so that a replay asks nobody again.

    >>> Grade(Verdict(Outcome.PASSED, 4, 4), (RewardPart("tests", 0.7, "scored", 1.0),)).settled
    True
    """

    verdict: Verdict
    parts: tuple[RewardPart, ...]

    @property
    def settled(self) -> bool:
        """Only a settled grade may be stored and reused: a failure of ours or of the teacher's is tried again."""
        return self.verdict.scored and all(part.status == "scored" for part in self.parts)


@dataclass(frozen=True)
class ScoredSample:
    """One completion with its reward."""

    completion: Completion
    program: str
    """What was run: prompt and completion joined, or the program found in the answer."""
    verdict: Verdict
    parts: tuple[RewardPart, ...]
    """All parts, also the unscored ones."""
    reward: float | None
    """Weighted mean of the parts that are scored in the whole group, 0 .. 1, unshaped. None: nothing could be scored, the
    sample does not train and is counted."""
    bonus: float = 0.0
    """Shaping, added for the advantages only; "average reward" never contains it."""


@dataclass(frozen=True)
class ScoredGroup:
    """N scored samples of one task."""

    task: Task
    prompt_ids: tuple[int, ...]
    samples: tuple[ScoredSample, ...]

    @property
    def rewards(self) -> list[float]:
        """Unshaped rewards of the samples that could be scored."""
        return [sample.reward for sample in self.samples if sample.reward is not None]


# --------------------------------------------------------------------------- 4 credit


@dataclass(frozen=True)
class CreditedGroup:
    """A scored group with an advantage for each sample and what of it trains."""

    group: ScoredGroup
    advantages: tuple[float, ...]
    """Length N, no unit. 0 where the sample was not scored."""
    trains: tuple[bool, ...]
    """Length N. False: left out by the threshold, by best-of-N, by truncation masking, or for want of a score."""
    has_signal: bool
    """False when no sample that trains has an advantage other than 0: skipped exactly, and counted."""


# --------------------------------------------------------------------------- 6 update


@dataclass(frozen=True)
class UpdateReport:
    """What one optimizer step did. Means over trained tokens unless said otherwise."""

    loss: float
    """Value of the whole objective (policy + KL - entropy bonus). Says nothing about progress."""
    policy_loss: float
    kl_to_reference: float
    """Mean k3 estimate of KL(policy || base), nats per token, over the trained completions."""
    kl_sampler_to_trainer: float
    """Mean k3 estimate of KL(sampler || trainer), nats per token: 0 up to rounding when sampling and training agree."""
    entropy: float
    """Mean entropy of the policy's next-token distribution at the sampling temperature, nats per token."""
    grad_norm: float
    """Before clipping."""
    grad_clipped: bool
    clip_fraction: float
    """Share of the tokens whose importance ratio was clipped."""
    ratio_max: float
    learning_rate: float
    """Applied in this step."""
    kl_penalty: float
    """Applied in this step (the controller moves it when rlaif.target_kl is set)."""
    trained_tokens: int
    trained_samples: int
    applied: bool = True
    """False: the step was dropped (nothing to train on, or not finite); the weights are as before."""
    dropped_reason: str = ""
    nonfinite: bool = False
    """With `applied: False`: loss or gradient was not finite. Otherwise there was nothing to train on."""
    micro_batch_size: int = 0
    """Completions per micro-batch that were used; smaller than training.batch_size after an out-of-memory."""


# --------------------------------------------------------------------------- 7 record


@dataclass(frozen=True)
class StepRecord:
    """The metrics of one optimizer step, by the names of `metrics/names.py`."""

    step: int
    """Counts optimizer steps from 1 through the whole run."""
    epoch: int
    """From 1."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Only what was measured: a missing metric is absent, never NaN."""


@dataclass(frozen=True)
class EpochRecord:
    """The metrics of one epoch. Epoch 0 is the untrained student."""

    epoch: int
    step: int
    """Optimizer steps done at its end."""
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class TaskScore:
    """How the student did on one task at one evaluation: what paired comparisons are made of."""

    task_id: str
    rewards: tuple[float, ...]
    """Unshaped reward of each sample."""
    test_shares: tuple[float, ...]
    """Share of hidden tests passed, of each sample."""
