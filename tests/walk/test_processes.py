"""Data parallelism: two processes take the steps that one would take."""

import sys

import pytest
from safetensors.torch import load_file

from evenkeel.metrics.view import open_run
from evenkeel.train.checkpoint import list_checkpoints

from .small_run import SMALL, arguments, run_python


def test_two_processes_train_as_one(finished_run, tmp_path):
    directory = tmp_path / "two"
    launch = "-m accelerate.commands.launch --cpu --num_processes 2 --num_machines 1 --mixed_precision no --dynamo_backend no"
    run_python([sys.executable, *launch.split(), "-m", "evenkeel.cli", *arguments(directory)])
    with open_run(finished_run) as one, open_run(directory) as two:
        pairs = list(zip(one.steps(), two.steps(), strict=True))
        rows = [(row.step, row.task_id, row.text, row.reward) for row in one.samples()]
        assert rows == [(row.step, row.task_id, row.text, row.reward) for row in two.samples()]
        starts = one.epochs()[0].metrics, two.epochs()[0].metrics
    assert len(pairs) == 6 and SMALL["training.num_epochs"] == 2
    for single, double in pairs:
        for name in ("reward/mean", "update/trained_tokens", "learning_rate", "groups/without_signal_share"):
            assert single.metrics[name] == double.metrics[name]
        for name in ("grad_norm/mean", "kl/mean", "entropy/mean"):
            assert double.metrics[name] == pytest.approx(single.metrics[name], rel=1e-3, abs=1e-7)
    assert starts[0]["validation/tests/mean"] == starts[1]["validation/tests/mean"]
    first, second = (
        load_file(list_checkpoints(run / "checkpoints")[-1].weights / "adapter_model.safetensors")
        for run in (finished_run, directory)
    )
    assert all((first[name] - second[name]).abs().max() < 1e-4 for name in first)
