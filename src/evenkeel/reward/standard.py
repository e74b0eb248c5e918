"""From settings to reward objects: the built-in ones, and a user's own by `module:name`."""

from __future__ import annotations

import math

from evenkeel.config.named import named_object
from evenkeel.config.stages import ScoreSettings
from evenkeel.errors import UsageError
from evenkeel.reward.base import Reward
from evenkeel.reward.format import FormatReward
from evenkeel.reward.teacher.offline import OfflineTeacher
from evenkeel.reward.tests import TestsReward


def rewards_of(settings: ScoreSettings, *, allow_custom_code: bool) -> tuple[Reward, ...]:
    """The rewards with a weight above 0. `allow_custom_code` False refuses to import what the configuration names.

    >>> settings = ScoreSettings(0.7, "share", 0.3, 0.0, {"correctness": 1.0}, {})
    >>> [(reward.name, reward.weight) for reward in rewards_of(settings, allow_custom_code=False)]
    [('tests', 0.7), ('teacher', 0.3)]
    """
    rewards: list[Reward] = []
    if settings.tests_weight > 0:
        rewards.append(TestsReward(settings.tests_weight, settings.tests_mode))
    if settings.teacher_weight > 0:
        rewards.append(OfflineTeacher(settings.teacher_weight, _checked_rubric(settings.rubric)))
    if settings.format_weight > 0:
        rewards.append(FormatReward(settings.format_weight))
    for named, weight in settings.custom.items():
        _expect_weight(named, weight)
        if weight > 0:
            rewards.append(_own_reward(named, weight, allow_custom_code=allow_custom_code))
    if not rewards:
        raise UsageError(
            "All weights of the reward are 0 (reward.tests, reward.teacher, reward.format, reward.custom), so no answer is "
            "worth anything. Give at least one a weight, such as `reward.tests: 0.7`."
        )
    return tuple(rewards)


def _checked_rubric(rubric: dict[str, float]) -> dict[str, float]:
    if sum(rubric.values()) <= 0:
        raise UsageError(
            "All of teacher.weights are 0 while reward.teacher is not. Give a dimension a weight, or set `reward.teacher: 0`."
        )
    return rubric


def _expect_weight(named: str, weight: float) -> None:
    if not (math.isfinite(weight) and weight >= 0):
        raise UsageError(f"reward.custom gives `{named}` the weight {weight}; a weight is 0 or more.")


def _own_reward(named: str, weight: float, *, allow_custom_code: bool) -> Reward:
    make = named_object(named, setting="reward.custom", allowed=allow_custom_code)
    if not callable(make):
        raise UsageError(
            f"`{named}` in reward.custom is a {type(make).__name__}; it must be a class or a function that takes the weight."
        )
    reward = make(weight)
    missing = [member for member in ("name", "weight", "needs_facts", "grade") if not hasattr(reward, member)]
    if missing:
        raise UsageError(
            f"The reward `{named}` has no `{missing[0]}`. A reward has name, weight, needs_facts and grade(submissions)."
        )
    return reward
