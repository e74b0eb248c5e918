import gzip
import json

import pytest

from evenkeel.errors import UsageError
from evenkeel.records import Task, TestCase
from evenkeel.tasks.jsonl import read_tasks, write_tasks

GOOD = {"task_id": "sum/1", "prompt": "def total(xs):\n", "entry_point": "total", "tests": [{"args": [[1, 2]], "expected": 3}]}


def _file(tmp_path, *rows):
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def test_a_row_becomes_a_task(tmp_path):
    row = GOOD | {
        "language": "python", "difficulty": 0.25, "reference": "    return sum(xs)\n",
        "tests": [{"args": [[1, 2]], "expected": 3, "visible": True}, {"args": [[0.1]], "expected": 0.1, "tolerance": 1e-6}],
    }  # fmt: skip
    (task,) = read_tasks(_file(tmp_path, row)).tasks
    assert task.cases == (TestCase(([1, 2],), 3, True, 0.0), TestCase(([0.1],), 0.1, False, 1e-6))
    assert (task.difficulty, task.language, task.reference, task.assert_source) == (
        0.25,
        "python",
        "    return sum(xs)\n",
        None,
    )


def test_what_is_written_is_read_back(tmp_path):
    tasks = (
        Task(
            "a", "def f(x):\n", "f", cases=(TestCase(((1, {2}), {3: b"x"}), (float("inf"), 2**80), False, 0.5),), difficulty=0.5
        ),
        Task("b", "Text", "f", assert_source="assert f(1) == 1\n", reference="def f(x):\n    return x\n"),
    )
    for name in ("tasks.jsonl", "tasks.jsonl.gz"):
        write_tasks(tmp_path / name, tasks)
        assert read_tasks(tmp_path / name).tasks == tasks
    assert gzip.decompress((tmp_path / "tasks.jsonl.gz").read_bytes()) == (tmp_path / "tasks.jsonl").read_bytes()


def test_asserts_are_given_the_prompts_helpers(tmp_path):
    row = GOOD | {"prompt": "def twice(x):\n    return 2 * x\n\ndef total(xs):\n", "tests": "assert total([twice(2)]) == 4\n"}
    (task,) = read_tasks(_file(tmp_path, row)).tasks
    assert task.assert_source == "def twice(x):\n    return 2 * x\n\n\nassert total([twice(2)]) == 4\n"


BAD_ROWS = [
    ("{", "not JSON"),
    ("[" * 10_000, "nested too deeply"),
    ("3", "a int where an object"),
    (GOOD | {"task_id": None}, "task_id is missing"),
    (GOOD | {"task_id": 7}, "task_id must be a text"),
    (GOOD | {"prompt": " "}, "prompt must be a text that is not empty"),
    (GOOD | {"entry_point": "a b"}, "no function name"),
    (GOOD | {"language": "cobol"}, "language 'cobol' is unknown; known: python"),
    (GOOD | {"tests": []}, "no tests"),
    ({key: value for key, value in GOOD.items() if key != "tests"}, "no tests"),
    (GOOD | {"tests": "x = 1"}, "neither an assert nor"),
    (GOOD | {"tests": {"args": []}}, "list of calls or a string"),
    (GOOD | {"tests": [{"args": [1]}]}, 'test 1 needs "args" and "expected"'),
    (GOOD | {"tests": [{"args": 1, "expected": 1}]}, "args must be a list"),
    (GOOD | {"tests": [{"args": [{"$": "pickle", "v": 1}], "expected": 1}]}, "unknown tag 'pickle'"),
    (GOOD | {"tests": [{"args": [], "expected": 1, "visible": True}]}, "no tests but visible ones"),
    (GOOD | {"tests": [{"args": [], "expected": 1, "visible": 1}]}, "visible must be true or false"),
    (GOOD | {"tests": [{"args": [], "expected": 1, "tolerance": -1}]}, "tolerance must be a number >= 0"),
    (GOOD | {"difficulty": 2}, "from 0 (easy) to 1 (hard)"),
    (GOOD | {"difficulty": True}, "from 0 (easy) to 1 (hard)"),
    (GOOD | {"reference": 3}, "reference must be a text"),
    (GOOD, "task_id 'sum/1' occurs a second time"),
]


@pytest.mark.parametrize(("row", "reason"), BAD_ROWS, ids=[reason for _, reason in BAD_ROWS])
def test_a_bad_row_is_named_with_its_line_and_reason(tmp_path, row, reason):
    path = _file(tmp_path, "", GOOD, row)
    with pytest.raises(UsageError, match="1 of the 2 rows") as raised:
        read_tasks(path)
    assert "line 3: " in str(raised.value) and reason in str(raised.value) and "--skip-bad-rows" in str(raised.value)
    found = read_tasks(path, skip_bad_rows=True)
    assert len(found.tasks) == 1 and [bad.line for bad in found.bad_rows] == [3]


def test_many_bad_rows_are_counted_and_the_first_shown(tmp_path):
    with pytest.raises(UsageError, match="and 15 more"):
        read_tasks(_file(tmp_path, GOOD, *["{"] * 25))


def test_files_that_hold_no_task_are_usage_errors(tmp_path):
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(json.dumps(GOOD).encode())[:-12])
    (tmp_path / "array.json").write_text("[{]")
    cases = {
        _file(tmp_path): "holds no task",
        tmp_path / "absent.jsonl": "does not exist",
        tmp_path: "is a directory",
        tmp_path / "binary.jsonl": "not UTF-8",
        tmp_path / "cut.jsonl.gz": "not a whole gzip file",
        tmp_path / "array.json": "looks like a JSON array",
    }
    for path, message in cases.items():
        with pytest.raises(UsageError, match=message):
            read_tasks(path)
    with pytest.raises(UsageError, match=r"holds no task \(1 bad rows\)"):
        read_tasks(_file(tmp_path, "{"), skip_bad_rows=True)
