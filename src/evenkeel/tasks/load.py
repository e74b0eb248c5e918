"""From the name in the configuration to tasks.

embedded[:train|:validation|:test]     the tasks that ship
path/to/tasks.jsonl[.gz]               see `jsonl.py`
hf:NAME[:SPLIT]                        a Hugging Face dataset with the same rows (extra `data`)
module:name                            a TaskSource of your own (see `base.py`)
"""

from __future__ import annotations

import random
import re
from pathlib import Path

from evenkeel.config.named import named_object
from evenkeel.errors import MissingExtra, UsageError
from evenkeel.records import Task
from evenkeel.tasks.jsonl import TaskFile, collect_rows, read_tasks

_SPLITS = ("train", "validation", "test")
_MODULE_AND_NAME = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def load_tasks(
    source: str, *, skip_bad_rows: bool = False, limit: int | None = None, seed: int = 0, allow_custom_code: bool = False,
    setting: str = "data.train",
) -> TaskFile:  # fmt: skip
    """The tasks of a source; with `limit` the first so many of a seeded shuffle.

    `allow_custom_code` says that the name comes from the user and not from a stranger's run directory: only then may
    `module:name` import anything. `setting` is the key or option that named the source, for the errors.
    """
    if source == "embedded" or source.startswith("embedded:"):
        found = _embedded(source)
    elif source.startswith("hf:"):
        found = _from_hub(source, skip_bad_rows)
    elif _MODULE_AND_NAME.fullmatch(source) and not Path(source).exists():
        found = _from_module(source, setting, skip_bad_rows, allow_custom_code)
    else:
        found = read_tasks(source, skip_bad_rows=skip_bad_rows)
    if limit is None or limit >= len(found.tasks):
        return found
    tasks = list(found.tasks)
    random.Random(seed).shuffle(tasks)
    return TaskFile(tuple(tasks[:limit]), found.bad_rows)


def _embedded(source: str) -> TaskFile:
    from evenkeel.tasks.synthetic import embedded_tasks

    split = source.partition(":")[2] or "train"
    if split not in _SPLITS:
        raise UsageError(f"The embedded tasks have no split {split!r}. Choose one of: {', '.join(_SPLITS)}.")
    return TaskFile(tuple(embedded_tasks(split)))


def _from_hub(source: str, skip_bad_rows: bool) -> TaskFile:
    name, _, split = source.removeprefix("hf:").partition(":")
    if not name:
        raise UsageError(f"{source!r} names no dataset. Write hf:NAME or hf:NAME:SPLIT.")
    try:
        from datasets import load_dataset
    except ImportError:
        raise MissingExtra("datasets", "data", f"The task source {source!r}") from None
    try:
        rows = load_dataset(name, split=split or "train")
    except (OSError, ValueError) as error:
        raise UsageError(f"The dataset {name!r} with split {split or 'train'!r} cannot be loaded: {error}") from error
    return collect_rows(enumerate(rows, 1), source, skip_bad_rows=skip_bad_rows)


def _from_module(source: str, setting: str, skip_bad_rows: bool, allow_custom_code: bool) -> TaskFile:
    named = named_object(source, setting=setting, allowed=allow_custom_code)
    instance = named() if isinstance(named, type) else named
    if not callable(getattr(instance, "tasks", None)):
        raise UsageError(f"`{setting}` is `{source}`, no TaskSource: it needs a method tasks() that gives Task records.")
    rows = list(instance.tasks())
    strangers = [row for row in rows if not isinstance(row, Task)]
    if strangers:
        found = type(strangers[0]).__name__
        raise UsageError(f"`{setting}` is `{source}`, whose tasks() gave a {found} where evenkeel.records.Task belongs.")
    return collect_rows(enumerate(rows, 1), source, skip_bad_rows=skip_bad_rows)
