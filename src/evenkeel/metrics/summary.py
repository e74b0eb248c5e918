"""What an epoch must remember of a step's groups: sums that can be added, small enough for a checkpoint."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from evenkeel.metrics.diversity import group_diversity
from evenkeel.records import CreditedGroup, ScoredGroup


@dataclass(frozen=True)
class Moments:
    """Count, mean and spread of numbers, addable without the numbers.

    >>> both = Moments.of([1.0, 2.0]) + Moments.of([6.0])
    >>> both.count, both.mean, both.squares          # (1-3)^2 + (2-3)^2 + (6-3)^2 = 14
    (3, 3.0, 14.0)
    """

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    """Sum of squared deviations from the mean. Not the sum of squares: that loses a small spread on a large mean."""

    @classmethod
    def of(cls, values: Sequence[float]) -> Moments:
        if not values:
            return cls()
        mean = math.fsum(values) / len(values)
        return cls(len(values), mean, math.fsum((value - mean) ** 2 for value in values))

    def __add__(self, other: Moments) -> Moments:
        """Chan, Golub and LeVeque 1979: squares = s1 + s2 + (m2 - m1)^2 n1 n2 / (n1 + n2)."""
        if not self.count or not other.count:
            return self if self.count else other
        count, delta = self.count + other.count, other.mean - self.mean
        mean = self.mean + delta * other.count / count
        return Moments(count, mean, self.squares + other.squares + delta**2 * self.count * other.count / count)

    @property
    def std(self) -> float:
        """Population standard deviation."""
        return math.sqrt(self.squares / self.count)

    @property
    def std_error(self) -> float:
        """Standard error of the mean, with n - 1; needs at least two numbers."""
        return math.sqrt(self.squares / (self.count - 1) / self.count)


@dataclass(frozen=True)
class GroupSummary:
    """Sums over groups. `GroupSummary()` is the empty one; summaries add.

    >>> (GroupSummary(num_groups=1) + GroupSummary(num_groups=2)).num_groups
    3
    """

    num_groups: int = 0
    num_samples: int = 0
    num_tokens: int = 0
    """Completion tokens, EOS included."""
    num_truncated: int = 0
    num_unscored: int = 0
    """Samples without a reward."""
    num_without_signal: int = 0
    """Groups that teach nothing."""
    num_replaced: int = 0
    """Groups that dynamic sampling replaced because they teach nothing; they are in no other count or mean here."""
    num_replaced_tokens: int = 0
    num_parts: int = 0
    num_unscored_parts: int = 0
    rewards: Moments = Moments()
    """Of scored samples, unshaped."""
    task_means: Moments = Moments()
    """Of the mean reward of each group."""
    best: Moments = Moments()
    """Of the best reward of each group."""
    group_std: Moments = Moments()
    """Of the population standard deviation inside each group."""
    test_shares: Moments = Moments()
    bonuses: Moments = Moments()
    unique_fraction: Moments = Moments()
    """Over groups of at least two."""
    similarity: Moments = Moments()
    difficulty: Moments = Moments()
    """Over tasks that declare one."""
    outcomes: Mapping[str, int] = field(default_factory=dict)
    """Outcome -> samples."""
    parts: Mapping[str, Moments] = field(default_factory=dict)
    """Name of a reward part -> its scored values."""

    def __add__(self, other: GroupSummary) -> GroupSummary:
        return GroupSummary(**{f.name: _added(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)})

    def state(self) -> dict[str, Any]:
        """Plain JSON, exact: a resumed epoch adds up to the same bits."""
        return asdict(self)

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> GroupSummary:
        values = dict(state)
        for name, default in asdict(cls()).items():
            if isinstance(default, dict) and set(default) == {"count", "mean", "squares"}:
                values[name] = Moments(**state[name])
        values["parts"] = {name: Moments(**moments) for name, moments in state["parts"].items()}
        return cls(**values)


def group_summary(groups: Sequence[CreditedGroup], replaced: Sequence[ScoredGroup] = ()) -> GroupSummary:
    """Sums over a step's groups, also those that do not train; `replaced` were sampled for it and left out."""
    samples = [sample for credited in groups for sample in credited.group.samples]
    parts = [part for sample in samples for part in sample.parts]
    scored = [moments for credited in groups if (moments := Moments.of(credited.group.rewards)).count]
    varieties = [variety for credited in groups if (variety := _diversity(credited.group))]
    declared = [credited.group.task.difficulty for credited in groups if credited.group.task.difficulty is not None]
    return GroupSummary(
        num_groups=len(groups),
        num_samples=len(samples),
        num_tokens=sum(sample.completion.length for sample in samples),
        num_truncated=sum(sample.completion.truncated for sample in samples),
        num_unscored=sum(sample.reward is None for sample in samples),
        num_without_signal=sum(not credited.has_signal for credited in groups),
        num_replaced=len(replaced),
        num_replaced_tokens=sum(sample.completion.length for group in replaced for sample in group.samples),
        num_parts=len(parts),
        num_unscored_parts=sum(part.status != "scored" for part in parts),
        rewards=Moments.of([sample.reward for sample in samples if sample.reward is not None]),
        task_means=Moments.of([moments.mean for moments in scored]),
        best=Moments.of([max(credited.group.rewards) for credited in groups if credited.group.rewards]),
        group_std=Moments.of([moments.std for moments in scored]),
        test_shares=Moments.of([sample.verdict.share for sample in samples if sample.verdict.scored]),
        bonuses=Moments.of([sample.bonus for sample in samples if sample.reward is not None]),
        unique_fraction=Moments.of([variety.unique_fraction for variety in varieties]),
        similarity=Moments.of([variety.mean_similarity for variety in varieties]),
        difficulty=Moments.of(declared),
        outcomes=dict(Counter(sample.verdict.outcome.value for sample in samples)),
        parts={name: Moments.of([part.value for part in parts if part.name == name and part.value is not None])
               for name in dict.fromkeys(part.name for part in parts)},
    )  # fmt: skip


def _diversity(group: ScoredGroup):
    return group_diversity([sample.completion.text for sample in group.samples])


def _added(one: Any, other: Any) -> Any:
    if isinstance(one, Mapping):
        shared = {key: one[key] + other[key] for key in one if key in other}
        return {**one, **other, **shared}
    return one + other
