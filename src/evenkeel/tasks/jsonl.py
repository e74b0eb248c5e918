"""Task files: JSONL, plain or gzipped, row by row into Task, with the line and the reason of every row that is none.

    {"task_id": "sum/1", "prompt": "def total(xs):\\n", "language": "python", "entry_point": "total", "difficulty": 0.1,
     "tests": [{"args": [[1, 2]], "expected": 3, "visible": false, "tolerance": 0}], "reference": "    return sum(xs)\\n"}

`tests` is a list of calls (values plain, or tagged as in `evenkeel/codec.py`) or a string of asserts. HumanEval and MBPP rows
are recognised and read by `benchmarks.py`.
"""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenkeel.codec import CodecError, from_tree, to_tree
from evenkeel.errors import UsageError
from evenkeel.records import Task, TestCase
from evenkeel.tasks.benchmarks import BadTask, human_eval_task, is_human_eval, is_mbpp, mbpp_task, text_of, with_preamble

_LANGUAGES = ("python",)
_SHOWN_ROWS = 10


@dataclass(frozen=True)
class BadRow:
    """A row that is no task.

    >>> BadRow(7, "no tests").line
    7
    """

    line: int
    """Line of the file, from 1; for a JSON array or a dataset the position of the row, from 1."""
    reason: str


@dataclass(frozen=True)
class TaskFile:
    """What a file held."""

    tasks: tuple[Task, ...]
    bad_rows: tuple[BadRow, ...] = ()
    """Left out because `skip_bad_rows` allowed it: to be counted and said."""


def read_tasks(path: str | Path, *, skip_bad_rows: bool = False) -> TaskFile:
    """The tasks of a file. Raises UsageError with lines and reasons when a row is bad, unless told to go on without it."""
    return collect_rows(_rows(Path(path)), str(path), skip_bad_rows=skip_bad_rows)


def write_tasks(path: str | Path, tasks: Iterable[Task]) -> None:
    """JSONL that `read_tasks` reads back as the same tasks."""
    opener = gzip.open if str(path).endswith(".gz") else open
    with opener(path, "wt", encoding="utf-8") as file:
        for task in tasks:
            file.write(json.dumps(row_of(task)) + "\n")


def collect_rows(rows: Iterable[tuple[int, Any]], source: str, *, skip_bad_rows: bool) -> TaskFile:
    """Rows with their line numbers to tasks; a row that is already a BadRow stays one."""
    tasks: dict[str, Task] = {}
    bad_rows = []
    for line, row in rows:
        try:
            task = row if isinstance(row, Task) else task_of(row)
            if task.task_id in tasks:
                raise BadTask(f"task_id {task.task_id!r} occurs a second time")
            tasks[task.task_id] = task
        except BadTask as bad:
            bad_rows.append(BadRow(line, str(bad)))
    if bad_rows and not skip_bad_rows:
        shown = "".join(f"\n  line {bad.line}: {bad.reason}" for bad in bad_rows[:_SHOWN_ROWS])
        more = f"\n  and {len(bad_rows) - _SHOWN_ROWS} more" if len(bad_rows) > _SHOWN_ROWS else ""
        raise UsageError(
            f"{len(bad_rows)} of the {len(bad_rows) + len(tasks)} rows of {source} are no tasks:{shown}{more}\n"
            "Repair them, or go on without them: `data.skip_bad_rows: true` (`train --skip-bad-rows`)."
        )
    if not tasks:
        raise UsageError(f"{source} holds no task ({len(bad_rows)} bad rows). Give a file with at least one valid row.")
    return TaskFile(tuple(tasks.values()), tuple(bad_rows))


def task_of(row: Any) -> Task:
    """One row to a task; raises BadTask with the reason."""
    if isinstance(row, _Unreadable):
        raise BadTask(row.reason)
    if not isinstance(row, Mapping):
        raise BadTask(f"a {type(row).__name__} where an object with task_id, prompt, entry_point and tests belongs")
    if is_human_eval(row):
        return human_eval_task(row)
    if is_mbpp(row):
        return mbpp_task(row)
    return _own_task(row)


def row_of(task: Task) -> dict[str, Any]:
    """The row that `task_of` turns into this task."""
    row = {"task_id": task.task_id, "prompt": task.prompt, "language": task.language, "entry_point": task.entry_point}
    if task.assert_source is not None:
        row["tests"] = task.assert_source
    else:
        row["tests"] = [_row_of_case(case) for case in task.cases]
    return row | {"difficulty": task.difficulty, "reference": task.reference}


def _row_of_case(case: TestCase) -> dict[str, Any]:
    values = {"args": to_tree(list(case.args)), "expected": to_tree(case.expected)}
    return values | {"visible": case.visible, "tolerance": case.tolerance}


# --------------------------------------------------------------------------- our own rows


def _own_task(row: Mapping[str, Any]) -> Task:
    task_id, prompt, entry_point = (text_of(row, name) for name in ("task_id", "prompt", "entry_point"))
    if not entry_point.isidentifier():
        raise BadTask(f"entry_point {entry_point!r} is no function name")
    language = row.get("language", "python")
    if language not in _LANGUAGES:
        raise BadTask(f"language {language!r} is unknown; known: {', '.join(_LANGUAGES)}")
    tests = row.get("tests")
    if not tests:
        raise BadTask("no tests")
    cases: tuple[TestCase, ...] = ()
    assert_source = None
    if isinstance(tests, str):
        assert_source = with_preamble(prompt, entry_point, tests)
    elif isinstance(tests, list):
        cases = tuple(_case(test, number) for number, test in enumerate(tests, 1))
        if all(case.visible for case in cases):
            raise BadTask("no tests but visible ones: a reward needs at least one that the prompt does not show")
    else:
        raise BadTask("tests must be a list of calls or a string of asserts")
    return Task(task_id, prompt, entry_point, language, cases, assert_source, _difficulty(row), _reference(row))


def _case(test: Any, number: int) -> TestCase:
    if not isinstance(test, Mapping) or "args" not in test or "expected" not in test:
        raise BadTask(f'test {number} needs "args" and "expected"')
    visible, tolerance = test.get("visible", False), test.get("tolerance", 0)
    if not isinstance(visible, bool):
        raise BadTask(f"test {number}: visible must be true or false")
    if not _is_number(tolerance) or not 0 <= tolerance < math.inf:
        raise BadTask(f"test {number}: tolerance must be a number >= 0")
    try:
        args, expected = from_tree(test["args"]), from_tree(test["expected"])
    except CodecError as error:
        raise BadTask(f"test {number}: {error}") from None
    if not isinstance(args, (list, tuple)):
        raise BadTask(f"test {number}: args must be a list, one element for each argument")
    return TestCase(tuple(args), expected, visible, float(tolerance))


def _difficulty(row: Mapping[str, Any]) -> float | None:
    value = row.get("difficulty")
    if value is None:
        return None
    if not _is_number(value) or not 0 <= value <= 1:
        raise BadTask(f"difficulty {value!r} must be a number from 0 (easy) to 1 (hard)")
    return float(value)


def _reference(row: Mapping[str, Any]) -> str | None:
    value = row.get("reference")
    if value is not None and not isinstance(value, str):
        raise BadTask("reference must be a text")
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# --------------------------------------------------------------------------- files


@dataclass(frozen=True)
class _Unreadable:
    reason: str


def _rows(path: Path) -> Iterable[tuple[int, Any]]:
    text = _read(path)
    if text.lstrip().startswith("["):
        rows = _parsed(text)
        if isinstance(rows, _Unreadable):
            raise UsageError(f"{path} looks like a JSON array but is none: {rows.reason}.")
        return list(enumerate(rows, 1))
    return [(number, _parsed(line)) for number, line in enumerate(text.split("\n"), 1) if line.strip()]


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        return _Unreadable("nested too deeply")
    except ValueError as error:  # also an integer beyond the digit limit
        return _Unreadable(f"not JSON ({error})")


def _read(path: Path) -> str:
    if not path.exists():
        raise UsageError(f"The task file {path} does not exist. Check the path, or use `embedded` for the tasks that ship.")
    if path.is_dir():
        raise UsageError(f"{path} is a directory. Give a JSONL file of tasks.")
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data).decode("utf-8-sig")
    except PermissionError as error:
        raise UsageError(f"The task file {path} cannot be read: {error.strerror}. Check its permissions.") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UsageError(f"The task file {path} is not a whole gzip file ({error}). Fetch it again.") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"The task file {path} is not UTF-8 text ({error}). Convert it.") from None
