"""`evenkeel score` as a user runs it: another process, files in, rows out."""

import gzip
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

HUMAN_EVAL = Path(__file__).parents[3] / "shared/data/humaneval/HumanEval.jsonl.gz"
# These answers are ours, so they may run where a machine gives no isolation; a busy machine may take its time.
TRUSTED = ("--set", "sandbox.allow_weak=true", "--set", "sandbox.timeout_s=10.0", "--set", "sandbox.cpu_s=10")

TOTAL = {
    "task_id": "total", "prompt": "def total(xs):\n", "entry_point": "total", "reference": "    return sum(xs)\n",
    "tests": [{"args": [[1, 2]], "expected": 3}, {"args": [[]], "expected": 0}],
}  # fmt: skip
CUBE = {"task_id": "cube", "prompt": "from math import pow\ndef cube(x):\n", "entry_point": "cube",
        "tests": [{"args": [2], "expected": 8}]}  # fmt: skip


def evenkeel_score(*arguments) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "evenkeel.cli", "score", *map(str, arguments), *TRUSTED]
    return subprocess.run(command, capture_output=True, text=True, timeout=250)


def rows_of(done: subprocess.CompletedProcess) -> list[dict]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def written(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def tasks(tmp_path):
    return written(tmp_path / "tasks.jsonl", [TOTAL, CUBE])


@pytest.fixture
def answers(tmp_path):
    return written(
        tmp_path / "answers.jsonl",
        [
            {"task_id": "total", "completion": "    return sum(xs) or 0\n"},
            {"task_id": "cube", "completion": "    return x ** 3\n"},
            {"task_id": "total", "completion": "    return sum(xs) if xs else 1\n"},
            {"task_id": "total", "completion": "    return (\n"},
            {"task_id": "total", "completion": ""},
        ],
    )


def test_one_row_per_completion_in_the_order_of_the_file(tasks, answers):
    rows = rows_of(evenkeel_score(tasks, answers, "--json"))
    assert [list(row) for row in rows] == [["task_id", "index", "reward", "outcome", "parts"]] * 5
    assert [(row["task_id"], row["index"], row["reward"], row["outcome"]) for row in rows] == [
        ("total", 0, 1.0, "passed"),
        ("cube", 0, 1.0, "passed"),
        ("total", 1, 0.5, "wrong_answer"),
        ("total", 2, 0.0, "parse_error"),
        ("total", 3, 0.0, "parse_error"),
    ]
    assert [[part["name"] for part in row["parts"]] for row in rows] == [["tests"]] * 5


def test_a_whole_program_runs_as_it_is(tasks, tmp_path):
    # With the prompt's import in front the first would not compile, and the second would have `pow`.
    programs = [
        "from __future__ import annotations\n\ndef cube(x: int) -> int:\n    return x * x * x\n",
        "def cube(x):\n    return pow(x, 3.5, 2)\n",
        "def other(x):\n    return 8\n",
    ]
    answers = written(tmp_path / "answers.jsonl", [{"task_id": "cube", "solution": program} for program in programs])
    assert [row["reward"] for row in rows_of(evenkeel_score(tasks, answers, "--json"))] == [1.0, 0.0, 0.0]


def test_a_configuration_brings_the_teacher(tasks, answers, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("reward: {tests: 0.5, teacher: 0.5}\nteacher: {weights: {quality: 0.0, documentation: 0.0}}\n")
    [first, *_] = rows_of(evenkeel_score(tasks, answers, "--config", config, "--json"))
    # weights 0.5 * 0.3 / 0.5 and 0.5 * 0.2 / 0.5; the answer has the reference's structure
    assert [(part["name"], part["value"]) for part in first["parts"]] == [
        ("tests", 1.0), ("teacher/correctness", 1.0), ("teacher/efficiency", 1.0),
    ]  # fmt: skip
    assert [part["weight"] for part in first["parts"]] == pytest.approx([0.5, 0.3, 0.2])
    assert first["reward"] == 1.0


def test_a_configuration_inside_a_run_imports_nothing(tasks, answers, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.db").touch()
    (run / "config.yaml").write_text("reward: {custom: {'antigravity:Reward': 1.0}}\n")
    done = evenkeel_score(tasks, answers, "--config", run / "config.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    assert "`reward.custom` names `antigravity:Reward`" in done.stderr and "is not imported" in done.stderr


def test_the_summary_names_tasks_outcomes_and_means(tasks, answers):
    done = evenkeel_score(tasks, answers)
    lines = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines() if line.strip()}
    # rewards 1, 0.5, 0, 0: mean 0.375; with the cube (1 + 1.5) / 5 = 0.5
    assert lines["total"][:4] == ["4", "0.375", "1.000", "1/4"]
    assert lines["cube"] == ["1", "1.000", "1.000", "1/1", "1", "passed"]
    assert lines["all"][:4] == ["5", "0.500", "1.000", "2/5"]


def test_tasks_without_a_completion_are_said_on_stderr(tasks, tmp_path):
    answers = written(tmp_path / "answers.jsonl", [{"task_id": "cube", "completion": "    return 8\n"}])
    done = evenkeel_score(tasks, answers, "--json")
    assert len(rows_of(done)) == 1
    assert "1 of 2 tasks have no completion and are left out: total" in done.stderr


def test_bad_rows_are_a_usage_error_and_nothing_is_scored(tasks, tmp_path):
    answers = written(tmp_path / "answers.jsonl", [{"task_id": "cube", "completion": "    return 8\n"}, {"task_id": "cub"}])
    done = evenkeel_score(tasks, answers, "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "line 2: the tasks have no `cub`" in done.stderr and "Traceback" not in done.stderr


def test_task_ids_cannot_paint_the_terminal(tmp_path):
    evil = "[bold]\x1b[31mx"
    tasks = written(tmp_path / "tasks.jsonl", [TOTAL | {"task_id": evil}])
    answers = written(tmp_path / "answers.jsonl", [{"task_id": evil, "completion": "    return sum(xs)\n"}])
    done = evenkeel_score(tasks, answers)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout and "[bold][31mx" in done.stdout


def test_the_teacher_gives_every_embedded_reference_full_marks(tmp_path):
    from evenkeel.tasks.load import load_tasks

    rows = [{"task_id": task.task_id, "completion": task.reference} for task in load_tasks("embedded:validation").tasks[:60]]
    answers = written(tmp_path / "answers.jsonl", rows)
    config = tmp_path / "config.yaml"
    config.write_text("reward: {tests: 0.7, teacher: 0.3}\n")
    rows = rows_of(evenkeel_score("embedded:validation", answers, "--config", config, "--json"))
    assert {part["value"] for row in rows for part in row["parts"]} == {1.0}
    assert {row["reward"] for row in rows} == {1.0}


@pytest.mark.skipif(not HUMAN_EVAL.exists(), reason="HumanEval is not part of this repository: ../shared/data is absent")
@pytest.mark.parametrize("form", ["reference", "whole program", "pass"])
def test_the_164_references_of_human_eval_pass_and_164_bodies_of_pass_fail(form, tmp_path):
    published = [json.loads(line) for line in gzip.open(HUMAN_EVAL, "rt")]
    answer_of = {
        "reference": lambda row: {"completion": row["canonical_solution"]},
        "whole program": lambda row: {"solution": row["prompt"] + row["canonical_solution"]},
        "pass": lambda row: {"completion": "    pass\n"},
    }[form]
    answers = tmp_path / "answers.jsonl.gz"
    lines = [json.dumps({"task_id": row["task_id"], **answer_of(row)}) for row in published]
    answers.write_bytes(gzip.compress("\n".join(lines).encode()))
    rows = rows_of(evenkeel_score(HUMAN_EVAL, answers, "--json"))
    reward = 0.0 if form == "pass" else 1.0
    assert Counter(row["reward"] for row in rows) == {reward: 164}
    assert (Counter(row["outcome"] for row in rows)["passed"] == 164) == (form != "pass")
