"""Stage 7, record: from the groups and the update of a step to the metrics of the step and of the epoch.

    CreditedGroup...  -> group_summary --------------> GroupSummary --+-> step_metrics  -> StepRecord.metrics
    UpdateReport, seconds -------------------------------------------+
    GroupSummary + GroupSummary + ... , step metrics ----------------> epoch_metrics -> EpochRecord.metrics
    ScoredGroup (validation) -> task_scores -> TaskScore... ---------> evaluation_metrics, start_metrics

An epoch adds up summaries, so that it weighs by samples (a mean of step means would not) and need not keep its groups.
A metric that was not measured is absent, never NaN. Formulas and traps: `names.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evenkeel.metrics.summary import GroupSummary, Moments
from evenkeel.records import Outcome, ScoredGroup, TaskScore, UpdateReport


@dataclass(frozen=True)
class EpochFacts:
    """What the loop knows of an epoch beside its samples and steps.

    >>> EpochFacts({"epoch": 61.0, "evaluation": 9.5}, target_reward=0.7).failures_survived
    0
    """

    seconds: Mapping[str, float]
    """Phase -> wall-clock seconds that are in no step: `epoch` (the whole), `evaluation`."""
    target_reward: float
    """rlaif.target_reward"""
    peak_memory_mb: float | None = None
    failures_survived: int = 0


def step_metrics(summary: GroupSummary, report: UpdateReport, seconds: Mapping[str, float]) -> dict[str, float]:
    """Metrics of one optimizer step.

    `summary` is that of the step's fresh rollout; with several updates per rollout the later ones bring `GroupSummary()`, so
    that no sample counts twice. `seconds`: phase (`rollout`, `reward`, `reference`, `update`, `step`) -> wall clock.
    """
    metrics = _group_metrics(summary) | _update_metrics(report) | _seconds(seconds)
    return _finite(metrics | _throughput(metrics))


def epoch_metrics(summary: GroupSummary, steps: Sequence[Mapping[str, float]], facts: EpochFacts) -> dict[str, float]:
    """Metrics of one epoch: `summary` is the sum of its steps' summaries, `steps` their metrics, in order."""
    metrics = _group_metrics(summary) | _over_steps(steps)
    for phase, value in _seconds(facts.seconds).items():
        metrics[phase] = metrics.get(phase, 0.0) + value
    if "reward/mean" in metrics:
        metrics["reward/target_share"] = metrics["reward/mean"] / facts.target_reward
    if facts.peak_memory_mb is not None:
        metrics["memory/peak_mb"] = facts.peak_memory_mb
    metrics["failures/survived"] = float(facts.failures_survived)
    return _finite(metrics | _throughput(metrics))


def task_scores(groups: Sequence[ScoredGroup]) -> list[TaskScore]:
    """What paired comparisons need of evaluated groups; samples that could not be scored are left out."""
    scores = []
    for group in groups:
        scored = [sample for sample in group.samples if sample.reward is not None and sample.verdict.scored]
        rewards = tuple(sample.reward for sample in scored)
        scores.append(TaskScore(group.task.task_id, rewards, tuple(sample.verdict.share for sample in scored)))
    return scores


def evaluation_metrics(validation: Sequence[TaskScore], greedy: Sequence[TaskScore] = ()) -> dict[str, float]:
    """Held-out metrics of one epoch. Each task weighs the same; a task without a scored sample is left out and shows in
    `validation/tasks`."""
    metrics = {}
    scored = [score for score in validation if score.rewards]
    if scored:
        tests = Moments.of([_mean(score.test_shares) for score in scored])
        metrics["validation/tests/mean"] = tests.mean
        metrics["validation/reward/mean"] = _mean([_mean(score.rewards) for score in scored])
        metrics["validation/best_of_n"] = _mean([max(score.rewards) for score in scored])
        metrics["validation/tasks"] = float(len(scored))
        if tests.count > 1:
            metrics["validation/tests/std_error"] = tests.std_error
    if any(score.test_shares for score in greedy):
        metrics["validation/tests/greedy"] = mean_tests(greedy)
    return metrics


def start_metrics(by_temperature: Mapping[float, Sequence[TaskScore]]) -> dict[str, float]:
    """The untrained student at further temperatures: the bar that sharpening alone would reach."""
    return {f"start/tests/temperature_{t:g}": mean_tests(scores) for t, scores in by_temperature.items()}


def mean_tests(scores: Sequence[TaskScore]) -> float:
    """Mean over tasks of the mean share of hidden tests passed; tasks without a scored sample are left out."""
    return _mean([_mean(score.test_shares) for score in scores if score.test_shares])


# --------------------------------------------------------------------------- of samples


def _group_metrics(summary: GroupSummary) -> dict[str, float]:
    if not summary.num_samples:
        return {}
    outcomes = {f"outcomes/{outcome}_share": summary.outcomes.get(outcome, 0) / summary.num_samples for outcome in Outcome}
    metrics = {
        "completions/truncated_share": summary.num_truncated / summary.num_samples,
        "completions/parse_failure_share": outcomes[f"outcomes/{Outcome.PARSE_ERROR}_share"],
        "completions/unscored_share": summary.num_unscored / summary.num_samples,
        "completions/length_mean": summary.num_tokens / summary.num_samples,
        "groups/without_signal_share": summary.num_without_signal / summary.num_groups,
        "groups/replaced": float(summary.num_replaced),
        "tokens/generated": float(summary.num_tokens + summary.num_replaced_tokens),
    }
    if summary.num_parts:
        metrics["reward/unscored_parts_share"] = summary.num_unscored_parts / summary.num_parts
    return metrics | outcomes | _reward_metrics(summary) | _part_metrics(summary.parts)


def _reward_metrics(summary: GroupSummary) -> dict[str, float]:
    means = {
        "reward/mean": summary.rewards,
        "reward/best_of_n": summary.best,
        "reward/group_std": summary.group_std,
        "reward/tests/mean": summary.test_shares,
        "reward/bonus_mean": summary.bonuses,
        "diversity/unique_fraction": summary.unique_fraction,
        "diversity/mean_similarity": summary.similarity,
        "curriculum/difficulty_mean": summary.difficulty,
    }
    metrics = {name: moments.mean for name, moments in means.items() if moments.count}
    if summary.rewards.count:
        metrics["reward/std"] = summary.rewards.std
    if summary.task_means.count > 1:
        metrics["reward/std_error"] = summary.task_means.std_error
    return metrics


def _part_metrics(parts: Mapping[str, Moments]) -> dict[str, float]:
    """`tests` is left out: reward/tests/mean is the share that passed, also where the part is all-or-nothing."""
    return {
        f"{name}/mean" if name.startswith("teacher/") else f"reward/part/{name}/mean": moments.mean
        for name, moments in parts.items()
        if moments.count and name != "tests"
    }


# --------------------------------------------------------------------------- of updates


def _update_metrics(report: UpdateReport) -> dict[str, float]:
    """A dropped step has a rate and a count, but no loss, no KL and no gradient norm: its update did not happen."""
    metrics = {
        "learning_rate": report.learning_rate,
        "kl_penalty": report.kl_penalty,
        "update/dropped_steps": float(not report.applied),
    }
    if not report.applied:
        return metrics
    return metrics | {
        "loss/mean": report.loss,
        "loss/policy": report.policy_loss,
        "kl/mean": report.kl_to_reference,
        "kl/sampler_to_trainer": report.kl_sampler_to_trainer,
        "entropy/mean": report.entropy,
        "grad_norm/mean": report.grad_norm,
        "grad_norm/clipped_share": float(report.grad_clipped),
        "clip_fraction/mean": report.clip_fraction,
        "ratio/max": report.ratio_max,
        "update/trained_samples": float(report.trained_samples),
        "update/trained_tokens": float(report.trained_tokens),
        "update/micro_batch_size": float(report.micro_batch_size),
    }


_TOKEN_MEANS = ("kl/mean", "kl/sampler_to_trainer", "entropy/mean", "clip_fraction/mean")
_SAMPLE_MEANS = ("loss/mean", "loss/policy")
_STEP_MEANS = ("grad_norm/mean", "grad_norm/clipped_share")
_SUMS = ("update/trained_samples", "update/trained_tokens", "update/dropped_steps")
_PHASES = ("time/rollout_s", "time/reward_s", "time/reference_s", "time/update_s", "time/evaluation_s")
_LAST = ("learning_rate", "kl_penalty")


def _over_steps(steps: Sequence[Mapping[str, float]]) -> dict[str, float]:
    metrics: dict[str, float] = {}
    applied = [step for step in steps if not step.get("update/dropped_steps")]
    weighted = [(_TOKEN_MEANS, "update/trained_tokens"), (_SAMPLE_MEANS, "update/trained_samples"), (_STEP_MEANS, None)]
    for names, weight_name in weighted:
        for name in names:
            pairs = [(step[name], step[weight_name] if weight_name else 1.0) for step in applied if name in step]
            total = math.fsum(weight for _, weight in pairs)
            if total:
                metrics[name] = math.fsum(value * weight for value, weight in pairs) / total
    for name in (*_SUMS, *_PHASES):
        if any(name in step for step in steps):
            metrics[name] = math.fsum(step.get(name, 0.0) for step in steps)
    for name in _LAST:
        if steps and name in steps[-1]:
            metrics[name] = steps[-1][name]
    for target, source, extreme in (
        ("ratio/max", "ratio/max", max),
        ("grad_norm/max", "grad_norm/mean", max),
        ("update/micro_batch_size", "update/micro_batch_size", min),
    ):
        values = [step[source] for step in applied if source in step]
        if values:
            metrics[target] = extreme(values)
    return metrics


# --------------------------------------------------------------------------- helpers


def _seconds(seconds: Mapping[str, float]) -> dict[str, float]:
    return {f"time/{phase}_s": value for phase, value in seconds.items()}


def _throughput(metrics: Mapping[str, float]) -> dict[str, float]:
    seconds = metrics.get("time/rollout_s", 0.0)
    return {"tokens/per_second": metrics["tokens/generated"] / seconds} if seconds > 0 and "tokens/generated" in metrics else {}


def _finite(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items() if math.isfinite(value)}


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
