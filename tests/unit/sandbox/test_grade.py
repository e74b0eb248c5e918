import math

from hypothesis import given
from hypothesis import strategies as st

from evenkeel.records import Outcome, Task, TestCase
from evenkeel.sandbox.grade import equal
from tests.unit.sandbox.conftest import ADD, returning, run

_CHECK = "def check(candidate):\n    assert candidate(1, 2) == 3\n    assert candidate(b=5, a=5) == 10\n"
ASSERTS = Task("add", "def add(a, b):\n", "add", assert_source=_CHECK)


def test_a_right_program_passes_every_hidden_test(sandbox):
    verdict = run(sandbox, returning("a + b"))
    assert (verdict.outcome, verdict.tests_passed, verdict.tests_total, verdict.detail) == (Outcome.PASSED, 4, 4, "")
    assert 0 < verdict.cpu_s < 1


def test_a_half_right_program_gets_its_share(sandbox):
    verdict = run(sandbox, returning("a + b if a < 3 else 0"))
    assert (verdict.outcome, verdict.tests_passed, verdict.share) == (Outcome.WRONG_ANSWER, 2, 0.5)


def test_visible_tests_are_not_run(sandbox):
    task = Task("add", "", "add", cases=(TestCase((1, 1), 99, visible=True), TestCase((1, 1), 2)))
    verdict = run(sandbox, returning("a + b"), task)
    assert (verdict.outcome, verdict.tests_total) == (Outcome.PASSED, 1)


def test_an_exception_in_one_test_leaves_the_others_their_answers(sandbox):
    verdict = run(sandbox, "def add(a, b):\n    if a == 2:\n        raise KeyError('two')\n    return a + b\n")
    assert (verdict.outcome, verdict.tests_passed) == (Outcome.EXCEPTION, 3)
    assert verdict.detail == "KeyError: 'two'"


def test_how_programs_fail_is_told_apart(sandbox):
    programs = {
        "def add(a, b)\n": Outcome.PARSE_ERROR,
        "": Outcome.PARSE_ERROR,
        "x = '\0'": Outcome.PARSE_ERROR,
        "x = '\ud800'": Outcome.PARSE_ERROR,
        "(" * 5000 + ")" * 5000: Outcome.PARSE_ERROR,
        "x = 1\n" * 60_000: Outcome.PARSE_ERROR,
        "def other():\n    pass\n": Outcome.EXCEPTION,
        "add = 3\n": Outcome.EXCEPTION,
        "raise ValueError('at import')\n": Outcome.EXCEPTION,
        returning("(x for x in [a, b])"): Outcome.NOT_DATA,
        returning("add"): Outcome.NOT_DATA,
        "import sys\ndef add(a, b):\n    return add(a, b)\n": Outcome.EXCEPTION,
    }
    assert {program: run(sandbox, program).outcome for program in programs} == programs


def test_verdicts_keep_the_order_of_the_jobs(sandbox):
    from evenkeel.sandbox.base import Job

    verdicts = sandbox.run([Job(ADD, returning(f"a + b if a <= {n} else None")) for n in (4, 0, 3, 1, 2)])
    assert [verdict.tests_passed for verdict in verdicts] == [4, 0, 3, 1, 2]


def test_state_kept_between_calls_does_not_know_which_test_it_is_asked(sandbox):
    cases = tuple(TestCase((), n) for n in range(8))
    program = "n = -1\ndef add():\n    global n\n    n += 1\n    return n\n"
    assert run(sandbox, program, Task("count", "", "add", cases=cases)).outcome is Outcome.WRONG_ANSWER


def test_the_same_program_gets_the_same_verdict_again(sandbox):
    program = "import random\ndef add(a, b):\n    return a + b + (random.random() < 0.5) + 0 * len(str({'x', 'y', str(a)}))\n"
    verdicts = [run(sandbox, program) for _ in range(5)]
    assert len({(verdict.outcome, verdict.tests_passed, verdict.detail) for verdict in verdicts}) == 1


def test_arguments_reach_the_program_as_the_types_they_are(sandbox):
    args = ((1, "x"), {"k": {1, 2}}, b"\x00", 1.5, None, frozenset({3}), 2**80, 1j)
    task = Task("echo", "", "echo", cases=(TestCase(args, [list(args), [type(arg).__name__ for arg in args]]),))
    assert run(sandbox, "def echo(*a):\n    return [list(a), [type(x).__name__ for x in a]]\n", task).outcome is Outcome.PASSED


def test_a_program_finds_the_standard_library_and_clean_surroundings(sandbox):
    task = Task("env", "", "env", cases=(TestCase((), [2, "[]", True]),))
    program = (
        "import os, csv, json.tool, zoneinfo, concurrent.futures\nfrom dataclasses import dataclass\n"
        "@dataclass\nclass P:\n    x: int\n"
        "def env():\n    odd = sorted(set(os.environ) - {'PYTHONHASHSEED', 'PATH', 'LC_ALL', 'LD_LIBRARY_PATH'})\n"
        "    return [P(2).x, str(odd), __name__ != '__main__']\n"
    )
    verdict = run(sandbox, program, task)
    assert verdict.outcome is Outcome.PASSED, verdict.detail


# --------------------------------------------------------------------------- asserts


def test_asserts_call_the_program_through_data(sandbox):
    assert run(sandbox, returning("a + b"), ASSERTS).outcome is Outcome.PASSED
    wrong = run(sandbox, returning("a - b"), ASSERTS)
    assert (wrong.outcome, wrong.tests_passed, wrong.tests_total) == (Outcome.WRONG_ANSWER, 0, 1)


def test_asserts_without_a_check_function_call_the_entry_point(sandbox):
    task = Task("add", "", "add", assert_source="import math\nassert math.floor(add(1.5, 1.0)) == 2\n")
    assert run(sandbox, returning("a + b"), task).outcome is Outcome.PASSED
    assert run(sandbox, returning("a * 0"), task).outcome is Outcome.WRONG_ANSWER


def test_a_test_may_expect_an_exception(sandbox):
    source = "try:\n    add(1, 'x')\n    assert False\nexcept TypeError:\n    pass\n"
    task = Task("add", "", "add", assert_source=source)
    assert run(sandbox, returning("a + b"), task).outcome is Outcome.PASSED
    assert run(sandbox, returning("0"), task).outcome is Outcome.WRONG_ANSWER


def test_faults_under_asserts_are_told_apart(sandbox):
    programs = {
        returning("1 / 0"): Outcome.EXCEPTION,
        returning("lambda: 0"): Outcome.NOT_DATA,
        "def add(a, b)\n": Outcome.PARSE_ERROR,
        "def other():\n    pass\n": Outcome.EXCEPTION,
        "raise SystemExit(0)\n": Outcome.EXCEPTION,
    }
    assert {program: run(sandbox, program, ASSERTS).outcome for program in programs} == programs


def test_tests_that_ask_nothing_prove_nothing(sandbox):
    task = Task("add", "", "add", assert_source="assert True or add\n")
    assert run(sandbox, returning("a + b"), task).outcome is Outcome.WRONG_ANSWER


def test_a_test_that_passes_objects_is_our_limit_and_not_the_programs_fault(sandbox):
    task = Task("add", "", "add", assert_source="assert add(object(), 1) is None\n")
    verdict = run(sandbox, returning("None"), task)
    assert not verdict.scored and "plain data" in verdict.detail


# --------------------------------------------------------------------------- comparison


def test_tolerance_holds_inside_containers_and_only_for_floats():
    assert equal([1.0, {"x": (2.0000001,)}], [1, {"x": (2.0,)}], 1e-6)
    assert not equal([1.0, {"x": (2.1,)}], [1, {"x": (2.0,)}], 1e-6)
    assert not equal(3, 4, 1.5)
    assert not equal((1.0,), [1.0], 1e-6)
    assert not equal([1.0], [1.0, 2.0], 1e-6)


def test_nan_is_right_only_where_nan_is_expected():
    nan = float("nan")
    assert equal([nan], [nan]) and not equal(nan, 1.0, 5.0) and not equal(1.0, nan, 5.0)
    assert equal(math.inf, math.inf, 0.1) and not equal(1.0, math.inf, 1e9)


def test_an_integer_beyond_the_floats_is_compared_without_an_error():
    assert not equal(10**400, 1.0, 0.5) and not equal(1.0, 10**400, 0.5)


@given(st.recursive(st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_without_tolerance_equal_is_python_equality(value):
    assert equal(value, value) and not equal([value], value)
