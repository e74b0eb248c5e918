import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from evenkeel.errors import RunError, UsageError
from evenkeel.metrics.database import is_network_path, open_for_reading, open_for_writing, transaction
from evenkeel.metrics.rows import Event
from evenkeel.metrics.schema import MIGRATIONS
from evenkeel.metrics.store import RunStore
from evenkeel.metrics.view import open_run
from evenkeel.records import EpochRecord, Grade, Outcome, RewardPart, StepRecord, TaskScore, Verdict
from tests.unit.metrics.builders import credited, part, sample, scored


@pytest.fixture
def store(tmp_path):
    with RunStore(tmp_path / "run.db") as opened:
        yield opened


def group(task_id="a", reward=1.0):
    return credited(scored(task_id, sample(reward, parts=[part("tests", reward)]), sample(None, text="x"), difficulty=0.3),
                    advantages=(0.7, 0.0))  # fmt: skip


def test_a_step_comes_back_as_it_was_recorded(store):
    record = StepRecord(1, 1, {"reward/mean": 0.1 + 0.2})
    store.record_step(record, [group()], [Event("note", "Hello.", step=1, data={"n": 1})])
    assert store.steps() == [record]
    first, second = store.samples(epoch=1, task_id="a")
    assert (first.reward, first.advantage, first.trains, first.outcome) == (1.0, 0.7, True, Outcome.PASSED)
    assert (first.parts, first.logprob_mean, first.length) == ((RewardPart("tests", 1.0, "scored", 1.0),), -0.5, 4)
    assert second.reward is None and second.text == "x"
    assert [(event.kind, event.step, event.data) for event in store.events()] == [("note", 1, {"n": 1})]
    assert store.prompts() == {"a": "def f():\n"}


def test_an_epoch_comes_back_with_its_evaluations(store):
    scores = {"validation": [TaskScore("a", (0.1, 1.0), (0.0, 1.0))], "greedy": [TaskScore("a", (1.0,), (1.0,))]}
    record = EpochRecord(0, 0, {"validation/tests/mean": 0.5})
    store.record_epoch(record, scores, {"validation": [scored("a", sample(0.1), sample(1.0))]})
    assert store.epochs() == [record]
    assert store.task_scores(0) == scores["validation"] and store.task_scores(0, "greedy") == scores["greedy"]
    assert store.score_epochs() == [0] and store.score_kinds() == ["greedy", "validation"]
    answer = store.samples(kind="validation")[1]
    assert (answer.reward, answer.advantage, answer.trains) == (1.0, None, None)


def test_a_failed_step_leaves_nothing(store):
    store.record_step(StepRecord(1, 1), [group()])
    with pytest.raises(sqlite3.IntegrityError):
        store.record_step(StepRecord(1, 1), [group("b")], [Event("note", "Twice.")])
    assert {row.task_id for row in store.samples()} == {"a"} and store.events() == []


def test_a_task_may_be_drawn_twice_in_a_step(store):
    store.record_step(StepRecord(1, 1), [group(), group()])
    assert [(row.group_index, row.sample_index) for row in store.samples()] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_going_back_to_a_checkpoint_drops_what_came_after_and_keeps_grades(store):
    store.record_event(Event("started", "No step."))
    for step in (1, 2, 3):
        store.record_step(StepRecord(step, (step + 1) // 2), [group()], [Event("note", "x", step=step)])
    for epoch, step in ((0, 0), (1, 2)):
        evaluation = {"validation": [TaskScore("a", (1.0,), (1.0,))]}
        store.record_epoch(EpochRecord(epoch, step), evaluation, {"validation": [scored("a", sample(1.0))]})
    grade = Grade(Verdict(Outcome.PASSED, 2, 2), (RewardPart("tests", 1.0, "scored", 1.0),))
    store.enter({"key": grade})
    store.truncate_after(step=1, epoch=0)
    assert [record.step for record in store.steps()] == [1]
    assert [record.epoch for record in store.epochs()] == [0] and store.score_epochs() == [0]
    assert {row.step for row in store.samples()} == {1}
    assert store.sample_epochs("validation") == [0]
    assert [event.step for event in store.events()] == [None, 1]
    assert store.look_up(["key"]) == {"key": grade}
    store.record_step(StepRecord(2, 1), [group()])


def test_grades_survive_to_the_last_bit_and_the_first_one_stands(store):
    grade = Grade(
        Verdict(Outcome.WRONG_ANSWER, 1, 3, detail="expected 1 < 2", cpu_s=0.1 + 0.2),
        (RewardPart("tests", 0.7, "scored", 1 / 3), RewardPart("teacher/quality", 0.3, "scored", 0.1, "one line")),
    )
    store.enter({"k": grade})
    store.enter({"k": Grade(Verdict(Outcome.PASSED, 3, 3), ())})
    assert store.look_up(["missing", "k", "k"]) == {"k": grade}


def test_more_keys_than_one_query_takes(store):
    grades = {f"k{i}": Grade(Verdict(Outcome.PASSED, i, i), ()) for i in range(1201)}
    store.enter(grades)
    assert store.look_up(grades) == grades


def test_half_a_surrogate_pair_is_stored_as_a_question_mark(store):
    store.record_step(StepRecord(1, 1), [credited(scored("a", sample(0.0, text="\ud83d ok")))])
    assert store.samples()[0].text == "? ok"


def test_facts_are_replaced_one_by_one(store):
    store.set_facts({"state": "running", "parent": {"run": "0001", "epoch": 4}})
    store.set_facts({"state": "finished"})
    assert store.facts() == {"state": "finished", "parent": {"run": "0001", "epoch": 4}}


def test_a_reader_follows_a_writer(store, tmp_path):
    store.record_step(StepRecord(1, 1), [group()], [Event("one", "1")])
    with open_run(tmp_path) as reader:
        last = reader.events()[-1].id
        with transaction(store._connection, store.path):
            store._connection.execute("INSERT INTO steps VALUES (2, 1, 0.0, '{}')")
            assert [record.step for record in reader.steps()] == [1]  # an open transaction neither shows nor blocks
        store.record_step(StepRecord(3, 1), [], [Event("two", "2")])
        assert [record.step for record in reader.steps(epoch=1)] == [1, 2, 3]
        assert [event.kind for event in reader.events(after_id=last)] == ["two"]
        with pytest.raises(UsageError, match="readonly"):
            reader._rows("DELETE FROM steps")


WRITER = """
import sys
import tempfile
from pathlib import Path
from evenkeel.metrics.store import RunStore
from evenkeel.records import StepRecord
from tests.unit.metrics.test_store import group
store = RunStore(Path(sys.argv[1]))
for step in range(1, 100000):
    store.record_step(StepRecord(step, 1, {"reward/mean": step / 7}), [group()] * 20)
    print(step, flush=True)
"""


@pytest.mark.parametrize("steps_before", [1, 7, 30])
def test_kill_9_in_the_middle_of_steps_loses_nothing_committed(tmp_path, steps_before):
    root = Path(__file__).parents[3]
    writer = subprocess.Popen([sys.executable, "-c", WRITER, tmp_path / "run.db"], stdout=subprocess.PIPE, cwd=root, text=True)
    told = 0
    for line in writer.stdout:
        told = int(line)
        if told >= steps_before:
            break
    os.kill(writer.pid, signal.SIGKILL)
    told = max([told, *(int(line) for line in writer.stdout.read().split())])
    writer.wait()
    with RunStore(tmp_path / "run.db") as store:
        steps = store.steps()
        # What was told was committed; one more may have been committed and not told.
        assert len(steps) in (told, told + 1)
        assert [record.metrics["reward/mean"] for record in steps] == [step / 7 for step in range(1, len(steps) + 1)]
        assert len(store.samples()) == 40 * len(steps)
        assert store._rows("PRAGMA integrity_check") == [("ok",)]


def test_an_older_database_is_brought_up_to_date_by_reader_and_writer(tmp_path):
    path = tmp_path / "run.db"
    with RunStore(path) as store:
        store.record_step(StepRecord(1, 1, {"reward/mean": 0.5}))
    newer = (*MIGRATIONS, "ALTER TABLE steps ADD COLUMN note TEXT NOT NULL DEFAULT 'none';\nCREATE TABLE more (x);")
    connection = open_for_reading(path, newer)
    assert connection.execute("SELECT step, note FROM steps").fetchall() == [(1, "none")]
    assert connection.execute("PRAGMA user_version").fetchone() == (2,)
    connection.close()
    open_for_writing(path, newer).close()  # a second time changes nothing


def test_a_migration_that_fails_half_way_changes_nothing(tmp_path):
    path = tmp_path / "run.db"
    RunStore(path).close()
    with pytest.raises(sqlite3.OperationalError):
        open_for_writing(path, (*MIGRATIONS, "CREATE TABLE more (x);\nCREATE TABLE steps (x);"))
    connection = open_for_reading(path)
    assert connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'more'").fetchone() == (0,)
    assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    connection.close()


def test_a_newer_database_is_refused_with_the_way_out(tmp_path):
    path = tmp_path / "run.db"
    open_for_writing(path, (*MIGRATIONS, "CREATE TABLE more (x);")).close()
    for opening in (lambda: open_run(tmp_path), lambda: RunStore(path)):
        with pytest.raises(UsageError, match="schema version 2.*pip install --upgrade"):
            opening()


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(UsageError, match="no run directory"):
        open_run(tmp_path)
    with pytest.raises(UsageError, match="no run directory"):
        open_run(tmp_path / "absent")
    (tmp_path / "run.db").write_text("not a database, but long enough to have a header of its own\n" * 10)
    with pytest.raises(UsageError, match="not a readable database"):
        open_run(tmp_path)
    (tmp_path / "run.db").unlink()
    connection = sqlite3.connect(tmp_path / "run.db")
    connection.execute("CREATE TABLE other (x)")
    connection.close()
    for opening in (lambda: open_run(tmp_path), lambda: RunStore(tmp_path / "run.db")):
        with pytest.raises(UsageError, match="not one of evenkeel's"):
            opening()


def test_a_full_disk_stops_the_run_with_advice_and_keeps_what_was_there(store):
    store.record_step(StepRecord(1, 1))
    pages = store._rows("PRAGMA page_count")[0][0]
    store._rows(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(RunError, match="disk is full.*--resume"):
        store.record_step(StepRecord(2, 1), [group(f"task {i}") for i in range(500)])
    assert [record.step for record in store.steps()] == [1]
    store._rows(f"PRAGMA max_page_count = {pages + 10000}")
    store.record_step(StepRecord(2, 1), [group()])


READER_AS_NOBODY = """
import os, sys
from evenkeel.metrics.view import open_run
if os.geteuid() == 0:
    os.setuid(65534)  # root could write anywhere
print(len(open_run(sys.argv[1]).steps()))
"""


def test_a_finished_run_is_readable_where_nothing_can_be_written():
    with tempfile.TemporaryDirectory() as directory:  # not tmp_path, whose parents other users cannot enter
        with RunStore(Path(directory, "run.db")) as store:
            store.record_step(StepRecord(1, 1))
        Path(directory).chmod(0o555)
        done = subprocess.run([sys.executable, "-c", READER_AS_NOBODY, directory], capture_output=True, text=True)
        Path(directory).chmod(0o755)
    assert done.stdout == "1\n", done.stderr


def test_an_unwritable_place_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="cannot be opened"):
        RunStore(tmp_path / "absent" / "run.db")


def test_network_mounts_are_told_by_the_longest_mount_point():
    mounts = "overlay / overlay rw 0 0\nhost:/home /home nfs4 rw 0 0\n/dev/sda /home/me/local ext4 rw 0 0\n"
    assert is_network_path(Path("/home/me/runs"), mounts)
    assert not is_network_path(Path("/home/me/local/runs"), mounts)
    assert not is_network_path(Path("/homes"), mounts)


def test_without_a_write_ahead_log_it_works_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("evenkeel.metrics.database.is_network_path", lambda path: True)
    with RunStore(tmp_path / "run.db") as store:
        store.record_step(StepRecord(1, 1), [group()])
        with open_run(tmp_path) as reader:
            assert [event.kind for event in reader.events()] == ["journal"]
            assert len(reader.steps()) == 1
    assert not (tmp_path / "run.db-wal").exists()
