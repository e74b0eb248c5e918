"""`evenkeel plan` as a user sees it."""

import json
from pathlib import Path

import pytest

from evenkeel.cli import run

SEED_RUN = str(Path(__file__).parents[3] / "configs" / "seed_run.yaml")


def words_of(capsys) -> str:
    """What was shown, without the tables' lines and line breaks."""
    return " ".join(capsys.readouterr().out.replace("│", " ").split())


def test_the_plan_of_the_seed_run_says_what_its_author_could_not_see(capsys):
    assert run(["plan", SEED_RUN, "--tasks", "50"]) == 0  # unwise, not impossible
    shown = words_of(capsys)
    assert "2 an epoch, 8 in 4 epochs" in shown
    assert "it ends at 8 % of its warmup" in shown
    assert "1e-05 asked for, 7e-07 reached" in shown
    assert "unwise: The warmup (100 steps) is not over when the run is (8 steps)" in shown


def test_the_three_meanings_that_differ_between_trainers_are_said(capsys):
    assert run(["plan", "--tasks", "64"]) == 0
    shown = words_of(capsys)
    assert "an epoch is one pass over them" in shown
    assert "groups are formed first, then packed into 4 micro-batches of up to 64" in shown


def test_the_impossible_is_shown_with_the_plan_and_exits_with_2(capsys):
    assert run(["plan", "--tasks", "64", "--set", "rlaif.num_samples_per_prompt=1"]) == 2
    assert "impossible: `rlaif.num_samples_per_prompt` is 1" in words_of(capsys)


def test_json_has_the_same_figures_for_programs(capsys):
    assert run(["plan", SEED_RUN, "--tasks", "50", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert planned["length"]["total_steps"] == 8
    assert planned["epochs"][-1]["next_learning_rate"] == pytest.approx(8e-7)
    assert [finding["severity"] for finding in planned["findings"]] == ["unwise"] * 3


def test_max_train_samples_bounds_the_tasks_that_are_planned_for(capsys):
    assert run(["plan", "--tasks", "1000", "--set", "data.max_train_samples=64", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["length"]["num_train_tasks"] == 64


def test_the_tasks_are_read_where_no_number_is_given(capsys):
    assert run(["plan", "--set", "data.max_train_samples=40", "--set", "data.max_validation_samples=5", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert planned["length"]["num_train_tasks"] == 40
    assert planned["validation_tokens_per_epoch"] == 5 * 9 * 96  # 8 samples and 1 greedy, 96 tokens each
    assert planned["prompt_tokens_per_epoch"] > 0


def test_names_from_the_file_cannot_use_markup_or_steer_the_terminal(tmp_path, capsys):
    path = tmp_path / "config.yaml"
    path.write_text('model: {name: "[red]a\\e[2Jb"}\n')
    assert run(["plan", str(path), "--tasks", "64"]) == 0
    shown = words_of(capsys)
    assert "[red]a[2Jb, LoRA" in shown and "\x1b" not in shown


def test_a_configuration_inside_a_run_imports_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_tasks_of_a_stranger.py").write_text("open('executed', 'w').close()\n")
    (tmp_path / "config.yaml").write_text("data: {train: 'own_tasks_of_a_stranger:Tasks'}\n")
    (tmp_path / "run.db").touch()
    assert run(["plan", "config.yaml"]) == 2
    assert not (tmp_path / "executed").exists()
