"""The writing half of run.db: one transaction per step, so that a kill at any instant leaves whole steps."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from evenkeel.metrics.database import has_write_ahead_log, open_for_writing, transaction
from evenkeel.metrics.rows import (
    SAMPLE_COLUMNS,
    Event,
    dump,
    evaluation_sample_rows,
    grade_from_json,
    grade_to_json,
    train_sample_rows,
)
from evenkeel.metrics.view import RunView
from evenkeel.records import CreditedGroup, EpochRecord, Grade, ScoredGroup, StepRecord, Task, TaskScore

_KEYS_PER_QUERY = 500
"""SQLite allows at least 999 parameters."""


class RunStore(RunView):
    """A run being written, and its grade book (the protocol that `reward/score.py` asks for)."""

    def __init__(self, path: Path):
        """Open or create the database file at `path` (DIR/run.db)."""
        super().__init__(path, open_for_writing(path))
        if not has_write_ahead_log(self._connection) and not self.steps():
            message = "No write-ahead log on this file system: readers may hold the trainer up for a moment."
            self.record_event(Event("journal", message))

    def set_facts(self, facts: Mapping[str, Any]) -> None:
        """Set or replace facts about the run; values are JSON."""
        with transaction(self._connection, self.path):
            rows = [(key, dump(value)) for key, value in facts.items()]
            self._connection.executemany("INSERT OR REPLACE INTO run VALUES (?, ?)", rows)

    def record_step(self, record: StepRecord, groups: Sequence[CreditedGroup] = (), events: Sequence[Event] = ()) -> None:
        """Metrics, samples and events of one step, all or nothing."""
        with transaction(self._connection, self.path):
            row = (record.step, record.epoch, time.time(), dump(record.metrics))
            self._connection.execute("INSERT INTO steps VALUES (?, ?, ?, ?)", row)
            tasks = [credited.group.task for credited in groups]
            self._insert_samples(tasks, train_sample_rows(record.epoch, record.step, groups))
            self._insert_events(events)

    def record_epoch(
        self,
        record: EpochRecord,
        scores: Mapping[str, Sequence[TaskScore]],
        groups: Mapping[str, Sequence[ScoredGroup]] | None = None,
        events: Sequence[Event] = (),
    ) -> None:
        """Metrics of one epoch with its evaluations, by kind (`validation`, `greedy`): scores for paired comparisons, and the
        answers themselves where they should be readable later."""
        with transaction(self._connection, self.path):
            row = (record.epoch, record.step, time.time(), dump(record.metrics))
            self._connection.execute("INSERT INTO epochs VALUES (?, ?, ?, ?)", row)
            for kind, of_kind in scores.items():
                rows = [(record.epoch, kind, score.task_id, dump(score.rewards), dump(score.test_shares)) for score in of_kind]
                self._connection.executemany("INSERT INTO task_scores VALUES (?, ?, ?, ?, ?)", rows)
            for kind, of_kind in (groups or {}).items():
                rows = evaluation_sample_rows(kind, record.epoch, record.step, of_kind)
                self._insert_samples([group.task for group in of_kind], rows)
            self._insert_events(events)

    def record_event(self, event: Event) -> None:
        with transaction(self._connection, self.path):
            self._insert_events([event])

    def truncate_after(self, step: int, epoch: int) -> None:
        """Go back to a checkpoint: drop what was recorded after `step` optimizer steps and `epoch` finished epochs.

        Grades stay: the replay asks nobody again. Events without a step stay too.
        """
        with transaction(self._connection, self.path):
            execute = self._connection.execute
            execute("DELETE FROM steps WHERE step > ?", (step,))
            execute("DELETE FROM samples WHERE kind = 'train' AND step > ?", (step,))
            execute("DELETE FROM events WHERE step > ?", (step,))
            execute("DELETE FROM epochs WHERE epoch > ?", (epoch,))
            execute("DELETE FROM task_scores WHERE epoch > ?", (epoch,))
            execute("DELETE FROM samples WHERE kind <> 'train' AND epoch > ?", (epoch,))

    # ----------------------------------------------------------------------- the grade book

    def look_up(self, keys: Iterable[str]) -> dict[str, Grade]:
        """The stored grades among `keys`."""
        wanted, found = list(dict.fromkeys(keys)), {}
        for start in range(0, len(wanted), _KEYS_PER_QUERY):
            chunk = wanted[start : start + _KEYS_PER_QUERY]
            marks = ", ".join("?" * len(chunk))
            found |= dict(self._rows(f"SELECT key, grade FROM grades WHERE key IN ({marks})", tuple(chunk)))
        return {key: grade_from_json(grade) for key, grade in found.items()}

    def enter(self, grades: Mapping[str, Grade]) -> None:
        """Store settled grades. The first one entered stands, so that a replay sees what the first pass saw."""
        assert all(grade.settled for grade in grades.values()), "only a settled grade may be stored"
        with transaction(self._connection, self.path):
            rows = [(key, grade_to_json(grade)) for key, grade in grades.items()]
            self._connection.executemany("INSERT OR IGNORE INTO grades VALUES (?, ?)", rows)

    # ----------------------------------------------------------------------- helpers

    def _insert_samples(self, tasks: Sequence[Task], rows: Iterable[tuple]) -> None:
        described = [(task.task_id, task.prompt, task.entry_point, task.difficulty) for task in tasks]
        self._connection.executemany("INSERT OR IGNORE INTO tasks VALUES (?, ?, ?, ?)", described)
        marks = ", ".join("?" * len(SAMPLE_COLUMNS))
        self._connection.executemany(f"INSERT INTO samples ({', '.join(SAMPLE_COLUMNS)}) VALUES ({marks})", rows)

    def _insert_events(self, events: Sequence[Event]) -> None:
        now = time.time()
        rows = [(event.time or now, event.step, event.kind, event.message, dump(event.data)) for event in events]
        self._connection.executemany("INSERT INTO events (time, step, kind, message, data) VALUES (?, ?, ?, ?, ?)", rows)
