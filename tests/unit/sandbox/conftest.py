"""One sandbox for all tests of this folder. Hostile programs run only where the cell is known to hold."""

from types import SimpleNamespace

import pytest

from evenkeel.records import Outcome, Task, TestCase, Verdict
from evenkeel.sandbox.base import Job
from evenkeel.sandbox.pool import Pool, open_sandbox

ADD = Task("add", "def add(a, b):\n", "add", cases=tuple(TestCase((n, 2 * n), 3 * n) for n in range(1, 5)))


def settings(**changes):
    values = {"timeout_s": 1.5, "cpu_s": 5, "memory_mb": 256, "output_kb": 64, "workers": 1, "allow_weak": True}
    return SimpleNamespace(**(values | changes))


@pytest.fixture(scope="session")
def sandbox():
    with open_sandbox(settings()) as pool:
        yield pool


@pytest.fixture(scope="session")
def cell(sandbox) -> Pool:
    """The sandbox, when uid and PID namespace are verified; hostile programs use this one."""
    if sandbox.isolation.weak or sandbox.isolation.uid == 0:
        pytest.skip(f"no cell for hostile programs on this machine: {sandbox.isolation.reason}")
    facts = Task("who", "", "who", cases=(TestCase((), [sandbox.isolation.uid, True]),))
    program = "import os\ndef who():\n    return [os.getuid(), os.getppid() in (0, 1)]\n"
    verdict = sandbox.run([Job(facts, program)])[0]
    if verdict.outcome is not Outcome.PASSED:
        pytest.fail(f"the sandbox does not hold what it says: {verdict.detail}")
    return sandbox


def run(sandbox: Pool, program: str, task: Task = ADD) -> Verdict:
    return sandbox.run([Job(task, program)])[0]


def returning(expression: str) -> str:
    return f"def add(a, b):\n    return {expression}\n"
