"""The figures of a run, against arithmetic by hand."""

from pathlib import Path

import pytest

from evenkeel.config.length import run_length, tasks_per_rollout
from evenkeel.config.load import load_config
from evenkeel.config.plan import plan
from evenkeel.config.schedule import learning_rate_at
from evenkeel.config.stages import schedule_settings
from evenkeel.errors import UsageError

SEED_RUN = Path(__file__).parents[3] / "configs" / "seed_run.yaml"


def test_the_seed_run_ends_at_eight_percent_of_its_warmup():
    seed = plan(load_config(SEED_RUN), num_train_tasks=50)
    # 2 * 50 = 100 completions a step; 50 tasks * 4 samples = 200 completions an epoch
    assert (seed.length.completions_per_step, seed.length.steps_per_epoch, seed.length.total_steps) == (100, 2, 8)
    assert [epoch.steps_done for epoch in seed.epochs] == [2, 4, 6, 8]
    # step s (from 0) applies s / 100 * 1e-5; after the 8th the schedule stands at 8 / 100
    assert [epoch.last_learning_rate for epoch in seed.epochs] == pytest.approx([1e-7, 3e-7, 5e-7, 7e-7])
    assert seed.epochs[-1].next_learning_rate == pytest.approx(8e-7)
    assert seed.peak_learning_rate <= 8e-7
    assert seed.warmup_share == 12.5
    messages = " ".join(finding.message for finding in seed.findings)
    assert "ends at 8 % of its warmup" in messages and "the whole run has 8 optimizer steps" in messages.lower()
    assert all(finding.severity == "unwise" for finding in seed.findings)


def test_twice_the_warmup_makes_the_seed_run_worse():
    seed = plan(load_config(SEED_RUN, ["training.warmup_steps=200"]), num_train_tasks=50)
    assert seed.peak_learning_rate == pytest.approx(3.5e-7)  # 7 / 200 of 1e-5
    assert any("ends at 4 % of its warmup" in finding.message for finding in seed.findings)


def test_batch_4_times_25_leaves_the_effective_batch_at_100():
    changed = load_config(SEED_RUN, ["training.batch_size=4", "training.gradient_accumulation_steps=25"])
    assert run_length(changed, 50) == run_length(load_config(SEED_RUN), 50)


def test_groups_are_not_split_so_the_step_is_rounded_up_to_whole_tasks():
    config = load_config(
        None, ["training.batch_size=10", "training.gradient_accumulation_steps=1", "rlaif.num_samples_per_prompt=8"]
    )
    assert tasks_per_rollout(config) == 2  # ceil(10 / 8)
    planned = plan(config, num_train_tasks=5)
    assert (planned.length.completions_per_step, planned.length.rollouts_per_epoch) == (16, 3)  # 2 + 2 + 1 tasks
    assert planned.micro_batches_per_step == 2  # 10 + 6
    assert any("an optimizer step has 16 completions (2 tasks)" in finding.message for finding in planned.findings)


def test_updates_per_rollout_multiply_the_steps_and_not_the_tokens():
    once, thrice = (plan(load_config(None, [f"training.updates_per_rollout={n}"]), num_train_tasks=64) for n in (1, 3))
    assert thrice.length.total_steps == 3 * once.length.total_steps
    assert thrice.sampled_tokens_per_epoch == once.sampled_tokens_per_epoch


def test_tokens_are_counted_as_upper_bounds():
    settings = [
        "rlaif.num_samples_per_prompt=4", "rlaif.max_new_tokens=10", "evaluation.num_samples=2", "evaluation.greedy=true",
        "rlaif.dynamic_sampling={enabled: true, max_extra_tasks: 0.5}",
    ]  # fmt: skip
    planned = plan(load_config(None, settings), num_train_tasks=6, num_validation_tasks=3, mean_prompt_tokens=20.0)
    assert planned.sampled_tokens_per_epoch == 360  # (6 + 3 extra) tasks * 4 samples * 10 tokens
    assert planned.prompt_tokens_per_epoch == 120  # 6 * 20: once per task
    assert planned.validation_tokens_per_epoch == 90  # 3 tasks * (2 samples + 1 greedy) * 10 tokens
    assert plan(load_config(None), num_train_tasks=6).validation_tokens_per_epoch is None


def test_the_peak_and_the_ends_are_those_of_the_schedule():
    config = load_config(
        None, ["training.lr_scheduler_type=cosine", "training.warmup_ratio=0.1", "training.learning_rate=1e-4"]
    )
    planned = plan(config, num_train_tasks=320)  # 10 steps an epoch, 40 in all, 4 of warmup
    assert (planned.length.total_steps, planned.warmup_steps) == (40, 4)
    assert planned.peak_learning_rate == 1e-4
    assert planned.epochs[0].last_learning_rate == learning_rate_at(schedule_settings(config), 9, 40)
    assert planned.epochs[-1].next_learning_rate == pytest.approx(0.0)


def test_no_tasks_is_a_usage_error():
    with pytest.raises(UsageError, match="no train tasks"):
        plan(load_config(None), num_train_tasks=0)
