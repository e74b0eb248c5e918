"""pass@k: how often at least one of k samples is right."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class PassAtK:
    """One estimate over tasks.

    >>> PassAtK(k=1, mean=0.5, low=0.3, high=0.7, num_tasks=20).k
    1
    """

    k: int
    mean: float
    low: float | None
    """Ends of the 95 % interval over tasks; None with a single task."""
    high: float | None
    num_tasks: int


def task_pass_at_k(num_samples: int, num_correct: int, k: int) -> float:
    """Unbiased estimate from n samples of one task, c of them right.

        pass@k = 1 - C(n - c, k) / C(n, k)            the share of the k-subsets that hold a right one

    Source:  Chen et al. 2021, arXiv:2107.03374, equation 1. The plug-in 1 - (1 - c/n)^k is biased.

    >>> task_pass_at_k(4, 1, 2)        # 1 - C(3, 2) / C(4, 2) = 1 - 3/6
    0.5
    """
    assert 0 <= num_correct <= num_samples and 1 <= k <= num_samples, (num_samples, num_correct, k)
    return 1.0 - math.comb(num_samples - num_correct, k) / math.comb(num_samples, k)


def pass_at_k(counts: Sequence[tuple[int, int]], k: int) -> PassAtK:
    """Mean over tasks, with a normal interval over tasks: tasks are the independent draws, samples of one task are not.

    counts: (samples, right ones) of each task that has at least k samples; others must be left out by the caller.

    >>> result = pass_at_k([(4, 4), (4, 0)], k=1)
    >>> result.mean, result.low, result.high          # mean 0.5, std error sqrt(0.5 / 2) = 0.5, cut at 0 and 1
    (0.5, 0.0, 1.0)
    """
    values = [task_pass_at_k(n, c, k) for n, c in counts]
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        return PassAtK(k, mean, None, None, 1)
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    half_width = 1.96 * math.sqrt(variance / len(values))
    return PassAtK(k, mean, max(0.0, mean - half_width), min(1.0, mean + half_width), len(values))
