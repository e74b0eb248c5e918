import math

import pytest

from evenkeel.metrics.collect import EpochFacts, epoch_metrics, evaluation_metrics, start_metrics, step_metrics, task_scores
from evenkeel.metrics.names import metric
from evenkeel.metrics.summary import GroupSummary, group_summary
from evenkeel.records import Outcome, TaskScore
from tests.unit.metrics.builders import credited, part, report, sample, scored

FACTS = EpochFacts({"epoch": 60.0, "evaluation": 5.0}, target_reward=0.5, peak_memory_mb=120.0, failures_survived=2)


def small_step():
    group = scored(
        "a",
        sample(1.0, bonus=0.05, parts=[part("tests", 1.0), part("teacher/quality", 0.8), part("format", 1.0)]),
        sample(0.0, outcome=Outcome.PARSE_ERROR, parts=[part("tests", 0.0), part("teacher/quality", 0.0), part("format", 0.0)]),
        difficulty=0.3,
    )
    return group_summary([credited(group)])


def test_the_metrics_of_a_step_worked_by_hand():
    metrics = step_metrics(small_step(), report(), {"rollout": 2.0, "update": 1.0})
    expected = {
        "reward/mean": 0.5, "reward/best_of_n": 1.0, "reward/std": 0.5, "reward/bonus_mean": 0.025, "reward/tests/mean": 0.5,
        "completions/parse_failure_share": 0.5, "outcomes/passed_share": 0.5, "outcomes/timeout_share": 0.0,
        "teacher/quality/mean": 0.4, "reward/part/format/mean": 0.5, "curriculum/difficulty_mean": 0.3,
        "tokens/generated": 8.0, "tokens/per_second": 4.0, "time/rollout_s": 2.0,
        "loss/mean": 0.1, "grad_norm/clipped_share": 1.0, "learning_rate": 1e-3,
    }  # fmt: skip
    assert {name: metrics[name] for name in expected} == pytest.approx(expected)


def test_average_reward_is_unshaped():
    shaped = group_summary([credited(scored("a", sample(0.5, bonus=0.05), sample(0.5, bonus=0.05)))])
    metrics = step_metrics(shaped, report(), {})
    assert metrics["reward/mean"] == metrics["reward/best_of_n"] == 0.5


def test_a_dropped_step_has_no_loss_and_no_norm():
    metrics = step_metrics(small_step(), report(applied=False, loss=math.nan, grad_norm=math.inf), {})
    assert metrics["update/dropped_steps"] == 1.0
    assert "loss/mean" not in metrics and "grad_norm/mean" not in metrics and "kl/mean" not in metrics
    assert metrics["reward/mean"] == 0.5


def test_a_further_update_on_the_same_rollout_counts_no_sample_again():
    metrics = step_metrics(GroupSummary(), report(), {"update": 1.0})
    assert "reward/mean" not in metrics and "tokens/generated" not in metrics
    assert metrics["loss/mean"] == 0.1


def test_an_epoch_weighs_rewards_by_samples():
    big = group_summary([credited(scored("a", *[sample(1.0)] * 3))])
    small = group_summary([credited(scored("b", sample(0.0)))])
    steps = [step_metrics(summary, report(), {}) for summary in (big, small)]
    metrics = epoch_metrics(big + small, steps, FACTS)
    assert metrics["reward/mean"] == 0.75  # 3 of 4 samples; the mean of the step means is 0.5
    assert metrics["reward/best_of_n"] == 0.5  # tasks weigh the same
    assert metrics["reward/target_share"] == 1.5  # 0.75 / 0.5
    assert metrics["reward/std_error"] == pytest.approx(0.5)  # task means 1 and 0: std 0.7071, / sqrt 2


def test_an_epoch_weighs_kl_by_tokens_and_loss_by_samples():
    summary = small_step()
    one = step_metrics(summary, report(trained_tokens=300, trained_samples=30, kl_to_reference=0.1, loss=0.2), {"update": 1.0})
    two = step_metrics(summary, report(trained_tokens=100, trained_samples=20, kl_to_reference=0.5, loss=0.7, grad_norm=6.0,
                                       grad_clipped=False, learning_rate=5e-4, ratio_max=1.5), {"update": 3.0})  # fmt: skip
    metrics = epoch_metrics(summary + summary, [one, two], FACTS)
    assert metrics["kl/mean"] == pytest.approx(0.2)  # (300 * 0.1 + 100 * 0.5) / 400
    assert metrics["loss/mean"] == pytest.approx(0.4)  # (30 * 0.2 + 20 * 0.7) / 50
    assert (metrics["grad_norm/mean"], metrics["grad_norm/max"], metrics["grad_norm/clipped_share"]) == (4.0, 6.0, 0.5)
    assert (metrics["learning_rate"], metrics["ratio/max"], metrics["update/trained_tokens"]) == (5e-4, 1.5, 400.0)
    assert (metrics["time/update_s"], metrics["time/epoch_s"], metrics["time/evaluation_s"]) == (4.0, 60.0, 5.0)
    assert (metrics["memory/peak_mb"], metrics["failures/survived"]) == (120.0, 2.0)


def test_a_dropped_step_is_counted_and_left_out_of_the_epochs_means():
    steps = [step_metrics(small_step(), report(applied=False), {}), step_metrics(small_step(), report(), {})]
    metrics = epoch_metrics(small_step() + small_step(), steps, FACTS)
    assert (metrics["update/dropped_steps"], metrics["loss/mean"], metrics["grad_norm/clipped_share"]) == (1.0, 0.1, 1.0)


def test_the_untrained_student_has_only_its_evaluation():
    metrics = epoch_metrics(GroupSummary(), [], FACTS)
    assert set(metrics) == {"time/epoch_s", "time/evaluation_s", "memory/peak_mb", "failures/survived"}


def test_unscored_samples_leave_a_task_score():
    group = scored("a", sample(1.0), sample(None, outcome=Outcome.INFRASTRUCTURE))
    assert task_scores([group]) == [TaskScore("a", (1.0,), (1.0,))]


def test_validation_weighs_tasks_the_same():
    scores = [TaskScore("a", (1.0, 0.5, 0.0), (1.0, 0.5, 0.0)), TaskScore("b", (0.2,), (0.0,)), TaskScore("lost", (), ())]
    metrics = evaluation_metrics(scores, greedy=[TaskScore("a", (1.0,), (1.0,)), TaskScore("b", (0.2,), (0.0,))])
    assert metrics == pytest.approx({
        "validation/tests/mean": 0.25,  # (0.5 + 0) / 2
        "validation/reward/mean": 0.35,  # (0.5 + 0.2) / 2
        "validation/best_of_n": 0.6,  # (1 + 0.2) / 2
        "validation/tests/std_error": 0.25,  # task means 0.5 and 0: std 0.35355, / sqrt 2
        "validation/tasks": 2.0,
        "validation/tests/greedy": 0.5,
    })  # fmt: skip


def test_start_temperatures_carry_their_names():
    assert start_metrics({0.3: [TaskScore("a", (1.0,), (0.5,))], 1.0: [TaskScore("a", (1.0,), (0.25,))]}) == {
        "start/tests/temperature_0.3": 0.5,
        "start/tests/temperature_1": 0.25,
    }


def test_every_collected_metric_is_in_the_catalogue():
    steps = [step_metrics(small_step(), report(), dict.fromkeys(("rollout", "reward", "reference", "update", "step"), 1.0))]
    collected = steps[0] | epoch_metrics(small_step(), steps, FACTS) | start_metrics({0.3: [TaskScore("a", (1.0,), (1.0,))]})
    solved, unsolved = TaskScore("a", (1.0,), (1.0,)), TaskScore("b", (0.0,), (0.0,))
    collected |= evaluation_metrics([solved, unsolved], [solved])
    assert [name for name in collected if metric(name) is None] == []
