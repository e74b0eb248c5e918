"""The learning rate at every optimizer step, without torch: transformers' schedules by transformers' names.

    (settings, step, total_steps) -> multiplier -> learning rate

`step` counts from 0: the first optimizer step of a run uses `multiplier(settings, 0, total)`. So with warmup the first
step has rate 0 and moves nothing, exactly as in transformers. The trainer applies these numbers and `plan` prints them.
A schedule is a pure function of the step, so a resumed run or a branch with a new rate cannot carry a stale one over.

Source of every formula: transformers, `optimization.py` (`get_scheduler`); a test compares each step with it.
"""

from __future__ import annotations

import math

from evenkeel.config.stages import ScheduleSettings

DEFAULT_LR_END = 1e-7
DEFAULT_TIMESCALE_STEPS = 10_000


def learning_rate_at(settings: ScheduleSettings, step: int, total_steps: int) -> float:
    """The rate that the optimizer step with index `step` (from 0) applies.

    >>> seed = ScheduleSettings("cosine", 1e-5, 100, None, None, None, None, None)
    >>> learning_rate_at(seed, 7, 8)  # 7 / 100 of 1e-5: the run is over long before its warmup
    7.000000000000001e-07
    """
    return settings.learning_rate * multiplier(settings, step, total_steps)


def multiplier(settings: ScheduleSettings, step: int, total_steps: int) -> float:
    """Share of the peak rate: linear warmup from 0 to 1 over W steps, then the schedule's own shape.

        step < W:  step / W
        else:      shape(step)            W = warmup_steps(settings, total_steps)

    Edge: `constant` has no warmup, in transformers as here.

    >>> settings = ScheduleSettings("linear", 1e-3, 2, None, None, None, None, None)
    >>> [multiplier(settings, step, 6) for step in range(7)]
    [0.0, 0.5, 1.0, 0.75, 0.5, 0.25, 0.0]
    """
    warmup = warmup_steps(settings, total_steps)
    if settings.scheduler != "constant" and step < warmup:
        return step / warmup
    return SHAPES[settings.scheduler](settings, step, warmup, total_steps)


def warmup_steps(settings: ScheduleSettings, total_steps: int) -> int:
    """Optimizer steps of warmup; a ratio is rounded up, as transformers does.

    >>> warmup_steps(ScheduleSettings("linear", 1e-3, None, 0.1, None, None, None, None), 25)  # ceil(2.5)
    3
    """
    if settings.warmup_steps is not None:
        return settings.warmup_steps
    return math.ceil(total_steps * (settings.warmup_ratio or 0.0))


def _progress(step: int, warmup: int, total: int) -> float:
    """0 at the end of the warmup, 1 at the end of the run."""
    return (step - warmup) / max(1, total - warmup)


def _constant(settings: ScheduleSettings, step: int, warmup: int, total: int) -> float:
    """1"""
    return 1.0


def _linear(settings: ScheduleSettings, step: int, warmup: int, total: int) -> float:
    """max(0, (S - s) / (S - W)): from 1 to 0."""
    return max(0.0, (total - step) / max(1, total - warmup))


def _cosine(settings: ScheduleSettings, step: int, warmup: int, total: int) -> float:
    """max(0, (1 + cos(2 pi c p)) / 2), p the progress, c = num_cycles (default 0.5: half a wave, from 1 to 0).

    Edge: a whole number of cycles ends where it began, at the peak.
    """
    cycles = 0.5 if settings.num_cycles is None else settings.num_cycles
    return max(0.0, 0.5 * (1.0 + math.cos(math.pi * cycles * 2.0 * _progress(step, warmup, total))))


def _cosine_with_restarts(settings: ScheduleSettings, step: int, warmup: int, total: int) -> float:
    """max(0, (1 + cos(pi ((c p) mod 1))) / 2): c = num_cycles (default 1) falls from 1 to 0, with a jump back between two."""
    cycles = 1.0 if settings.num_cycles is None else settings.num_cycles
    progress = _progress(step, warmup, total)
    if progress >= 1.0:
        return 0.0
    return max(0.0, 0.5 * (1.0 + math.cos(math.pi * ((cycles * progress) % 1.0))))


def _polynomial(settings: ScheduleSettings, step: int, warmup: int, total: int) -> float:
    """((lr - end) (1 - p)^power + end) / lr, end = lr_end (default 1e-7), power default 1.

    Departs: with no step left after the warmup the last rate is `end`; transformers divides by zero there.
    """
    peak = settings.learning_rate
    end = DEFAULT_LR_END if settings.lr_end is None else settings.lr_end
    power = 1.0 if settings.power is None else settings.power
    if step > total or total == warmup:
        return end / peak
    return ((peak - end) * (1 - (step - warmup) / (total - warmup)) ** power + end) / peak


def _inverse_sqrt(settings: ScheduleSettings, step: int, warmup: int, total: int) -> float:
    """sqrt(t / (s + t - W)), t = timescale (default: the warmup, or 10000 without warmup). Knows no end of the run."""
    timescale = settings.timescale or warmup or DEFAULT_TIMESCALE_STEPS
    return 1.0 / math.sqrt((step + timescale - warmup) / timescale)


SHAPES = {
    "constant": _constant,
    "constant_with_warmup": _constant,
    "linear": _linear,
    "cosine": _cosine,
    "cosine_with_restarts": _cosine_with_restarts,
    "polynomial": _polynomial,
    "inverse_sqrt": _inverse_sqrt,
}
