"""`samples`, `compare` and `export` as a user calls them, on a small recorded run."""

import json

import pytest

from evenkeel.cli import run as evenkeel
from evenkeel.metrics.store import RunStore
from evenkeel.records import EpochRecord, StepRecord, TaskScore
from tests.unit.metrics.builders import credited, part, sample, scored

HOSTILE = "return '\x1b[2J\u202e[bold]'  # [red]"


def record(path, late_share):
    path.mkdir()
    with RunStore(path / "run.db") as store:
        for epoch in (1, 2):
            share = late_share if epoch == 2 else 0.0
            latest = sample(share, text=f"sorted in epoch {epoch}", parts=[part("tests", share)])
            sort = scored("sort", latest, sample(0.0, text="pass"))
            evil = scored("evil", sample(0.5, text=HOSTILE), sample(None, text="lost"))
            store.record_step(StepRecord(epoch, epoch, {"reward/mean": share / 2}), [credited(sort), credited(evil)])
            scores = [TaskScore(f"v{i}", (share,), (share - i * 0.01,)) for i in range(5)]
            store.record_epoch(EpochRecord(epoch, epoch, {"reward/mean": share / 2}), {"validation": scores})
    return str(path)


@pytest.fixture
def good(tmp_path):
    return record(tmp_path / "good", 1.0)


@pytest.fixture
def poor(tmp_path):
    return record(tmp_path / "poor", 0.5)


def test_without_a_choice_samples_shows_best_worst_and_changed(good, capsys):
    assert evenkeel(["samples", good]) == 0
    shown = capsys.readouterr().out
    for title in ("Best train answers of epoch 2", "Worst train answers", "Changed between epochs 1 and 2"):
        assert title in shown
    assert "sort: mean reward 0.000 -> 0.500 (+0.500)" in shown
    assert "  |     sorted in epoch 2" in shown


def test_model_text_cannot_steer_the_terminal(good, capsys):
    evenkeel(["samples", good, "--task", "evil", "--best", "1"])
    shown = capsys.readouterr().out
    assert "\x1b[2J" not in shown and "\u202e" not in shown
    assert "  |     return '[2J[bold]'  # [red]" in shown  # markup stays as text


def test_samples_as_json(good, capsys):
    evenkeel(["samples", good, "--epoch", "1", "--best", "1", "--json"])
    raw = capsys.readouterr().out
    assert raw.isascii() and "\x1b" not in raw
    found = json.loads(raw)
    assert (found["epoch"], found["best"][0]["task_id"], found["best"][0]["text"]) == (1, "evil", HOSTILE)
    assert found["worst"] == found["changed"] == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--epoch", "7"], "There are epochs 1, 2"),
        (["--task", "sorted"], "nearest name is `sort`"),
        (["--kind", "greedy"], "Try --kind train"),
    ],
)
def test_samples_that_are_not_there_name_what_is(good, capsys, arguments, words):
    assert evenkeel(["samples", good, *arguments]) == 2
    assert words in capsys.readouterr().err


def test_a_directory_that_is_no_run_exits_2(tmp_path, capsys):
    here = str(tmp_path)
    for command in (["samples", here], ["compare", here, here], ["export", here, "--metrics", "m.csv"]):
        assert evenkeel(command) == 2
        assert "no run directory" in capsys.readouterr().err


def test_compare_says_which_is_better(good, poor, capsys):
    assert evenkeel(["compare", poor, good]) == 0
    shown = capsys.readouterr().out
    assert "validation/tests/mean: +0.5000 [+0.5000, +0.5000] on 5 tasks: better, beyond noise" in shown
    assert evenkeel(["compare", good, poor, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["runs"] == [good, poor]
    assert found["paired"]["validation/reward/mean"]["difference"] == -0.5
    assert found["metrics"]["reward/mean"] == [0.5, 0.25]


def test_export_writes_the_metrics(good, tmp_path, capsys):
    assert evenkeel(["export", good, "--metrics", str(tmp_path / "m.jsonl")]) == 0
    rows = [json.loads(line) for line in (tmp_path / "m.jsonl").read_text().splitlines()]
    assert [(row["kind"], row["reward/mean"]) for row in rows] == [("step", 0.0), ("epoch", 0.0), ("step", 0.5), ("epoch", 0.5)]


@pytest.mark.parametrize(
    ("arguments", "words"), [([], "Nothing to export"), (["--metrics", "m.xlsx"], "ends in .jsonl or .csv")]
)
def test_export_says_what_it_needs(good, capsys, arguments, words):
    assert evenkeel(["export", good, *arguments]) == 2
    assert words in capsys.readouterr().err
