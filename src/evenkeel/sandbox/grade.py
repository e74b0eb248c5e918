"""One program against one task: ask the child, compare out here.

    grade(zygotes, job, limits) -> Verdict

Tests as data: the child is sent the calls, in an order that depends on the expected values and so is unknown to it, and
each answer is decoded and compared with == in the trainer. A test without an answer of its own is failed.

Tests as asserts: they run in a child of another zygote, with the entry point replaced by a stub; each of its calls is
relayed to the program's child as data. The program's code never shares a process with the tests, and cannot reach theirs.
"""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Callable
from typing import Any

from evenkeel import codec
from evenkeel.records import Outcome, TestCase, Verdict
from evenkeel.sandbox.base import Job, Limits
from evenkeel.sandbox.zygote import Child, Ending, Stopped, Zygote, ZygoteLost

MAX_PROGRAM_CHARS = 1 << 18
_NUMBERS = (int, float, complex)
_WORST_FIRST = (
    Outcome.PARSE_ERROR, Outcome.PROTOCOL_VIOLATION, Outcome.OUTPUT_LIMIT, Outcome.MEMORY, Outcome.TIMEOUT, Outcome.CRASHED,
    Outcome.NOT_DATA, Outcome.EXCEPTION, Outcome.WRONG_ANSWER, Outcome.PASSED,
)  # fmt: skip


class UnusableTest(Exception):
    """The task's own test cannot be run by relayed calls, as when it passes objects: no fault of the program."""


class _Violation(Exception):
    """The child broke the protocol."""


def grade(job: Job, limits: Limits, solution_zygote: Callable[[], Zygote], tests_zygote: Callable[[], Zygote]) -> Verdict:
    """Run one job. Raises ZygoteLost when our side failed."""
    task = job.task
    total = 1 if task.assert_source is not None else len(task.hidden_cases)
    assert total, f"task {task.task_id} has no hidden test"
    if not job.program.strip():
        return Verdict(Outcome.PARSE_ERROR, 0, total, "no code")
    if len(job.program) > MAX_PROGRAM_CHARS:
        return Verdict(Outcome.PARSE_ERROR, 0, total, f"longer than {MAX_PROGRAM_CHARS} characters")
    if task.assert_source is not None:
        return _grade_asserts(job, limits, solution_zygote(), tests_zygote())
    return _grade_cases(job, limits, solution_zygote())


def equal(answer: Any, expected: Any, tolerance: float = 0.0) -> bool:
    """Plain ==; within `tolerance` for floats anywhere inside; NaN equals NaN, but only where NaN is expected.

    >>> equal((1, [0.1 + 0.2]), (1, [0.3])), equal((1, [0.1 + 0.2]), (1, [0.3]), 1e-9), equal(3.0, 3)
    (False, True, True)
    """
    if answer == expected:
        return True
    if isinstance(expected, _NUMBERS) and isinstance(answer, _NUMBERS):
        return _close(answer, expected, tolerance)
    if type(answer) is not type(expected) or not isinstance(expected, (list, tuple, dict)) or len(answer) != len(expected):
        return False
    if isinstance(expected, dict):
        return all(key in answer and equal(answer[key], value, tolerance) for key, value in expected.items())
    return all(equal(mine, theirs, tolerance) for mine, theirs in zip(answer, expected, strict=True))


def _close(answer: Any, expected: Any, tolerance: float) -> bool:
    """For two numbers that differ: NaN where NaN is expected, or near enough with at least one of them a float."""
    if expected != expected:
        return answer != answer
    if isinstance(answer, int) and isinstance(expected, int):
        return False
    try:
        return abs(answer - expected) <= tolerance
    except OverflowError:  # an int beyond the floats
        return False


# --------------------------------------------------------------------------- tests as data


def _grade_cases(job: Job, limits: Limits, zygote: Zygote) -> Verdict:
    cases = job.task.hidden_cases
    order = _shuffled(cases, job.program)
    deadline = time.monotonic() + limits.timeout_s
    results: dict[int, tuple[Outcome, str]] = {}
    child = zygote.start_child()
    child.send(_header("solution", job.program, job.task.entry_point))
    child.send("".join(_call(index, cases[index].args, {}) for index in order))
    failure = None
    try:
        loaded = _load_failure(_reply(child, deadline, -1))
        if loaded is not None:
            failure = loaded
        else:
            for index in order:
                results[index] = _judge(cases[index], _reply(child, deadline, index))
    except (Stopped, _Violation) as stop:
        failure = stop
    ending = zygote.end_child(child)
    if isinstance(failure, Exception):
        failure = _explain(failure, ending, limits)
    return _verdict(cases, results, failure, ending.cpu_s)


def _shuffled(cases: tuple[TestCase, ...], program: str) -> list[int]:
    """An order that is the same at every replay and that the child, which sees no expected value, cannot work out."""
    order = list(range(len(cases)))
    seed = codec.encode([case.expected for case in cases]) + program
    random.Random(seed.encode("utf-8", "surrogatepass")).shuffle(order)
    return order


def _judge(case: TestCase, reply: list) -> tuple[Outcome, str]:
    kind, *rest = reply
    if kind != "value":
        return _fault(kind, rest)
    try:
        answer = codec.from_tree(rest[0])
    except codec.CodecError as error:
        return Outcome.PROTOCOL_VIOLATION, str(error)
    if equal(answer, case.expected, case.tolerance):
        return Outcome.PASSED, ""
    return Outcome.WRONG_ANSWER, f"{_shown(case.args)} gave {_shown(answer)}, not {_shown(case.expected)}"


def _verdict(
    cases: tuple[TestCase, ...], results: dict[int, tuple[Outcome, str]], failure: tuple[Outcome, str] | None, cpu_s: float
) -> Verdict:
    """Of the worst test; a test without a result failed like the program did."""
    outcomes = [results.get(index, failure) for index in range(len(cases))]
    passed = sum(outcome is Outcome.PASSED for outcome, _ in outcomes)
    worst, detail = min(outcomes, key=lambda result: _WORST_FIRST.index(result[0]))
    return Verdict(worst, passed, len(cases), _one_line(detail), cpu_s)


# --------------------------------------------------------------------------- tests as asserts


def _grade_asserts(job: Job, limits: Limits, solution_zygote: Zygote, tests_zygote: Zygote) -> Verdict:
    deadline = time.monotonic() + limits.timeout_s
    solution = solution_zygote.start_child()
    solution.send(_header("solution", job.program, job.task.entry_point))
    failure = result = None
    tests = tests_zygote.start_child()
    try:
        result = _load_failure(_reply(solution, deadline, -1))
        if result is None:
            tests.send(_header("tests", job.task.assert_source, job.task.entry_point))
            result = _relay(solution, tests, deadline)
    except (Stopped, _Violation) as stop:
        failure = stop
    finally:
        tests_ending = tests_zygote.end_child(tests)
        ending = solution_zygote.end_child(solution)
    if isinstance(failure, _TestsStopped):
        if failure.reason == "ended" and tests_ending.status != -signal.SIGXCPU:
            raise ZygoteLost(f"the tests' process ended ({_named_status(tests_ending.status)})")
        result = Outcome.TIMEOUT, "the tests did not end in time"
    elif failure is not None:
        result = _explain(failure, ending, limits)
    return Verdict(result[0], int(result[0] is Outcome.PASSED), 1, _one_line(result[1]), ending.cpu_s)


class _TestsStopped(Stopped):
    """The tests' child, not the program's, fell silent."""


def _relay(solution: Child, tests: Child, deadline: float) -> tuple[Outcome, str]:
    """Carry calls to the program and answers back until the tests have decided; raises UnusableTest when they cannot."""
    num_calls, last_fault = 0, None
    while True:
        try:
            kind, *rest = _reply(tests, deadline, 0)
        except Stopped as stop:
            raise _TestsStopped(stop.reason) from stop
        if kind == "passed":
            # a test that never asked proves nothing
            return (Outcome.PASSED, "") if num_calls else (Outcome.WRONG_ANSWER, "the tests made no call")
        if kind == "unusable":
            raise UnusableTest(": ".join(rest))
        if kind == "failed":
            error_type, text = rest
            return last_fault or (Outcome.WRONG_ANSWER, f"{error_type}: {text}" if text else f"call {num_calls}: {error_type}")
        num_calls += 1
        solution.send(json.dumps([num_calls, *rest], separators=(",", ":")) + "\n")
        answer_kind, *answer = _reply(solution, deadline, num_calls)
        last_fault = None if answer_kind == "value" else _fault(answer_kind, answer)
        if answer_kind == "not_data":
            return last_fault
        tests.send(json.dumps([answer_kind, *_checked(answer_kind, answer)], separators=(",", ":")) + "\n")


def _checked(kind: str, answer: list) -> list:
    """A program's answer, rebuilt from decoded data: what it wrote never reaches the tests as it stands."""
    if kind != "value":
        return answer
    try:
        return [codec.to_tree(codec.from_tree(answer[0]))]
    except (codec.CodecError, codec.NotData) as error:
        raise _Violation(str(error)) from error


# --------------------------------------------------------------------------- the protocol


def _header(mode: str, source: str, entry_point: str) -> str:
    return json.dumps({"mode": mode, "source": source, "entry_point": entry_point}) + "\n"


def _call(index: int, args: tuple, kwargs: dict) -> str:
    return f"[{index},{codec.encode(list(args))},{codec.encode(kwargs)}]\n"


def _reply(child: Child, deadline: float, index: int) -> list:
    """The child's next message without its index, checked for shape."""
    try:
        message = codec.parse(child.read_line(deadline))
    except codec.CodecError as error:
        raise _Violation(str(error)) from error
    well_formed = isinstance(message, list) and len(message) >= 2 and message[0] == index and type(message[0]) is int
    if not well_formed or message[1] not in _LENGTHS or len(message) != _LENGTHS[message[1]]:
        raise _Violation("an answer that was not asked for")
    if message[1] not in ("value", "call") and not all(isinstance(part, str) for part in message[2:]):
        raise _Violation("an answer of the wrong shape")
    return message[1:]


_LENGTHS = {
    "loaded": 2, "parse_error": 4, "value": 3, "exception": 4, "not_data": 4,
    "call": 4, "passed": 2, "failed": 4, "unusable": 4,
}  # fmt: skip


def _load_failure(reply: list) -> tuple[Outcome, str] | None:
    kind, *rest = reply
    if kind == "loaded":
        return None
    if kind == "parse_error":
        return Outcome.PARSE_ERROR, ": ".join(rest)
    return _fault(kind, rest)


def _fault(kind: str, rest: list) -> tuple[Outcome, str]:
    if kind == "exception":
        return (Outcome.MEMORY if rest[0] == "MemoryError" else Outcome.EXCEPTION), ": ".join(rest)
    if kind == "not_data":
        return Outcome.NOT_DATA, rest[1]
    return Outcome.PROTOCOL_VIOLATION, f"{kind} is no answer to a call"


def _explain(stop: Exception, ending: Ending, limits: Limits) -> tuple[Outcome, str]:
    """What a silent child died of, by the clock, the counter and the kernel's word."""
    if isinstance(stop, _Violation):
        return Outcome.PROTOCOL_VIOLATION, str(stop)
    if stop.reason == "timeout":
        return Outcome.TIMEOUT, f"no answer within {limits.timeout_s:g} s"
    if stop.reason == "flood":
        return Outcome.OUTPUT_LIMIT, f"more than {limits.output_kb} kB of output"
    if ending.status == -signal.SIGXCPU or ending.cpu_s >= limits.cpu_s:
        return Outcome.TIMEOUT, f"more than {limits.cpu_s} s of CPU"
    return Outcome.CRASHED, f"its process ended without an answer ({_named_status(ending.status)})"


def _named_status(status: int) -> str:
    return f"exit code {status}" if status >= 0 else signal.Signals(-status).name


def _shown(value: Any) -> str:
    text = codec.encode(value)
    return text if len(text) <= 120 else text[:117] + "..."


def _one_line(text: str) -> str:
    return " ".join(text.split())[:500]
