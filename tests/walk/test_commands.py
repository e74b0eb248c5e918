"""The commands around a run, on a real one: eval, export, samples, compare, plan, sandbox."""

import csv
import json
import math
import shutil

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from evenkeel.cli import run
from evenkeel.metrics.store import RunStore
from evenkeel.metrics.view import open_run
from evenkeel.policy.model import embedded_student
from evenkeel.tasks.load import load_tasks
from evenkeel.train.checkpoint import list_checkpoints

FEW = ("--samples", "4", "--limit", "8", "--set", "rlaif.max_new_tokens=48", "--set", "training.num_threads=1")


@pytest.fixture
def answer(capsys):
    """The JSON that a command prints; it must succeed."""

    def ask(*command) -> dict:
        capsys.readouterr()
        assert run([str(word) for word in command]) == 0
        return json.loads(capsys.readouterr().out)

    return ask


@pytest.fixture(scope="session")
def last_is_best(finished_run, tmp_path_factory):
    """A copy of the run whose best checkpoint is the last: in so small a run the best may be the untrained start."""
    copy = shutil.copytree(finished_run, tmp_path_factory.mktemp("copies") / "last is best")
    with RunStore(copy / "run.db") as store:
        store.set_facts({"best_step": store.steps()[-1].step})
    return copy


# --------------------------------------------------------------------------- eval


def test_pass_at_k_is_that_of_the_counts(answer):
    found = answer("eval", "embedded", *FEW, "--k", 1, "--k", 2, "--k", 4, "--json")
    counts = [(task["samples"], task["solved"]) for task in found["tasks"]]
    assert len(counts) == 8 and {samples for samples, _ in counts} == {4} and 0 < sum(solved for _, solved in counts) < 32
    for result in found["pass_at_k"]:
        k = result["k"]
        # 1 - C(n - c, k) / C(n, k): the share of the k-subsets of 4 samples that hold a right one
        values = [1 - math.comb(4 - solved, k) / math.comb(4, k) for _, solved in counts]
        assert result["mean"] == pytest.approx(sum(values) / 8) and result["num_tasks"] == 8
        assert result["low"] <= result["mean"] <= result["high"]
    assert found["tests_mean"] >= found["pass_at_k"][0]["mean"]  # half of the tests passed counts half, and is no pass


def test_the_same_seed_measures_the_same_and_greedy_needs_one_sample(answer):
    command = ("eval", "embedded", *FEW, "--json", "--temperature", 0)
    first = answer(*command)
    assert first == answer(*command)
    assert [result["k"] for result in first["pass_at_k"]] == [1] and {task["samples"] for task in first["tasks"]} == {1}


def test_a_run_is_measured_at_its_best_checkpoint(answer, finished_run, last_is_best):
    with open_run(finished_run) as view:
        best_step = view.facts()["best_step"]
    assert answer("eval", "embedded", *FEW, "--json")["checkpoint"] is None
    assert answer("eval", finished_run, *FEW, "--json")["checkpoint"] == f"step-{best_step:06d}"
    assert answer("eval", last_is_best, *FEW, "--json")["checkpoint"] == "step-000006"


def test_an_evaluation_on_its_own_train_tasks_is_warned_of(finished_run, capsys):
    assert run(["eval", str(finished_run), *FEW, "--tasks", "embedded:train", "--samples", "1", "--limit", "2"]) == 0
    captured = capsys.readouterr()
    assert "warning: " in captured.err and "pass@1" in captured.out
    assert run(["eval", str(finished_run), *FEW, "--samples", "1", "--limit", "2"]) == 0
    assert "warning" not in capsys.readouterr().err


def test_more_k_than_samples_is_refused(capsys):
    assert run(["eval", "embedded", "--samples", "2", "--k", "4"]) == 2
    assert "--k is 4, but there are 2 samples per task" in capsys.readouterr().err


# --------------------------------------------------------------------------- export


def test_the_merged_model_computes_the_same_logits_in_plain_transformers(last_is_best, tmp_path):
    target = tmp_path / "merged"
    assert run(["export", str(last_is_best), "--merged", str(target)]) == 0
    merged, tokenizer = AutoModelForCausalLM.from_pretrained(target), AutoTokenizer.from_pretrained(target)
    base = AutoModelForCausalLM.from_pretrained(embedded_student()).eval()
    prompts = [task.prompt + (task.reference or "") for task in load_tasks("embedded:test", limit=6).tasks]
    with torch.no_grad():
        plain = [base(**tokenizer(prompt, return_tensors="pt")).logits for prompt in prompts]
        newest = list_checkpoints(last_is_best / "checkpoints")[-1]
        policy = PeftModel.from_pretrained(base, newest.weights).eval()
        expected = [policy(**tokenizer(prompt, return_tensors="pt")).logits for prompt in prompts]
        found = [merged(**tokenizer(prompt, return_tensors="pt")).logits for prompt in prompts]
    for one, other, untrained in zip(found, expected, plain, strict=True):
        assert (one - other).abs().max() < 1e-5 * other.abs().max()
        assert (other - untrained).abs().max() > 1e-3
    assert merged.dtype == torch.float32 and not any("lora" in name for name, _ in merged.named_parameters())


def test_the_merged_model_brings_its_tokenizer_and_can_be_trained_on(last_is_best, tmp_path, answer):
    target = tmp_path / "merged"
    assert run(["export", str(last_is_best), "--merged", str(target)]) == 0
    assert {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"} <= {p.name for p in target.iterdir()}
    # As the student of a new run it writes what the run's adapter writes
    one, other = (answer("eval", model, *FEW, "--json") for model in (target, last_is_best))
    assert one["tasks"] == other["tasks"]


def test_a_merged_model_is_not_written_over_what_is_there(last_is_best, tmp_path, capsys):
    (tmp_path / "thesis.txt").write_text("mine")
    assert run(["export", str(last_is_best), "--merged", str(tmp_path)]) == 2
    assert f"{tmp_path} exists and is not empty" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_an_export_says_which_checkpoint_it_took_and_passes_over_a_damaged_one(last_is_best, tmp_path, capsys):
    assert run(["export", str(last_is_best), "--merged", str(tmp_path / "merged")]) == 0
    assert "merged model of step-000006, after 2 epochs" in capsys.readouterr().out
    copy = shutil.copytree(last_is_best, tmp_path / "copy")
    (list_checkpoints(copy / "checkpoints")[-1].weights / "adapter_model.safetensors").write_bytes(b"broken")
    assert run(["export", str(copy), "--merged", str(tmp_path / "another")]) == 0
    assert "merged model of step-000004" in capsys.readouterr().out


PROMISED = (
    "reward/mean reward/best_of_n reward/std validation/tests/mean validation/reward/mean loss/mean kl/mean grad_norm/mean "
    "learning_rate diversity/unique_fraction diversity/mean_similarity time/epoch_s"
).split()


def test_metrics_are_exported_by_the_promised_names(finished_run, tmp_path):
    for name in ("metrics.jsonl", "metrics.csv"):
        assert run(["export", str(finished_run), "--metrics", str(tmp_path / name)]) == 0
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    # epoch 0 first, then three steps and the epoch that they make
    assert [(row["kind"], row["epoch"], row["step"]) for row in rows] == [
        ("epoch", 0, 0), ("step", 1, 1), ("step", 1, 2), ("step", 1, 3), ("epoch", 1, 3),
        ("step", 2, 4), ("step", 2, 5), ("step", 2, 6), ("epoch", 2, 6),
    ]  # fmt: skip
    assert set(PROMISED) <= rows[-1].keys()
    with open_run(finished_run) as view:
        assert rows[-1]["reward/mean"] == view.epochs()[-1].metrics["reward/mean"]
    with (tmp_path / "metrics.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert set(PROMISED) <= table[0].keys()
    for row, line in zip(rows, table, strict=True):
        assert {name: value for name, value in line.items() if value} == {name: str(value) for name, value in row.items()}


# --------------------------------------------------------------------------- reading


def test_samples_are_the_best_and_the_worst_of_the_last_epoch(finished_run, answer, capsys):
    found = answer("samples", finished_run, "--json")
    with open_run(finished_run) as view:
        rewards = [row.reward for row in view.samples(epoch=2)]
    assert found["epoch"] == 2 and len(found["best"]) == len(found["worst"]) == 3
    assert found["best"][0]["reward"] == max(rewards) and found["worst"][0]["reward"] == min(rewards)
    assert run(["samples", str(finished_run), "--kind", "greedy", "--best", "1"]) == 0
    shown = capsys.readouterr().out
    assert "Best greedy answers of epoch 2" in shown and "  | def " in shown


def test_a_run_differs_from_itself_by_nothing(finished_run, answer, capsys):
    found = answer("compare", finished_run, finished_run, "--json")
    assert set(found["paired"]) == {"validation/tests/mean", "validation/tests/greedy", "validation/reward/mean"}
    for difference in found["paired"].values():
        assert (difference["difference"], difference["low"], difference["high"], difference["num_tasks"]) == (0, 0, 0, 12)
        assert difference["beyond_noise"] is False
    assert all(one == other for one, other in found["metrics"].values())
    assert run(["compare", str(finished_run), str(finished_run)]) == 0
    assert capsys.readouterr().out.count("no difference beyond noise") == 3


def test_the_plan_of_a_run_is_what_it_did(finished_run, answer):
    plan = answer("plan", finished_run / "config.yaml", "--json")
    with open_run(finished_run) as view:
        steps, rows = view.steps(), view.samples()
    assert plan["length"]["total_steps"] == len(steps) == 6
    assert plan["length"]["completions_per_step"] == len(rows) / 6 == 32
    assert [epoch["steps_done"] for epoch in plan["epochs"]] == [3, 6]
    assert [epoch["last_learning_rate"] for epoch in plan["epochs"]] == pytest.approx(
        [steps[2].metrics["learning_rate"], steps[5].metrics["learning_rate"]]
    )


def test_the_sandbox_says_what_it_withstands(answer):
    found = answer("sandbox", "--json")
    assert found["holds"] is True and found["isolation"]["weak"] is False and found["isolation"]["uid"] != 0
    assert len(found["probes"]) >= 5 and all(probe["withstood"] for probe in found["probes"])
