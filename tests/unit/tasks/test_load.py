import importlib.util
import json
import sys

import pytest

from evenkeel.errors import MissingExtra, UsageError
from evenkeel.tasks.load import load_tasks

SOURCE = """
from evenkeel.records import Task, TestCase
class Two:
    def tasks(self):
        return (Task(name, "def f():\\n", "f", cases=(TestCase((), 1),)) for name in "ab")
two = Two()
class Wrong:
    def tasks(self):
        return [{"task_id": "a"}]
number = 3
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "evenkeel_test_source.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield "evenkeel_test_source"
    sys.modules.pop("evenkeel_test_source", None)


def _numbered(tmp_path, count):
    rows = [
        {"task_id": f"t{n}", "prompt": "def f():\n", "entry_point": "f", "tests": [{"args": [], "expected": n}]}
        for n in range(count)
    ]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(tmp_path / "tasks.jsonl")


def _ids(found):
    return [task.task_id for task in found.tasks]


def test_a_limit_takes_the_first_of_a_seeded_shuffle(tmp_path):
    path = _numbered(tmp_path, 30)
    five = _ids(load_tasks(path, limit=5, seed=1))
    assert five == _ids(load_tasks(path, limit=9, seed=1))[:5]
    assert five != _ids(load_tasks(path, limit=5, seed=2))
    assert len(set(five)) == 5


def test_without_a_limit_the_file_keeps_its_order(tmp_path):
    assert _ids(load_tasks(_numbered(tmp_path, 4), seed=3)) == ["t0", "t1", "t2", "t3"]


def test_a_source_of_ones_own_is_a_class_or_an_object_in_the_current_folder(module):
    for name in ("Two", "two"):
        assert _ids(load_tasks(f"{module}:{name}", allow_custom_code=True)) == ["a", "b"]


def test_a_strangers_configuration_imports_nothing(module):
    with pytest.raises(UsageError, match="`data.train` names .* is not imported"):
        load_tasks(f"{module}:two")
    assert module not in sys.modules


def test_a_source_that_is_none_says_what_is_missing(module):
    for source, message in {
        f"{module}:absent": "has no `absent`",
        f"{module}:number": "needs a method tasks",
        f"{module}:Wrong": "gave a dict where",
        "no_such_module:x": "there is no module `no_such_module`",
    }.items():
        with pytest.raises(UsageError, match=f"`--tasks` is `{source}`.*{message}"):
            load_tasks(source, allow_custom_code=True, setting="--tasks")


def test_an_unknown_embedded_split_names_the_known_ones():
    with pytest.raises(UsageError, match="train, validation, test"):
        load_tasks("embedded:dev")


@pytest.mark.skipif(importlib.util.find_spec("datasets") is not None, reason="datasets is installed")
def test_a_dataset_without_the_extra_names_the_install_line():
    with pytest.raises(MissingExtra, match=r"pip install 'evenkeel\[data\]'"):
        load_tasks("hf:someone/something:test")
