"""The reading half of run.db, usable while a trainer writes."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evenkeel.metrics.database import open_for_reading, sqlite_errors
from evenkeel.metrics.rows import SAMPLE_COLUMNS, Event, SampleRow, sample_from_row
from evenkeel.records import EpochRecord, StepRecord, TaskScore

DATABASE_NAME = "run.db"


class RunView:
    """Everything that was recorded, as records. Each call sees one committed state, and always the newest."""

    def __init__(self, path: Path, connection: sqlite3.Connection):
        self.path = path
        """Of the database file."""
        self._connection = connection

    def facts(self) -> dict[str, Any]:
        """Key -> value: configuration digest, parent run, state..., as the trainer set them."""
        return {key: json.loads(value) for key, value in self._rows("SELECT key, value FROM run ORDER BY key")}

    def steps(self, epoch: int | None = None) -> list[StepRecord]:
        query = "SELECT step, epoch, metrics FROM steps WHERE :epoch IS NULL OR epoch = :epoch ORDER BY step"
        rows = self._rows(query, {"epoch": epoch})
        return [StepRecord(step, in_epoch, json.loads(metrics)) for step, in_epoch, metrics in rows]

    def epochs(self) -> list[EpochRecord]:
        rows = self._rows("SELECT epoch, step, metrics FROM epochs ORDER BY epoch")
        return [EpochRecord(epoch, step, json.loads(metrics)) for epoch, step, metrics in rows]

    def task_scores(self, epoch: int, kind: str = "validation") -> list[TaskScore]:
        query = "SELECT task_id, rewards, test_shares FROM task_scores WHERE epoch = ? AND kind = ? ORDER BY task_id"
        return [TaskScore(task_id, tuple(json.loads(rewards)), tuple(json.loads(shares)))
                for task_id, rewards, shares in self._rows(query, (epoch, kind))]  # fmt: skip

    def score_epochs(self, kind: str = "validation") -> list[int]:
        """Epochs that have task scores of this kind, rising."""
        query = "SELECT DISTINCT epoch FROM task_scores WHERE kind = ? ORDER BY epoch"
        return [epoch for (epoch,) in self._rows(query, (kind,))]

    def score_kinds(self) -> list[str]:
        return [kind for (kind,) in self._rows("SELECT DISTINCT kind FROM task_scores ORDER BY kind")]

    def samples(self, *, kind: str = "train", epoch: int | None = None, task_id: str | None = None) -> list[SampleRow]:
        """Stored answers in the order in which they were sampled."""
        query = (
            f"SELECT {', '.join(SAMPLE_COLUMNS)} FROM samples WHERE kind = :kind AND (:epoch IS NULL OR epoch = :epoch) "
            "AND (:task_id IS NULL OR task_id = :task_id) ORDER BY epoch, step, group_index, sample_index"
        )
        return [sample_from_row(row) for row in self._rows(query, {"kind": kind, "epoch": epoch, "task_id": task_id})]

    def sample_epochs(self, kind: str = "train", task_id: str | None = None) -> list[int]:
        """Epochs that have stored answers of this kind (and task), rising."""
        query = (
            "SELECT DISTINCT epoch FROM samples WHERE kind = :kind AND (:task_id IS NULL OR task_id = :task_id) ORDER BY epoch"
        )
        return [epoch for (epoch,) in self._rows(query, {"kind": kind, "task_id": task_id})]

    def prompts(self) -> dict[str, str]:
        """Task -> prompt, of every task with a stored answer."""
        return dict(self._rows("SELECT task_id, prompt FROM tasks ORDER BY task_id"))

    def events(self, *, after_id: int = 0) -> list[Event]:
        rows = self._rows("SELECT kind, message, step, data, time, id FROM events WHERE id > ? ORDER BY id", (after_id,))
        return [Event(kind, message, step, json.loads(data), time, number) for kind, message, step, data, time, number in rows]

    def close(self) -> None:
        self._connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _rows(self, query: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple]:
        with sqlite_errors(self.path):
            return self._connection.execute(query, values).fetchall()


def open_run(path: Path | str) -> RunView:
    """Open a run for reading; `path` is its directory or its run.db."""
    path = Path(path)
    file = path / DATABASE_NAME if path.is_dir() or path.name != DATABASE_NAME else path
    return RunView(file, open_for_reading(file))
