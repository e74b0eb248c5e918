"""Is one evaluation better than another on the same tasks, beyond noise?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from evenkeel.errors import UsageError
from evenkeel.metrics.summary import Moments
from evenkeel.records import TaskScore


@dataclass(frozen=True)
class Difference:
    """After minus before, with its interval.

    >>> Difference(mean=0.1, low=0.02, high=0.18, num_tasks=128).excludes_zero
    True
    """

    mean: float
    low: float | None
    """Ends of the interval; None with a single task, where the noise is unknown."""
    high: float | None
    num_tasks: int
    """Tasks that both evaluations scored."""
    confidence: float = 0.95

    @property
    def excludes_zero(self) -> bool:
        return self.low is not None and (self.low > 0 or self.high < 0)

    @property
    def fell(self) -> bool:
        """Below by more than the noise."""
        return self.high is not None and self.high < 0

    @property
    def rose(self) -> bool:
        return self.low is not None and self.low > 0


def paired_difference(
    before: Sequence[TaskScore],
    after: Sequence[TaskScore],
    *,
    of: Literal["test_shares", "rewards"] = "test_shares",
    confidence: float = 0.95,
) -> Difference:
    """Mean change per task, with a t interval clustered by task.

        d_i = mean(after_i) - mean(before_i)              i over the tasks that both scored
        interval = mean(d) -+ t * std(d) / sqrt(n)        std over n - 1, t with n - 1 degrees of freedom

    The samples of one task are not independent, so a task is one observation; pairing takes the tasks' own difficulty
    out. The sampling noise inside a task is in the spread of d. It speaks for tasks like these, not for other seeds.

    Edge:    one task: no interval. Equal changes on every task: width 0, too sure of itself below about ten tasks.
    Source:  Miller 2024, Adding error bars to evals, arXiv:2411.00640, sections 2.2 and 4.2.

    >>> one = [TaskScore("a", (), (0.0,)), TaskScore("b", (), (0.5,)), TaskScore("c", (), (0.5, 0.7))]
    >>> two = [TaskScore("a", (), (0.2,)), TaskScore("b", (), (0.6,)), TaskScore("c", (), (0.9,))]
    >>> found = paired_difference(one, two)                     # d = 0.2, 0.1, 0.3; std 0.1; t = 4.303
    >>> round(found.mean, 3), round(found.low, 3), round(found.high, 3)
    (0.2, -0.048, 0.448)
    """
    means_before, means_after = _task_means(before, of), _task_means(after, of)
    common = sorted(means_before.keys() & means_after.keys())
    if not common:
        raise UsageError(
            "Comparing two evaluations needs the same tasks in both, but "
            f"{len(means_before)} and {len(means_after)} scored tasks have none in common. "
            "Evaluate both on the same data.validation."
        )
    changes = Moments.of([means_after[task_id] - means_before[task_id] for task_id in common])
    if changes.count == 1:
        return Difference(changes.mean, None, None, 1, confidence)
    half_width = _t_quantile(changes.count - 1, confidence) * changes.std_error
    return Difference(changes.mean, changes.mean - half_width, changes.mean + half_width, changes.count, confidence)


def _task_means(scores: Sequence[TaskScore], of: str) -> dict[str, float]:
    values = {score.task_id: getattr(score, of) for score in scores}
    return {task_id: math.fsum(of_task) / len(of_task) for task_id, of_task in values.items() if of_task}


def _t_quantile(degrees: int, confidence: float) -> float:
    # scipy.special is a tenth of scipy.stats to import.
    from scipy.special import stdtrit

    return float(stdtrit(degrees, 0.5 + confidence / 2))
