"""What `evenkeel eval` says about its tasks before it measures."""

import sys

from evenkeel.cli.evaluate import trained_on
from evenkeel.config.load import load_config
from evenkeel.records import Task, TestCase
from evenkeel.tasks.jsonl import write_tasks


def task(name, number):
    prompt = f"def f(x):\n    # Add {number} to x.\n"
    return Task(name, prompt, "f", cases=(TestCase((0,), number),), reference=f"    return x + {number}\n")


def trained(tmp_path, *numbers, **data):
    """The configuration of a run that trained on these."""
    write_tasks(tmp_path / "train.jsonl", [task(f"train/{number}", number) for number in numbers])
    values = {"train": tmp_path / "train.jsonl"} | data
    return load_config(None, [f"data.{key}={value}" for key, value in values.items()])


def test_tasks_that_the_run_has_trained_on_are_no_measure_of_it(tmp_path):
    [warning] = trained_on(trained(tmp_path, 1, 2, 3), [task("mine", 3), task("other", 4)])
    assert warning.startswith("1 of 3 train tasks have the prompt of a benchmark task (train/3)")


def test_other_tasks_are_one(tmp_path):
    assert trained_on(trained(tmp_path, 1, 2, 3), [task("mine", 4)]) == []


def test_only_the_tasks_that_the_run_chose_of_its_file_count(tmp_path):
    warnings = [trained_on(trained(tmp_path, 1, 2, max_train_samples=1), [task("mine", number)]) for number in (1, 2)]
    assert sorted(map(len, warnings)) == [0, 1]


def test_train_tasks_that_cannot_be_loaded_are_said_and_not_imported(tmp_path):
    for source, reason in {"gone.jsonl": "gone.jsonl", "antigravity:Tasks": "is not imported"}.items():
        [warning] = trained_on(trained(tmp_path, train=source), [task("mine", 3)])
        assert warning.startswith("Whether the run has trained on these tasks was not checked") and reason in warning
    assert "antigravity" not in sys.modules


def test_the_embedded_splits_share_no_task():
    from evenkeel.tasks.load import load_tasks

    for split in ("validation", "test"):
        assert trained_on(load_config(None), load_tasks(f"embedded:{split}").tasks) == []
