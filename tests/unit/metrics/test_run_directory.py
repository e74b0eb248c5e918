import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from evenkeel.errors import UsageError
from evenkeel.metrics.run_directory import lock, new_run_directory


def test_without_out_runs_are_numbered(tmp_path):
    root = tmp_path / "runs"
    assert [new_run_directory(None, root).name for _ in range(3)] == ["0001", "0002", "0003"]
    (root / "0041").mkdir()
    (root / "notes").mkdir()
    assert new_run_directory(None, root).name == "0042"


def test_runs_started_together_get_numbers_of_their_own(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        names = list(pool.map(lambda _: new_run_directory(None, tmp_path / "runs").name, range(24)))
    assert sorted(names) == [f"{number:04d}" for number in range(1, 25)]


def test_a_given_directory_is_made_or_taken_when_empty(tmp_path):
    made = new_run_directory(tmp_path / "deep" / "run")
    assert made.is_dir() and new_run_directory(made) == made


def test_a_given_directory_with_something_in_it_is_refused(tmp_path):
    (tmp_path / "config.yaml").touch()
    with pytest.raises(UsageError, match="not empty.*--resume"):
        new_run_directory(tmp_path)


def test_a_file_is_no_directory(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is a file"):
        new_run_directory(tmp_path / "file")
    with pytest.raises(UsageError, match="cannot be made"):
        new_run_directory(tmp_path / "file" / "run")


HOLDER = """
import sys, time
from pathlib import Path
from evenkeel.metrics.run_directory import lock
with lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_two_writers_are_kept_apart_until_the_first_dies(tmp_path):
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, tmp_path], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(UsageError, match=f"written by process {holder.pid}"), lock(tmp_path):
        pass
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    with lock(tmp_path):
        assert (tmp_path / "run.lock").read_text() == f"{os.getpid()}\n"


def test_a_released_run_can_be_held_again(tmp_path):
    for _ in range(2):
        with lock(tmp_path):
            pass
