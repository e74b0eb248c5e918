from dataclasses import replace

import pytest

from evenkeel.config.load import load_config
from evenkeel.config.stages import ScoreSettings, score_settings
from evenkeel.errors import UsageError
from evenkeel.reward.standard import rewards_of

OWN = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Own:
    weight: float
    name: str = "own"
    needs_facts: bool = False

    def grade(self, submissions):
        return [[] for _ in submissions]

class HalfDone:
    name = "half done"

    def __init__(self, weight):
        self.weight = weight

FIVE = 5
"""
NOTHING = ScoreSettings(0.0, "share", 0.0, 0.0, {"correctness": 1.0}, {})


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_rewards_of_a_test.py").write_text(OWN)
    return "own_rewards_of_a_test"


def test_the_default_is_tests_and_teacher():
    rewards = rewards_of(score_settings(load_config(None)), allow_custom_code=False)
    assert [(reward.name, reward.weight) for reward in rewards] == [("tests", 0.7), ("teacher", 0.3)]


def test_every_setting_reaches_its_reward():
    overrides = ["reward.tests_mode=all", "reward.format=0.1", "teacher.weights.efficiency=0.0", "reward.teacher=0.5"]
    tests, teacher, form = rewards_of(score_settings(load_config(None, overrides)), allow_custom_code=False)
    assert tests.mode == "all" and (teacher.weight, teacher.rubric["efficiency"]) == (0.5, 0.0) and form.weight == 0.1


def test_an_own_reward_is_found_in_the_current_folder(own_module):
    [reward] = rewards_of(replace(NOTHING, custom={f"{own_module}:Own": 0.2}), allow_custom_code=True)
    assert (reward.name, reward.weight) == ("own", 0.2)


def test_an_own_reward_is_not_imported_where_that_is_not_allowed(own_module):
    with pytest.raises(UsageError, match="is not imported"):
        rewards_of(replace(NOTHING, custom={f"{own_module}:Own": 0.2}), allow_custom_code=False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "All weights of the reward are 0"),
        ({"teacher_weight": 0.3, "rubric": {"correctness": 0.0}}, "All of teacher.weights are 0"),
        ({"custom": {"own_rewards_of_a_test:Own": -1.0}}, "weight -1.0"),
        ({"custom": {"own_rewards_of_a_test:Missing": 1.0}}, "has no `Missing`"),
        ({"custom": {"no_such_module_anywhere:Own": 1.0}}, "there is no module `no_such_module_anywhere`"),
        ({"custom": {"own_rewards_of_a_test": 1.0}}, "write `module:name`"),
        ({"custom": {"own_rewards_of_a_test:FIVE": 1.0}}, "is a int; it must be a class or a function"),
        ({"custom": {"own_rewards_of_a_test:HalfDone": 1.0}}, "has no `needs_facts`"),
    ],
)
def test_settings_that_give_no_reward_say_what_to_do(own_module, changes, message):
    with pytest.raises(UsageError, match=message):
        rewards_of(replace(NOTHING, **changes), allow_custom_code=True)
