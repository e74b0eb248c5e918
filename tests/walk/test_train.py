"""The whole walk through the real command, and what a person may do to a run."""

import json
import math
import os
import random
import shutil
import signal
import time

import pytest
from safetensors.torch import load_file

from evenkeel.metrics.names import metric
from evenkeel.metrics.view import open_run
from evenkeel.train.checkpoint import list_checkpoints
from evenkeel.train.session import find_checkpoint

from .small_run import arguments, evenkeel, start

MEASURED = ("time/", "tokens/per_second", "memory/")


def exact(metrics):
    """Without what a clock or the machine decides."""
    return {name: value for name, value in metrics.items() if not name.startswith(MEASURED)}


def contents(directory):
    """All that must be the same after any interruption."""
    with open_run(directory) as view:
        steps = [(record.step, record.epoch, exact(record.metrics)) for record in view.steps()]
        epochs = [(record.epoch, record.step, exact(record.metrics)) for record in view.epochs()]
        answers = [(row.epoch, row.step, row.task_id, row.text, row.reward, row.advantage) for row in view.samples()]
        scores = [view.task_scores(epoch) for epoch, _, _ in epochs]
    return steps, epochs, answers, scores


def final_adapter(directory):
    return load_file(list_checkpoints(directory / "checkpoints")[-1].weights / "adapter_model.safetensors")


def assert_same_run(one, other):
    assert contents(one) == contents(other)
    first, second = final_adapter(one), final_adapter(other)
    assert first.keys() == second.keys()
    assert all((first[name] == second[name]).all() for name in first)


def test_a_run_leaves_what_the_design_promises(finished_run):
    assert {"config.yaml", "run.db", "checkpoints"} <= {path.name for path in finished_run.iterdir()}
    with open_run(finished_run) as view:
        assert [record.step for record in view.steps()] == [1, 2, 3, 4, 5, 6]
        assert [record.epoch for record in view.epochs()] == [0, 1, 2]
        rows = view.samples()
        last = view.epochs()[-1].metrics
    assert len(rows) == 2 * 24 * 4
    promised = (
        "reward/mean reward/best_of_n loss/mean time/epoch_s diversity/unique_fraction "
        "diversity/mean_similarity validation/tests/mean validation/reward/mean kl/mean entropy/mean "
        "grad_norm/mean grad_norm/clipped_share groups/without_signal_share completions/truncated_share "
        "completions/parse_failure_share completions/length_mean learning_rate curriculum/difficulty_mean "
        "tokens/per_second time/rollout_s time/reward_s time/reference_s time/update_s memory/peak_mb "
        "failures/survived reward/target_share"
    )
    assert set(promised.split()) <= last.keys()
    assert all(metric(name) is not None and math.isfinite(value) for name, value in last.items())


def test_recorded_rewards_are_those_of_the_recorded_answers(finished_run):
    with open_run(finished_run) as view:
        rows, epochs = view.samples(epoch=1), view.epochs()
    assert math.isclose(epochs[1].metrics["reward/mean"], sum(row.reward for row in rows) / len(rows), rel_tol=1e-9)
    # A task may be drawn twice in a step, so groups are told apart by their place: 4 samples each, in the order of the draws
    groups = [rows[at : at + 4] for at in range(0, len(rows), 4)]
    assert all(len({row.task_id for row in group}) == 1 for group in groups)
    best = [max(row.reward for row in group) for group in groups]
    assert math.isclose(epochs[1].metrics["reward/best_of_n"], sum(best) / len(best), rel_tol=1e-9)


def test_the_first_step_is_the_golden_one(finished_run):
    """Numbers of the shipped student on 2026-11-21: a change that moves them is to be explained in docs/log.md."""
    with open_run(finished_run) as view:
        first, start = view.steps()[0].metrics, view.epochs()[0].metrics
    assert first["reward/mean"] == 0.578125 and first["update/trained_tokens"] == 692
    assert first["entropy/mean"] == pytest.approx(0.0370655, rel=1e-4)
    assert first["grad_norm/mean"] == pytest.approx(0.0255621, rel=1e-4)
    assert first["kl/mean"] == 0.0
    assert start["validation/tests/mean"] == 0.5 and start["reward/mean"] == 0.34375


def test_the_learning_rate_is_that_of_the_plan(finished_run):
    plan = json.loads(evenkeel(["plan", str(finished_run / "config.yaml"), "--json"]).stdout)
    assert plan["length"]["total_steps"] == 6
    with open_run(finished_run) as view:
        rates = [record.metrics["learning_rate"] for record in view.steps()]
    # linear, no warmup: 1e-3 * (1 - step / 6)
    assert rates == pytest.approx([1e-3 * (1 - step / 6) for step in range(6)])
    assert rates[2] == pytest.approx(plan["epochs"][0]["last_learning_rate"])


def test_the_mean_difficulty_rises_with_the_curriculum(finished_run):
    with open_run(finished_run) as view:
        first, second = (record.metrics["curriculum/difficulty_mean"] for record in view.epochs()[1:])
    assert first < second


def test_the_same_configuration_gives_the_same_run(finished_run, tmp_path):
    evenkeel(arguments(tmp_path / "again"))
    assert_same_run(finished_run, tmp_path / "again")


def test_a_run_killed_ten_times_ends_as_the_unbroken_one(finished_run, tmp_path):
    directory = tmp_path / "killed"
    kills = train_under_kills(directory, arguments(directory), wanted=10, seed=7)
    assert kills >= 5, "the run was over before it could be killed often enough"
    assert_same_run(finished_run, directory)


@pytest.mark.long
def test_a_long_run_killed_forty_times_ends_as_the_unbroken_one(tmp_path):
    changes = {"training__num_epochs": 12, "training__updates_per_rollout": 2, "model__lora_dropout": 0.1, "rlaif__top_p": 0.95}
    evenkeel(arguments(tmp_path / "unbroken", **changes))
    kills = train_under_kills(tmp_path / "killed", arguments(tmp_path / "killed", **changes), wanted=40, seed=11)
    assert kills >= 20, "the run was over before it could be killed often enough"
    assert_same_run(tmp_path / "unbroken", tmp_path / "killed")


def train_under_kills(directory, command, *, wanted, seed):
    """Kill -9 at random moments after the parts are loaded, up to `wanted` times, and resume to the end. Returns the kills."""
    rng, kills = random.Random(seed), 0
    while kills < wanted:
        process = start(command)
        wait_until_training(directory, process)
        time.sleep(rng.uniform(0.0, 1.2))
        if process.poll() is not None:
            break
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kills += 1
        command = ["train", "--resume", str(directory)]
    while "finished already" not in evenkeel(["train", "--resume", str(directory)]).stdout:
        pass
    return kills


def wait_until_training(directory, process):
    """Until the parts are loaded and the walk goes on: the database of this attempt says `resumed`, or exists at all."""
    log = directory / "run.db-wal"
    before = log.stat().st_mtime_ns if log.exists() else 0
    while process.poll() is None and not (log.exists() and log.stat().st_mtime_ns > before):
        time.sleep(0.05)


def test_a_finished_run_says_so_and_exits_0(finished_run, tmp_path):
    copy = shutil.copytree(finished_run, tmp_path / "copy")
    assert "finished already" in evenkeel(["train", "--resume", str(copy)]).stdout
    assert_same_run(finished_run, copy)


def test_ctrl_c_finishes_the_step_saves_and_exits_130(finished_run, tmp_path):
    directory = tmp_path / "stopped"
    process = start(arguments(directory))
    wait_for_steps(directory, 1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, out + err
    assert "--resume" in out
    newest = list_checkpoints(directory / "checkpoints")[-1]
    with open_run(directory) as view:
        assert newest.step == view.steps()[-1].step
    evenkeel(["train", "--resume", str(directory)])
    assert_same_run(finished_run, directory)


def wait_for_steps(directory, count):
    while True:
        time.sleep(0.1)
        if (directory / "run.db").exists():
            with open_run(directory) as view:
                if len(view.steps()) >= count:
                    return


def test_a_second_writer_is_kept_out(tmp_path):
    directory = tmp_path / "locked"
    process = start(arguments(directory, training__num_epochs=100))  # longer than the second one takes to start
    wait_for_steps(directory, 1)
    refused = evenkeel(["train", "--resume", str(directory)], expect=2)
    assert f"written by process {process.pid}" in refused.stderr
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()


def test_a_branch_takes_the_changed_learning_rate_from_its_first_step(finished_run, tmp_path):
    directory = tmp_path / "branch"
    before = contents(finished_run)
    evenkeel(["train", "--resume", str(finished_run), "--from", "epoch:1", "--set", "training.learning_rate=5e-6",
              "--set", "training.lr_scheduler_type=constant", "--out", str(directory)])  # fmt: skip
    with open_run(directory) as view:
        rates = [record.metrics["learning_rate"] for record in view.steps()]
        parent = view.facts()["parent"]
    assert rates[:3] == pytest.approx([1e-3, 1e-3 * 5 / 6, 1e-3 * 4 / 6])
    assert rates[3:] == [5e-6, 5e-6, 5e-6]
    assert parent["run"] == str(finished_run) and parent["step"] == 3
    assert contents(finished_run) == before


def test_an_unchanged_branch_repeats_the_parent(finished_run, tmp_path):
    evenkeel(["train", "--resume", str(finished_run), "--from", "epoch:1", "--out", str(tmp_path / "branch")])
    assert_same_run(finished_run, tmp_path / "branch")
    # a best checkpoint of before the branch came along
    for directory in (finished_run, tmp_path / "branch"):
        assert find_checkpoint(directory, "best").path.parent.parent == directory


def test_a_branch_may_grow_the_adapter(finished_run, tmp_path):
    directory = tmp_path / "grown"
    evenkeel(["train", "--resume", str(finished_run), "--from", "epoch:1", "--set", "model.lora_r=24", "--out", str(directory)])
    assert next(iter(final_adapter(directory).values())).shape[0] == 24
    with open_run(directory) as view:
        # The first rollout after the branch comes from the same function, so its rewards are the parent's
        assert view.steps()[3].metrics["reward/mean"] == read_step(finished_run, 4)["reward/mean"]
        assert "optimizer_reset" in [event.kind for event in view.events()]


def read_step(directory, step):
    with open_run(directory) as view:
        return view.steps()[step - 1].metrics


def test_a_damaged_newest_checkpoint_falls_back_and_says_so(finished_run, tmp_path):
    copy = shutil.copytree(finished_run, tmp_path / "copy")
    newest = list_checkpoints(copy / "checkpoints")[-1]
    (newest.weights / "adapter_model.safetensors").write_bytes(b"broken")
    told = evenkeel(["train", "--resume", str(copy)])
    assert "damaged" in told.stdout and newest.path.name in told.stdout
    assert_same_run(finished_run, copy)
