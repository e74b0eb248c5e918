"""164 real tasks that nobody here wrote: references pass, empty bodies fail, small faults are caught.

The published tests do not catch every fault. The mutants that they let through are listed in `human_eval_survivors.jsonl`:
the equivalent ones with the reason, every other with a call on which it is wrong, and that call is run here.
"""

import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from evenkeel.codec import from_tree
from evenkeel.records import Outcome, Task, TestCase
from evenkeel.sandbox.base import Job
from evenkeel.sandbox.pool import open_sandbox
from evenkeel.tasks.base import program_of
from evenkeel.tasks.load import load_tasks
from tests.walk.mutants import mutants_of

HUMAN_EVAL = Path(__file__).parents[3] / "shared/data/humaneval/HumanEval.jsonl.gz"
SURVIVORS = [json.loads(line) for line in Path(__file__).with_name("human_eval_survivors.jsonl").read_text().splitlines()]

pytestmark = pytest.mark.skipif(
    not HUMAN_EVAL.exists(), reason="HumanEval is not part of this repository: ../shared/data is absent"
)


@pytest.fixture(scope="module")
def tasks() -> dict[str, Task]:
    return {task.task_id: task for task in load_tasks(str(HUMAN_EVAL)).tasks}


@pytest.fixture(scope="module")
def sandbox():
    # 3 s: the slowest reference takes 0.2 s of an idle core
    with open_sandbox(
        SimpleNamespace(timeout_s=3.0, cpu_s=3, memory_mb=512, output_kb=1024, workers=None, allow_weak=True)
    ) as pool:
        yield pool


def _outcomes(sandbox, jobs):
    verdicts = sandbox.run(jobs)
    failures = {
        job.task.task_id: verdict for job, verdict in zip(jobs, verdicts, strict=True) if verdict.outcome is not Outcome.PASSED
    }
    return Counter(verdict.outcome for verdict in verdicts), failures


def test_every_reference_passes(tasks, sandbox):
    counts, failures = _outcomes(sandbox, [Job(task, program_of(task, task.reference)) for task in tasks.values()])
    assert counts == {Outcome.PASSED: 164}, failures


def test_every_reference_passes_as_a_fenced_whole_program(tasks, sandbox):
    answers = {task.task_id: f"Here it is:\n```python\n{task.prompt}{task.reference}\n```\n" for task in tasks.values()}
    counts, failures = _outcomes(sandbox, [Job(task, program_of(task, answers[task.task_id])) for task in tasks.values()])
    assert counts == {Outcome.PASSED: 164}, failures


def test_no_empty_body_passes(tasks, sandbox):
    counts, _ = _outcomes(sandbox, [Job(task, program_of(task, "    pass\n")) for task in tasks.values()])
    assert counts[Outcome.PASSED] == 0 and counts[Outcome.INFRASTRUCTURE] == 0


@pytest.fixture(scope="module")
def mutants(tasks) -> dict[str, Job]:
    return {
        f"{task.task_id} {operator}": Job(task, program)
        for task in tasks.values()
        for operator, program in mutants_of(task.prompt + task.reference, task.entry_point)
    }


def test_mutants_fail_except_the_listed_survivors(mutants, sandbox):
    verdicts = dict(zip(mutants, sandbox.run(list(mutants.values())), strict=True))
    assert len(mutants) > 650
    assert not [name for name, verdict in verdicts.items() if not verdict.scored]
    assert {name for name, verdict in verdicts.items() if verdict.outcome is Outcome.PASSED} == {
        row["mutant"] for row in SURVIVORS
    }


def test_a_survivor_is_equivalent_by_reason_or_wrong_on_a_call_that_the_published_tests_lack(mutants, sandbox):
    jobs = []
    for row in SURVIVORS:
        if "equivalent" in row:
            continue
        job = mutants[row["mutant"]]
        case = TestCase(tuple(from_tree(row["args"])), from_tree(row["expected"]))
        task = Task(row["mutant"], job.task.prompt, job.task.entry_point, cases=(case,))
        jobs += [Job(task, job.task.prompt + job.task.reference), Job(task, job.program)]
    passed = [verdict.outcome is Outcome.PASSED for verdict in sandbox.run(jobs)]
    assert passed == [True, False] * (len(jobs) // 2)
