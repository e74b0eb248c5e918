import json

from evenkeel.records import Task
from evenkeel.tasks.base import program_of
from evenkeel.tasks.benchmarks import overlap
from evenkeel.tasks.jsonl import read_tasks

HUMAN_EVAL = {
    "task_id": "HumanEval/0",
    "prompt": 'import math\n\n\ndef area(r: float) -> float:\n    """ Area. """\n',
    "entry_point": "area",
    "canonical_solution": "    return math.pi * r * r\n",
    "test": "\n\ndef check(candidate):\n    assert candidate(0) == 0\n\n",
}
MBPP = {  # a row as published: carriage returns, a setup, three asserts
    "text": "Write a function to double a number.",
    "code": "def helper(x):\r\n  return x\r\ndef twice(x):\r\n  return 2*helper(x)",
    "task_id": 601,
    "test_setup_code": "limit = 3",
    "test_list": ["assert twice(2) == 4", "assert twice(limit) == 6"],
    "challenge_test_list": [],
}
SANITIZED = {
    "source_file": "x",
    "task_id": 2,
    "prompt": "Write a function to double.",
    "code": "def twice(x):\n  return 2 * x",
    "test_imports": ["import math"],
    "test_list": ["assert math.floor(twice(1.5)) == 3"],
}


def _read(tmp_path, text):
    (tmp_path / "tasks").write_text(text)
    return read_tasks(tmp_path / "tasks").tasks


def test_human_eval_rows_are_recognised(tmp_path):
    (task,) = _read(tmp_path, json.dumps(HUMAN_EVAL))
    assert (task.task_id, task.entry_point) == ("HumanEval/0", "area")
    assert task.assert_source == "import math\n\n\n\n" + HUMAN_EVAL["test"]
    assert program_of(task, task.reference) == HUMAN_EVAL["prompt"] + HUMAN_EVAL["canonical_solution"]


def test_mbpp_rows_get_their_entry_point_from_the_first_assert(tmp_path):
    (task,) = _read(tmp_path, json.dumps(MBPP))
    assert (task.task_id, task.entry_point) == ("MBPP/601", "twice")
    assert task.assert_source == "limit = 3\nassert twice(2) == 4\nassert twice(limit) == 6\n"
    assert task.prompt == '"""\nWrite a function to double a number.\nassert twice(2) == 4\nassert twice(limit) == 6\n"""\n'
    assert program_of(task, task.reference) == MBPP["code"].replace("\r\n", "\n")


def test_a_call_around_the_entry_point_is_not_taken_for_it(tmp_path):
    (task,) = _read(tmp_path, json.dumps([SANITIZED], indent=1))  # the sanitized file is one JSON array
    assert task.entry_point == "twice"
    assert task.assert_source == "import math\n\nassert math.floor(twice(1.5)) == 3\n"


def test_overlap_is_found_by_prompt_or_by_solution():
    benchmark = [Task("b", "def area(r):\n    # The area.\n", "area", reference="    return 3 * r\n")]
    same_prompt = Task("p", "def  area(r):   # the area", "area")
    same_solution = Task("s", "Give the area.", "area", reference="return 3*r  # roughly")
    other = Task("o", "Give the area.", "volume", reference="return 3*r")
    assert overlap([other], benchmark) == []
    first, second = overlap([same_prompt, same_solution, other], benchmark)
    assert first.startswith("1 of 3 train tasks have the prompt of a benchmark task (p)")
    assert second.startswith("1 of 3 train tasks have the function name and reference of a benchmark task (s)")


def test_references_that_differ_in_a_sign_are_different_solutions():
    train = Task("t", "All but the first.", "f", reference="    return xs[1:]\n")
    first_only = Task("b", "The first.", "f", reference="    return xs[:1]\n")
    assert overlap([train], [first_only]) == []
