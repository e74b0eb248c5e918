from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.records import Outcome, Task, Verdict
from evenkeel.reward.base import Submission
from evenkeel.reward.teacher.offline import (
    DEFAULT_RUBRIC,
    HOUSE_LIMITS,
    OfflineTeacher,
    documentation,
    efficiency,
    fit,
    quality,
)
from evenkeel.sandbox.base import CodeFacts
from evenkeel.tasks.base import program_of
from tests.unit.reward.builders import PASSED, PROMPT, RIGHT, TASK, facts

EVEN = Task(
    "even",
    'def solve(xs):\n    """Keep the even items, then return their sum."""\n',
    "solve",
    reference="    xs = [x for x in xs if x % 2 == 0]\n    return sum(xs)\n",
)
INSTRUCTION = Task("add", "Write a function add that adds two integers.", "add", reference="def add(a, b):\n    return a + b\n")


def submission(task, text, verdict=PASSED):
    program = program_of(task, text)
    return Submission(task, text, program, verdict, facts(program), facts(program_of(task, task.reference)))


def values(task, text, verdict=PASSED):
    [parts] = OfflineTeacher(1.0).grade([submission(task, text, verdict)])
    return {part.name.removeprefix("teacher/"): part.value for part in parts}


def test_the_reference_itself_is_worth_one_in_every_dimension():
    assert values(EVEN, EVEN.reference) == dict.fromkeys(DEFAULT_RUBRIC, 1.0)


def test_a_shorter_answer_is_worth_as_much_as_the_reference():
    assert values(EVEN, "    return sum(x for x in xs if x % 2 == 0)\n") == dict.fromkeys(DEFAULT_RUBRIC, 1.0)


def test_a_right_but_long_answer_has_the_value_of_the_docstring():
    # 5 statements against 2, complexity 2 against 1, nesting 1 against 0, one loop against none, x is one more short name
    long = "    total = 0\n    for x in xs:\n        total += x\n    return total\n"
    assert values(TASK, long) == {
        "correctness": 1.0,
        "quality": pytest.approx(0.8),  # 0.30 * 2/3 + 0.20 * 1/2 + 0.50
        "efficiency": pytest.approx(0.5),  # 0.50 * 1/2 + 0.25 * 1/2 + 0.25 * 3/6
        "documentation": 0.5,  # (1 + 0) / (1 + 1)
    }


def test_everything_counts_only_as_far_as_the_tests_pass():
    half = Verdict(Outcome.WRONG_ANSWER, 1, 2)
    assert values(EVEN, EVEN.reference, half) == dict.fromkeys(DEFAULT_RUBRIC, 0.5)
    none = Verdict(Outcome.EXCEPTION, 0, 2)
    assert values(EVEN, EVEN.reference, none) == dict.fromkeys(DEFAULT_RUBRIC, 0.0)


def test_the_weights_share_out_the_teachers_own():
    # 0.3 * (0.3, 0.3, 0.2, 0.2) / 1.0
    [parts] = OfflineTeacher(0.3).grade([submission(TASK, RIGHT)])
    assert [(part.name, pytest.approx(part.weight)) for part in parts] == [
        ("teacher/correctness", 0.09),
        ("teacher/quality", 0.09),
        ("teacher/efficiency", 0.06),
        ("teacher/documentation", 0.06),
    ]


def test_rubric_weights_are_renormalised_and_a_weight_of_zero_drops_the_dimension():
    teacher = OfflineTeacher(0.5, {"correctness": 3, "quality": 1, "efficiency": 0, "documentation": 0})
    [parts] = teacher.grade([submission(TASK, RIGHT)])
    assert [(part.name, part.weight) for part in parts] == [("teacher/correctness", 0.375), ("teacher/quality", 0.125)]


def test_comments_and_noqa_buy_nothing():
    plain = "    total = 0\n    for x in xs:\n        total += x\n    return total\n"
    noisy = "    # Adds up, carefully.\n    total = 0  # noqa\n    for x in xs:  # each\n        total += x\n    return total\n"
    assert values(TASK, noisy) == values(TASK, plain)


def test_padding_costs_quality_and_efficiency():
    padded = "    spare = 1\n    unused = 2\n    xs = list(xs)\n    xs = list(xs)\n    return sum(xs)\n"
    found = values(TASK, padded)
    # two unused names: 0.15 * 1/3, one repeated statement: 0.15 * 1/2, all else 1
    assert found["quality"] == pytest.approx(0.70 + 0.05 + 0.075)
    # six statements against two, no loops: 0.75 + 0.25 * 3/7
    assert found["efficiency"] == pytest.approx(0.75 + 0.25 * 3 / 7)


def test_the_prompts_docstring_earns_nothing_and_neither_does_a_second_one():
    with_own_docstring = '    """Adds up the items of the list that it is given."""\n' + RIGHT
    assert values(TASK, with_own_docstring)["documentation"] == values(TASK, RIGHT)["documentation"] == 1.0


def test_an_instruction_asks_for_docstring_names_and_annotations():
    bare = "def add(a, b):\n    return a + b\n"
    # no docstring: 0; names as in the reference: 0.25; the reference has no annotations, so none are asked for: 0.25
    assert values(INSTRUCTION, bare)["documentation"] == 0.5
    documented = 'def add(a, b):\n    """Sum of two integers."""\n    return a + b\n'
    # 20 of 40 characters: 0.5 * 20 / 40
    assert values(INSTRUCTION, documented)["documentation"] == 0.75
    annotated = replace(INSTRUCTION, reference="def add(a: int, b: int) -> int:\n    return a + b\n")
    half_annotated = "def add(a: int, b):\n    return a + b\n"
    # one of three annotations: 0.25 + 0.25 / 3
    assert values(annotated, half_annotated)["documentation"] == pytest.approx(0.25 + 0.25 / 3)


def test_without_a_reference_the_house_limits_are_the_yardstick():
    within = CodeFacts("parsed", cyclomatic_complexity=10, max_nesting=3, num_loops=3, max_loop_depth=2, num_statements=20)
    assert quality(TASK, within, None) == pytest.approx(1.0) and efficiency(TASK, within, None) == 1.0
    beyond = replace(HOUSE_LIMITS, max_loop_depth=5, num_statements=41)
    # 0.50 * 3/6 + 0.25 + 0.25 * 21/42
    assert efficiency(TASK, beyond, None) == 0.625


def test_a_failure_of_the_sandbox_is_unscored():
    [parts] = OfflineTeacher(1.0).grade([submission(TASK, RIGHT, Verdict(Outcome.INFRASTRUCTURE))])
    assert {(part.status, part.value) for part in parts} == {("unscored", None)}


@pytest.mark.parametrize("what", ["facts", "reference_facts"])
def test_what_we_failed_to_inspect_is_judged_by_its_tests_alone(what):
    lost = replace(submission(TASK, RIGHT), **{what: CodeFacts("not_inspected", error="the zygote is gone")})
    [parts] = OfflineTeacher(1.0).grade([lost])
    assert [part.status for part in parts] == ["scored", "unscored", "unscored", "unscored"]


def test_a_passing_program_that_cannot_be_read_has_nothing_but_its_tests():
    """Unscored, it would take three parts of the reward away from its whole group."""
    unreadable = replace(submission(TASK, RIGHT), facts=CodeFacts("unreadable", error="longer than 64 KiB"))
    [parts] = OfflineTeacher(1.0).grade([unreadable])
    assert [(part.status, part.value) for part in parts] == [("scored", 1.0), ("scored", 0.0), ("scored", 0.0), ("scored", 0.0)]
    assert parts[1].reason == "the program cannot be read: longer than 64 KiB"


@given(own=st.integers(0, 50), allowed=st.integers(0, 50))
def test_fit_lies_in_0_to_1_and_more_is_never_better(own, allowed):
    assert 0 < fit(own + 1, allowed) <= fit(own, allowed) <= 1
    assert fit(own, allowed) == 1 or own > allowed


COUNTS = ("num_statements", "max_nesting", "num_loops", "max_loop_depth", "cyclomatic_complexity", "num_short_names",
          "docstring_chars", "num_parameters", "num_annotations")  # fmt: skip


@given(
    st.builds(CodeFacts, status=st.just("parsed"), **{name: st.integers(0, 60) for name in COUNTS}),
    st.sampled_from([TASK, INSTRUCTION]),
)
def test_every_value_lies_in_0_to_1(found, task):
    for dimension in (quality, efficiency, documentation):
        for reference in (None, facts(PROMPT + RIGHT)):
            assert 0 <= dimension(task, found, reference) <= 1 + 1e-12
