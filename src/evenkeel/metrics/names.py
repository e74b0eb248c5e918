"""Every metric: its name, unit, formula, source and the way in which it misleads.

    stage/what/statistic        `validation/tests/mean`

`collect.py` computes them, `store.py` keeps them, everything that shows or judges a run looks them up here.
`docs/metrics.md` is printed from this table (`python -m evenkeel.metrics.page`). A metric that was not measured is absent
from its row: never NaN, never 0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from evenkeel.records import Outcome


@dataclass(frozen=True)
class Metric:
    """One line of the catalogue.

    >>> metric("reward/mean").better, metric("loss/mean").better
    ('up', 'none')
    """

    name: str
    """As it is stored; `<...>` stands for a part that varies."""
    unit: str
    """`points` are reward points, 0 .. 1; `share` is 0 .. 1."""
    formula: str
    source: str
    """Which record it is computed from, and the paper where there is one."""
    trap: str
    """How it misleads."""
    better: Literal["up", "down", "none"] = "none"
    level: Literal["step", "epoch", "both"] = "both"


_SAMPLES = "ScoredSample, of the train tasks"
_UPDATE = "UpdateReport"
_TASK_SCORES = "TaskScore, of the validation tasks"
_CLOCK = "the training loop's clock"
_GROUPS = "CreditedGroup"

_REWARD = (
    Metric("reward/mean", "points", "sum of the unshaped rewards / number of scored samples", _SAMPLES,
           "The curriculum changes the tasks from step to step: a harder epoch looks like a regression. Samples of one task "
           "are not independent, so compare it with reward/std_error, and prefer validation/reward/mean.", "up"),
    Metric("reward/best_of_n", "points", "mean over tasks of the best unshaped reward among a task's N samples", _SAMPLES,
           "Grows with N and with temperature even when the student does not improve: compare only at equal N and "
           "temperature. Below N where samples are unscored.", "up"),
    Metric("reward/std", "points", "sqrt(mean((r - mean(r))^2)) over all scored samples", _SAMPLES,
           "Mixes the spread between tasks with the spread inside a task. Only the latter (reward/group_std) teaches a group "
           "method."),
    Metric("reward/group_std", "points", "mean over tasks of the population standard deviation of the task's rewards", _SAMPLES,
           "Falls towards 0 both when every task is solved and when none is: read it with reward/mean."),
    Metric("reward/std_error", "points", "std of the task means (n - 1) / sqrt(number of tasks)",
           "task means; samples of one task share a cluster",
           "The error of the mean over such tasks. Tasks differ from epoch to epoch only in their order, so a paired "
           "difference is tighter."),
    Metric("reward/tests/mean", "share", "mean over samples of hidden tests passed / hidden tests",
           "Verdict, of the train tasks",
           "A share: half of the tests passed is often not half of the way. Visible tests never count.", "up"),
    Metric("reward/bonus_mean", "points", "mean over samples of the shaping bonus", "ScoredSample.bonus",
           "Not in reward/mean. It dries up as records become hard to beat, which is not a regression."),
    Metric("reward/target_share", "share", "reward/mean / rlaif.target_reward", "derived",
           "Inherits every trap of reward/mean; the target is a wish, not a ceiling.", "up", "epoch"),
    Metric("reward/unscored_parts_share", "share", "reward parts with status unscored / all reward parts", "RewardPart",
           "An unscored part drops out for its whole group, so the mix behind reward/mean shifts when this moves.", "down"),
    Metric("reward/part/<name>/mean", "share", "mean over samples of the scored values of this part",
           "RewardPart (format and own rewards)",
           "The part before its weight. A part that never varies adds nothing but a constant."),
)  # fmt: skip

_TEACHER = tuple(
    Metric(f"teacher/{dimension}/mean", "share", "mean over samples of the scored values of this rubric dimension",
           "RewardPart, teacher", trap, "up")
    for dimension, trap in (
        ("correctness", "A judge's view is a proxy: where it rises and reward/tests/mean does not, the judge is being gamed."),
        ("quality", "Counts only as far as the tests pass, so it rises with correctness even when the style stays as it was."),
        ("efficiency", "Counts only as far as the tests pass. Offline it is read from the syntax tree: nothing is timed."),
        ("documentation",
         "Counts only as far as the tests pass. Offline, an answer that continues a function's head is judged by its names "
         "alone; elsewhere a docstring counts by its length, so any 40 characters are worth half."),
    )
)  # fmt: skip

_VALIDATION = (
    Metric("validation/tests/mean", "share", "mean over tasks of the mean share of hidden tests passed by a task's samples",
           _TASK_SCORES,
           "The truth among the metrics, as far as the tests are. Sampled at a fixed temperature: sharpening alone raises it "
           "up to the start's greedy score, so compare with start/tests/temperature_<t> and validation/tests/greedy at epoch "
           "0.", "up", "epoch"),
    Metric("validation/tests/std_error", "share", "std of the task means (n - 1) / sqrt(number of tasks)", _TASK_SCORES,
           "Of one epoch. For the difference of two epochs use the paired interval (metrics/paired.py), which is tighter.",
           "none", "epoch"),
    Metric("validation/tests/greedy", "share", "mean over tasks of the share of hidden tests passed by the greedy answer",
           _TASK_SCORES + ", temperature 0",
           "One answer a task: its noise is larger than that of the sampled mean.", "up", "epoch"),
    Metric("validation/reward/mean", "points", "mean over tasks of the mean unshaped reward of a task's samples", _TASK_SCORES,
           "Contains the teacher: a rise with a flat validation/tests/mean is a proxy being gamed.", "up", "epoch"),
    Metric("validation/best_of_n", "points", "mean over tasks of the best unshaped reward among a task's samples", _TASK_SCORES,
           "Grows with evaluation.num_samples. When it falls while the mean rises, answers are being lost, not only "
           "sharpened.", "up", "epoch"),
    Metric("validation/tasks", "tasks", "validation tasks with at least one scored sample", _TASK_SCORES,
           "When it moves between epochs, the means are not over the same tasks.", "none", "epoch"),
    Metric("start/tests/temperature_<t>", "share",
           "validation/tests/mean of the untrained student at temperature t (0: greedy)", _TASK_SCORES + ", epoch 0",
           "A baseline, measured once. Training that does not beat the best of them has only sharpened.", "none", "epoch"),
)  # fmt: skip

_OBJECTIVE = (
    Metric("loss/mean", "none",
           "step: value of the whole objective (policy + KL - entropy bonus); epoch: mean over applied steps, weighted by "
           "trained samples", _UPDATE,
           "Loss is not progress. On-policy, with sequence means and advantages of mean zero, the policy part is about 0 "
           "whatever happens, and what is left is kl_penalty x KL: it rises while the student improves. With other losses "
           "its level depends on the baseline. A rise is a reason to look at KL, gradient norm and clipping, never a verdict."),
    Metric("loss/policy", "none", "step: the objective without KL and entropy terms; epoch: weighted by trained samples",
           _UPDATE,
           "About 0 on-policy with sequence means and centred advantages: its gradient matters, its value does not."),
    Metric("kl/mean", "nats per token",
           "mean over trained tokens of the k3 estimate of KL(policy || base): exp(d) - d - 1, d = log base - log policy",
           _UPDATE + "; Schulman 2020, joschu.net/blog/kl-approx.html",
           "A mean over tokens: a few tokens may have moved far. Heavy tails when the base finds a sampled token very "
           "unlikely. It grows in every run that learns; the rate and the reward bought with it matter. Where samples with "
           "advantage 0 are skipped (no KL penalty in the loss, no entropy bonus), the mean is over the others."),
    Metric("kl/sampler_to_trainer", "nats per token", "mean over trained tokens of the k3 estimate of KL(sampler || trainer)",
           _UPDATE,
           "Should be rounding noise at the first update of a rollout. Otherwise sampling and training disagree "
           "(temperature, dtype, merged adapter, token borders), and every ratio is wrong. With several updates per rollout "
           "the later ones rightly have more.", "down"),
    Metric("entropy/mean", "nats per token",
           "mean over trained tokens of the entropy of the next-token distribution at the sampling temperature", _UPDATE,
           "Falls in every run that learns; a collapse to about 0 with reward still spread is a contradiction. Truncated "
           "completions that do not train are not in it."),
    Metric("grad_norm/mean", "none", "L2 norm of the gradient BEFORE clipping; epoch: mean over applied steps", _UPDATE,
           "After clipping it is at most max_grad_norm by construction, which proves nothing. Its level depends on loss, "
           "batch and parameterisation: compare it only with itself."),
    Metric("grad_norm/max", "none", "largest grad_norm/mean among the epoch's applied steps", _UPDATE,
           "One outlier is a batch; a rising series is a trend.", "none", "epoch"),
    Metric("grad_norm/clipped_share", "share",
           "step: 1 when the norm was above training.max_grad_norm, else 0; epoch: share of applied steps", _UPDATE,
           "Near 1 the clip sets the step size, and the learning rate means something else. Adam largely undoes a constant "
           "scaling."),
    Metric("learning_rate", "none", "rate applied in the step; epoch: in its last step", _UPDATE,
           "Check it against the configuration: a warmup longer than the run never reaches the configured rate."),
    Metric("kl_penalty", "none", "weight of the KL term applied in the step; epoch: in its last step", _UPDATE,
           "Moves by itself when rlaif.target_kl is set; a series of loss/mean then mixes two changes."),
    Metric("clip_fraction/mean", "share", "trained tokens whose importance ratio was clipped / trained tokens",
           _UPDATE + "; PPO, Schulman et al. 2017, arXiv:1707.06347",
           "Exactly 0 in the first update of a rollout, by construction. Clipped tokens give no gradient."),
    Metric("ratio/max", "none", "largest importance ratio policy / sampler over trained tokens; epoch: maximum over steps",
           _UPDATE,
           "An extreme of many tokens: it grows with the batch. Above 1 at the first update it shows an engine mismatch."),
    Metric("update/trained_samples", "samples", "completions that entered the update; epoch: sum", _UPDATE,
           "Small against num_samples x tasks: filters or groups without signal eat the batch, and the step is noisier than "
           "its size says."),
    Metric("update/trained_tokens", "tokens", "completion tokens that entered the update; epoch: sum", _UPDATE,
           "Without prompts and without masked completions."),
    Metric("update/dropped_steps", "steps",
           "step: 1 when the step changed nothing (not finite, or nothing to train on), else 0; epoch: sum", _UPDATE,
           "A dropped step has no loss and no gradient norm: the means are over what remained.", "down"),
    Metric("update/micro_batch_size", "samples", "completions per micro-batch that were used; epoch: minimum", _UPDATE,
           "Below training.batch_size after an out-of-memory. The gradient does not depend on it."),
)  # fmt: skip

_BEHAVIOUR = (
    Metric("diversity/unique_fraction", "share", "mean over tasks of distinct completions / N, whitespace normalised",
           "Completion.text",
           "Counts a renamed variable as a new answer: near 1 it says little. Falls with N. Absent when N is 1."),
    Metric("diversity/mean_similarity", "share",
           "mean over tasks of the mean over pairs of |A and B| / |A or B|, A and B the sets of token 3-grams",
           "Completion.text; Jaccard index",
           "A SIMILARITY: low is diverse. The seed's \"code diversity 0.080, high\" is one. Short answers share a signature's "
           "worth of tokens and look alike; it has no good value of its own."),
    Metric("groups/without_signal_share", "share", "tasks where no training sample has an advantage other than 0 / tasks",
           _GROUPS,
           "They are skipped exactly. High with reward near 0: too hard; near 1: too easy; from the first step with reward "
           "between: a constant reward.", "down"),
    Metric("groups/replaced", "tasks", "tasks that dynamic sampling replaced: all their rewards were equal; epoch: sum",
           "ScoredGroup",
           "They are in no mean of the step: with rlaif.dynamic_sampling, reward/mean is of the tasks that still teach, and a "
           "task that becomes solved leaves it."),
    Metric("completions/truncated_share", "share", "completions ended by rlaif.max_new_tokens / completions",
           "Completion.truncated",
           "A limit too short looks like a student that cannot solve the task.", "down"),
    Metric("completions/length_mean", "tokens", "mean number of completion tokens, EOS included", "Completion.length",
           "Truncated completions count with the limit, so it is too low when many are cut."),
    Metric("completions/parse_failure_share", "share", "completions with outcome parse_error / completions", "Verdict.outcome",
           "Truncation causes most of them: read it with completions/truncated_share.", "down"),
    Metric("completions/unscored_share", "share", "completions without any reward / completions", "ScoredSample.reward is None",
           "They are left out of every mean: when it is large, the rest is a selection.", "down"),
    *(Metric(f"outcomes/{outcome}_share", "share", f"completions with outcome {outcome} / completions", "Verdict.outcome",
             "Outcome of a program's worst test; the shares of all outcomes add up to 1.",
             "up" if outcome is Outcome.PASSED else "down") for outcome in Outcome),
    Metric("curriculum/difficulty_mean", "difficulty", "mean over sampled tasks of the declared difficulty, 0 easy .. 1 hard",
           "Task.difficulty",
           "Declared, not observed; tasks without one are left out. When it rises, reward/mean should be expected to fall."),
)  # fmt: skip

_COST = (
    Metric("time/epoch_s", "s", "sum of time/step_s over the epoch's steps + time/evaluation_s", _CLOCK,
           "Without saving and recording between steps; after a resume, without what the crash cost.", "down", "epoch"),
    Metric("time/step_s", "s", "wall clock of the step, from choosing its tasks to its metrics", _CLOCK,
           "A little more than the sum of its phases.", "down", "step"),
    *(Metric(f"time/{phase}_s", "s", f"wall clock of {what}; epoch: sum", _CLOCK, "Moves with other load on the machine.",
             "down")
      for phase, what in (("rollout", "sampling"), ("reward", "sandbox and teacher"),
                          ("update", "forward, backward and optimizer"), ("reference", "the base model's log-probabilities"),
                          ("evaluation", "validation"))),
    Metric("tokens/generated", "tokens", "completion tokens sampled for training, replaced groups included; epoch: sum",
           "Completion.length",
           "Without prompts and without validation."),
    Metric("tokens/per_second", "tokens per s", "tokens/generated / time/rollout_s", "derived",
           "Of sampling alone, not of the whole step.", "up"),
    Metric("memory/peak_mb", "MB (10^6 bytes)", "peak memory of the process, on a GPU peak allocated device memory",
           "the training loop",
           "A high-water mark since the start of the process on CPU: it never falls.", "down", "epoch"),
    Metric("failures/survived", "failures",
           "failures of the epoch after which training went on (dropped steps, out of memory, sandbox restarts)",
           "the training loop",
           "0 is no proof of health: see completions/unscored_share.", "down", "epoch"),
)  # fmt: skip

CATALOGUE: dict[str, Metric] = {
    entry.name: entry for entry in (*_REWARD, *_TEACHER, *_VALIDATION, *_OBJECTIVE, *_BEHAVIOUR, *_COST)
}
"""In the order in which a person should read them."""

_FAMILIES = tuple(
    (re.compile(re.sub(r"<\w+>", "(.+)", entry.name)), entry) for entry in CATALOGUE.values() if "<" in entry.name
)


def metric(name: str) -> Metric | None:
    """The catalogue's line for a stored name, or None for a name that is not ours.

    >>> metric("start/tests/temperature_0.3").name
    'start/tests/temperature_0.3'
    >>> metric("no/such") is None
    True
    """
    if name in CATALOGUE:
        return CATALOGUE[name]
    family = next((entry for pattern, entry in _FAMILIES if pattern.fullmatch(name)), None)
    return family and replace(family, name=name)


def in_reading_order(names: set[str]) -> list[str]:
    """Names in the catalogue's order; members of a family and foreign names follow, by alphabet.

    >>> in_reading_order({"zebra", "loss/mean", "reward/mean"})
    ['reward/mean', 'loss/mean', 'zebra']
    """
    rank = {name: index for index, name in enumerate(CATALOGUE)}
    return sorted(names, key=lambda name: (rank.get(name, len(rank)), name))
