"""Tasks of your own, in both ways: a TaskSource that makes them, and the JSONL file that anything can write.

    python examples/own_task.py

In a configuration: `data.train: own_task:Conversions`, where the module is in the current folder or on PYTHONPATH, or
`data.train: path/to/tasks.jsonl`.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from evenkeel.cli import run
from evenkeel.records import Task, TestCase
from evenkeel.tasks.jsonl import write_tasks

UNITS = {"minutes": 60, "hours": 3600, "days": 86400}


class Conversions:
    """One task for each unit: from seconds to whole units. One method makes it a TaskSource."""

    def tasks(self) -> Iterator[Task]:
        for unit, seconds in UNITS.items():
            name = f"whole_{unit}"
            counts = (2 * seconds, 0, seconds - 1, 7 * seconds + 5)
            example, *hidden = (TestCase((count,), count // seconds) for count in counts)
            yield Task(
                task_id=f"conversions/{unit}",
                prompt=f'def {name}(seconds):\n    """How many whole {unit} are in so many seconds."""\n',
                entry_point=name,
                cases=(TestCase(example.args, example.expected, visible=True), *hidden),  # visible cases never enter the reward
                difficulty=0.1,
                reference=f"    return seconds // {seconds}\n",
            )


if __name__ == "__main__":
    # allow_weak: these answers are ours, so no isolation is needed to run them
    options = ["--set", "sandbox.allow_weak=true"]
    with TemporaryDirectory() as folder:
        as_file, answers = Path(folder, "tasks.jsonl"), Path(folder, "answers.jsonl")
        write_tasks(as_file, Conversions().tasks())
        rows = [{"task_id": task.task_id, "completion": task.reference} for task in Conversions().tasks()]
        answers.write_text("".join(json.dumps(row) + "\n" for row in rows))
        codes = [run(["score", source, str(answers), *options]) for source in ("own_task:Conversions", str(as_file))]
    sys.exit(max(codes))
