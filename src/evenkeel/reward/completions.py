"""Completions in the usual sample format, made ready for scoring without a student.

    JSONL rows {"task_id", "completion" | "solution"} + tasks --read_completions--> Entry... --batches_of--> EntryGroup...

`completion` continues the task's prompt; `solution` is a whole program.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from evenkeel.errors import UsageError
from evenkeel.records import Completion, SampleGroup, Task
from evenkeel.tasks.base import program_of

SHOWN_PROBLEMS = 10


@dataclass(frozen=True)
class Entry:
    """One row.

    >>> Entry(Task("inc", "def inc(x):\\n", "inc"), index=0, text="    return x + 1\\n", whole_program=False).task.task_id
    'inc'
    """

    task: Task
    index: int
    """Counts the rows of this task from 0, in file order."""
    text: str
    whole_program: bool
    """True for `solution`."""


@dataclass(frozen=True)
class EntryGroup:
    """The rows of one task that take the same form, and the group that they are scored as."""

    entries: tuple[Entry, ...]
    group: SampleGroup
    """Completion i is that of entry i."""


def read_completions(path: Path, tasks: Sequence[Task]) -> list[Entry]:
    """The rows of the file, in file order; `.gz` is read too.

    Raises UsageError with the line numbers of the first ten problems; nothing is scored then.
    """
    by_id = {task.task_id: task for task in tasks}
    entries: list[Entry] = []
    problems: list[str] = []
    counts = dict.fromkeys(by_id, 0)
    for line_number, line in enumerate(_text_of(path).split("\n"), start=1):
        if not line.strip():
            continue
        found = _entry_or_problem(line, by_id, counts)
        if isinstance(found, str):
            problems.append(f"  line {line_number}: {found}")
        else:
            entries.append(found)
            counts[found.task.task_id] += 1
    if problems:
        raise UsageError(_report(path, problems))
    if not entries:
        raise UsageError(f'`{path}` holds no completions. Write one JSON object a line: {{"task_id": ..., "completion": ...}}.')
    return entries


def batches_of(entries: Sequence[Entry], batch_size: int) -> Iterator[list[EntryGroup]]:
    """All entries as groups, in batches of at least `batch_size` entries (the last one: what is left)."""
    rows: dict[tuple[str, bool], list[Entry]] = {}
    for entry in entries:
        rows.setdefault((entry.task.task_id, entry.whole_program), []).append(entry)
    batch: list[EntryGroup] = []
    for group_rows in rows.values():
        batch.append(_group(group_rows))
        if sum(len(group.entries) for group in batch) >= batch_size:
            yield batch
            batch = []
    if batch:
        yield batch


def _group(entries: Sequence[Entry]) -> EntryGroup:
    # No tokens: nobody sampled these, and scoring reads the text alone.
    completions = tuple(Completion((), (), entry.text, truncated=False) for entry in entries)
    task = _without_prompt(entries[0].task) if entries[0].whole_program else entries[0].task
    return EntryGroup(tuple(entries), SampleGroup(task, (), completions))


def _without_prompt(task: Task) -> Task:
    """The same task for whole programs: nothing of the prompt is put in front of them.

    >>> task = Task("inc", "import math\\ndef inc(x):\\n", "inc", reference="    return x + 1\\n")
    >>> _without_prompt(task).reference
    'import math\\ndef inc(x):\\n    return x + 1\\n'
    """
    return replace(task, prompt="", reference=program_of(task, task.reference) if task.reference else None)


def _entry_or_problem(line: str, by_id: Mapping[str, Task], counts: Mapping[str, int]) -> Entry | str:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        return f"not JSON ({error})"
    if not isinstance(row, dict):
        return f"a {type(row).__name__} where an object with `task_id` and `completion` belongs"
    task_id = row.get("task_id")
    if not isinstance(task_id, str):
        return "no `task_id`, or one that is not text"
    if task_id not in by_id:
        return f"the tasks have no `{task_id[:80]}`"
    fields = [name for name in ("completion", "solution") if name in row]
    if len(fields) != 1:
        return "both `completion` and `solution`; give one" if fields else "neither `completion` nor `solution`"
    text = row[fields[0]]
    if not isinstance(text, str):
        return f"`{fields[0]}` is not text"
    return Entry(by_id[task_id], counts[task_id], text, whole_program=fields[0] == "solution")


def _report(path: Path, problems: Sequence[str]) -> str:
    more = len(problems) - SHOWN_PROBLEMS
    shown = "\n".join(problems[:SHOWN_PROBLEMS]) + (f"\n  and {more} more" if more > 0 else "")
    count = "1 row that cannot" if len(problems) == 1 else f"{len(problems)} rows that cannot"
    return f"`{path}` has {count} be scored:\n{shown}\nMend or remove them; nothing was scored."


def _text_of(path: Path) -> str:
    try:
        content = path.read_bytes()
        return (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8-sig")
    except FileNotFoundError:
        raise UsageError(f"There is no completions file `{path}`.") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UsageError(f"`{path}` is no gzip file ({error}). Write it again, or drop the ending `.gz`.") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"`{path}` is not UTF-8 text: {error}.") from None
    except OSError as error:
        raise UsageError(f"`{path}` could not be read: {error.strerror}.") from None
