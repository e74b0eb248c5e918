import gzip
import json

import pytest

from evenkeel.errors import UsageError
from evenkeel.records import Task
from evenkeel.reward.completions import batches_of, read_completions

A = Task("a", "import math\ndef a(x):\n", "a", reference="    return x\n")
B = Task("b", "def b(x):\n", "b")


def written(path, *rows):
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def test_rows_are_counted_by_task_in_the_order_of_the_file(tmp_path):
    path = written(
        tmp_path / "c.jsonl",
        {"task_id": "a", "completion": "1"},
        {"task_id": "b", "completion": "2"},
        "",
        {"task_id": "a", "solution": "3"},
    )
    entries = read_completions(path, [A, B])
    found = [(entry.task.task_id, entry.index, entry.text, entry.whole_program) for entry in entries]
    assert found == [("a", 0, "1", False), ("b", 0, "2", False), ("a", 1, "3", True)]


def test_a_gzipped_file_is_read(tmp_path):
    path = tmp_path / "c.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"task_id": "a", "completion": "1"}\n'))
    assert [entry.text for entry in read_completions(path, [A])] == ["1"]


def test_a_line_separator_inside_a_string_is_no_new_line(tmp_path):
    path = tmp_path / "c.jsonl"
    path.write_text('{"task_id": "a", "completion": "\u2028x"}\n', encoding="utf-8")
    assert [entry.text for entry in read_completions(path, [A])] == ["\u2028x"]


def test_all_problems_are_reported_together_with_their_lines(tmp_path):
    path = written(
        tmp_path / "c.jsonl",
        "{not json",
        {"task_id": "a", "completion": "fine"},
        {"task_id": "z", "completion": "1"},
        {"task_id": "a"},
        {"task_id": "a", "completion": 5},
        {"task_id": "a", "completion": "1", "solution": "1"},
        {"completion": "1"},
        "[1]",
    )
    with pytest.raises(UsageError) as raised:
        read_completions(path, [A])
    lines = [line.strip() for line in str(raised.value).split("\n")]
    assert "7 rows that cannot be scored" in lines[0]
    assert lines[1].startswith("line 1: not JSON")
    assert lines[2:8] == [
        "line 3: the tasks have no `z`",
        "line 4: neither `completion` nor `solution`",
        "line 5: `completion` is not text",
        "line 6: both `completion` and `solution`; give one",
        "line 7: no `task_id`, or one that is not text",
        "line 8: a list where an object with `task_id` and `completion` belongs",
    ]


def test_only_the_first_ten_problems_are_spelled_out(tmp_path):
    with pytest.raises(UsageError, match="line 10: .*\n  and 2 more"):
        read_completions(written(tmp_path / "c.jsonl", *["x"] * 12), [A])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("c.jsonl", b"", "holds no completions"),
        ("c.jsonl", b"\xff\xfe\x00", "not UTF-8"),
        ("c.jsonl.gz", b"plain", "is no gzip file"),
        ("c.jsonl.gz", gzip.compress(b"some text that is long enough")[:-9], "is no gzip file"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=message):
        read_completions(tmp_path / name, [A])


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UsageError, match="There is no completions file .*absent.jsonl"):
        read_completions(tmp_path / "absent.jsonl", [A])


def test_a_solution_is_scored_without_the_prompt_in_front(tmp_path):
    path = written(tmp_path / "c.jsonl", {"task_id": "a", "completion": "1"}, {"task_id": "a", "solution": "2"})
    [[continued, whole]] = batches_of(read_completions(path, [A]), batch_size=100)
    assert (continued.group.task.prompt, whole.group.task.prompt) == (A.prompt, "")
    assert whole.group.task.reference == A.prompt + A.reference


def test_a_batch_ends_at_its_size_and_never_inside_a_task(tmp_path):
    rows = [{"task_id": task_id, "completion": str(number)} for number in range(3) for task_id in "ab"]
    batches = list(batches_of(read_completions(written(tmp_path / "c.jsonl", *rows), [A, B]), batch_size=2))
    texts = [[[entry.text for entry in group.entries] for group in batch] for batch in batches]
    assert texts == [[["0", "1", "2"]], [["0", "1", "2"]]]
