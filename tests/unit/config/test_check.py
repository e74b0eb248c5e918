"""What is refused, what is warned of, and what is neither."""

import pytest

from evenkeel.config.check import findings, refuse_impossible
from evenkeel.config.length import run_length
from evenkeel.config.load import dump_config, load_config
from evenkeel.config.meaningless import MEANINGLESS
from evenkeel.config.settings import all_settings
from evenkeel.errors import UsageError


def messages(severity, *overrides, num_tasks=None):
    config = load_config(None, overrides)
    length = None if num_tasks is None else run_length(config, num_tasks)
    return [finding.message for finding in findings(config, length) if finding.severity == severity]


def test_the_defaults_are_possible_and_wise():
    assert findings(load_config(None), run_length(load_config(None), 640)) == []


def test_a_resolved_configuration_is_as_possible_as_the_one_it_came_from(tmp_path):
    dump_config(load_config(None), tmp_path / "config.yaml")
    assert findings(load_config(tmp_path / "config.yaml")) == []


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["rlaif.num_samples_per_prompt=1"], "compares samples of the same task and needs at least 2"),
        (["rlaif.num_samples_per_prompt=1", "rlaif.advantage=rloo"], "`rlaif.advantage: rloo` compares"),
        (["rlaif.num_samples_per_prompt=1", "rlaif.advantage=batch", "rlaif.train_on=best"], "chooses among the samples"),
        (["rlaif.train_on=top_k", "rlaif.top_k_samples=8"], "nothing would be left out"),
        (["rlaif.kl_penalty=0.1", "rlaif.kl_estimator=k1"], "no gradient in expectation"),
        (["rlaif.kl_penalty=0.1", "rlaif.kl_placement=reward"], "needs the unbiased `rlaif.kl_estimator: k1`"),
        (
            [
                "rlaif.kl_penalty=0.1",
                "rlaif.kl_placement=reward",
                "rlaif.kl_estimator=k1",
                "rlaif.loss=best_of_n",
                "rlaif.train_on=best",
            ],
            "acts through the advantages",
        ),
        (["rlaif.target_kl=0.1"], "`rlaif.kl_penalty` is 0, and nothing moves it from there"),
        (["rlaif.kl_estimator=k2"], "`rlaif.kl_estimator` is k2, but `rlaif.kl_penalty` is 0"),
        (["training.warmup_steps=5", "training.warmup_ratio=0.1"], "only one can count"),
        (["training.lr_scheduler_type=constant", "training.warmup_steps=5"], "the schedule `constant` has no warmup"),
        (["training.lr_scheduler_kwargs.num_cycles=2"], "only the schedules `cosine` and `cosine_with_restarts` have cycles"),
        (["training.lr_scheduler_kwargs.power=2"], "only the schedule `polynomial` has it"),
        (["training.lr_scheduler_type=polynomial", "training.lr_scheduler_kwargs.lr_end=0.1"], "Make it smaller than the rate"),
        (["reward.tests=0", "reward.teacher=0"], "All weights of `reward` are 0"),
        (["reward.custom.a:b=-1"], "a weight is at least 0"),
        (["teacher.weights={correctness: 0, quality: 0, efficiency: 0, documentation: 0}"], "all of `teacher.weights` are 0"),
        (["reward.teacher=0", "teacher.weights.quality=1"], "`reward.teacher` is 0: it would change nothing"),
        (["model.method=full", "model.quantization=4bit"], "without an adapter"),
        (["model.method=full", "model.adapter=somewhere"], "without an adapter"),
        (["model.method=full", "model.lora_r=8"], "Remove it (default 16), or set `model.method: lora`"),
        (["rlaif.loss=best_of_n"], "selects none"),
        (["rlaif.loss=best_of_n", "rlaif.train_on=best", "rlaif.advantage=batch"], "uses no advantages"),
        (["rlaif.loss=reinforce", "rlaif.clip_high=0.3"], "no importance ratio to clip"),
        (["rlaif.reward_weight=2"], "only `rlaif.advantage: none` multiplies by it"),
        (["rlaif.top_k_samples=3"], "`rlaif.train_on` is not `top_k`"),
        (["rlaif.reward_threshold=1.5"], "no sample would train"),
        (["rlaif.reward_threshold=0"], "no sample is below it"),
        (["rlaif.reward_shaping=true", "training.num_epochs=1"], "beats earlier epochs"),
        (["rlaif.reward_shaping={enabled: true, correctness_bonus: 0, quality_bonus: 0}"], "both of its bonuses are 0"),
        (["rlaif.reward_shaping.quality_bonus=0.1"], "reward shaping is off"),
        (["rlaif.dynamic_sampling={enabled: true, max_extra_tasks: 0}"], "`max_extra_tasks` is 0"),
        (["training.early_stopping={enabled: false, patience: 5}"], "early stopping is off"),
        (["evaluation.baseline_temperatures=[0.0, 0.5]"], "`evaluation.greedy: true` measures temperature 0"),
        (["rlaif.autopilot=auto"], "no doctor"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(overrides, expected):
    found = messages("impossible", *overrides)
    assert len(found) == 1 and expected in found[0]
    with pytest.raises(UsageError):
        refuse_impossible(load_config(None, overrides))


@pytest.mark.parametrize(
    "overrides",
    [
        ["rlaif.num_samples_per_prompt=1", "rlaif.advantage=batch"],
        ["rlaif.advantage=none", "rlaif.reward_weight=2", "rlaif.num_samples_per_prompt=1"],
        ["rlaif.kl_penalty=0.1", "rlaif.kl_placement=reward", "rlaif.kl_estimator=k1"],
        ["rlaif.kl_penalty=0.1", "rlaif.kl_estimator=k2", "rlaif.target_kl=0.05"],
        ["rlaif.loss=best_of_n", "rlaif.train_on=top_k", "rlaif.top_k_samples=3"],
        ["training.lr_scheduler_type=polynomial", "training.lr_scheduler_kwargs={power: 2, lr_end: 1e-6}"],
        ["model.method=full"],
        ["rlaif.reward_threshold.quantile=0.25"],
        ["rlaif.reward_threshold=0.3"],
        ["reward.tests=0", "reward.teacher=0", "reward.custom.a:b=1"],
    ],
)
def test_what_is_possible_is_not_refused(overrides):
    refuse_impossible(load_config(None, overrides))


def test_several_contradictions_are_told_together():
    with pytest.raises(UsageError, match="for 2 reasons") as caught:
        refuse_impossible(load_config(None, ["rlaif.top_k_samples=3", "rlaif.num_samples_per_prompt=1"]))
    assert "top_k_samples" in str(caught.value) and "num_samples_per_prompt" in str(caught.value)


def test_every_rule_about_meaningless_settings_names_settings_that_exist():
    known = {setting.path for setting in all_settings()}
    assert {path for rule in MEANINGLESS for path in rule.settings} <= known


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["training.learning_rate=1e-5"], "Try 0.0001"),  # ten times
        (["model.method=full", "model.name=some/model"], "full fine-tuning usually wants"),
        (["training.lr_scheduler_type=cosine", "training.lr_scheduler_kwargs.num_cycles=2"], "ends at its peak"),
        (
            ["training.lr_scheduler_type=cosine_with_restarts", "training.lr_scheduler_kwargs.num_cycles=3"],
            "jumps back to the peak rate 2 times",
        ),
        (["rlaif.generation_temperature=0.3"], "become alike"),
        (["rlaif.generation_temperature=1.5"], "become noise"),
        (["rlaif.top_p=0.9"], "cuts the tail"),
        (["model.lora_dropout=0.1"], "another policy"),
        (["rlaif.advantage=none"], "has no baseline"),
        (["rlaif.loss=dr_grpo"], "belongs with `rlaif.advantage: centred`"),
        (["rlaif.loss=reinforce", "training.updates_per_rollout=2"], "biased"),
        (["rlaif.loss=gspo", "training.updates_per_rollout=2"], "3e-4 and 4e-4"),
        (["rlaif.clip_high=0.28"], "no effect in this run"),
        (["training.updates_per_rollout=8"], "long gone"),
        (["rlaif.kl_penalty=2"], "hardly move"),
        (["training.max_grad_norm=0.01"], "norm before clipping"),
        (["rlaif.reward_threshold=0.8"], "above `rlaif.target_reward`"),
        (["rlaif.reward_shaping=true", "reward.teacher=0"], "only the correctness bonus"),
        (["data.validation=null"], "early stopping cannot act"),
    ],
)
def test_the_unwise_is_warned_of_and_not_refused(overrides, expected):
    found = messages("unwise", *overrides)
    assert len(found) == 1 and expected in found[0]
    assert messages("impossible", *overrides) == []


@pytest.mark.parametrize(
    "overrides",
    [
        ["training.lr_scheduler_type=cosine"],
        ["training.lr_scheduler_type=cosine", "training.lr_scheduler_kwargs.num_cycles=1.5"],  # ends at 0
        ["training.lr_scheduler_type=cosine_with_restarts", "training.lr_scheduler_kwargs.num_cycles=1"],
        ["rlaif.generation_temperature=1.1"],
        ["rlaif.clip_high=0.28", "training.updates_per_rollout=2"],
        ["rlaif.loss=dr_grpo", "rlaif.advantage=centred"],
    ],
)
def test_near_misses_stay_silent(overrides):
    assert messages("unwise", *overrides) == []


@pytest.mark.parametrize(
    ("overrides", "num_tasks", "expected"),
    [
        (["training.warmup_steps=100"], 640, ["ends at 80 % of its warmup"]),  # 20 steps * 4 epochs = 80
        (["training.warmup_steps=80"], 640, ["ends at 100 % of its warmup"]),  # the peak would come one step later
        (["training.warmup_ratio=0.5"], 640, ["takes 40 of 80 optimizer steps (50 %)"]),
        (["training.warmup_ratio=0.3"], 640, []),
        ([], 64, ["The whole run has 8 optimizer steps"]),
        ([], 20, ["The whole run has 4 optimizer steps", "every step has only 160 completions"]),  # 20 * 8
        (["training.batch_size=50"], 640, []),  # 50 * 4 = 200 = 25 groups of 8
        (["training.batch_size=51"], 640, ["has 208 completions (26 tasks)"]),  # 204 -> 26 * 8
        (["training.batch_size=2"], 640, ["has 8 completions: the gradient will be noisy"]),
    ],
)
def test_warnings_about_the_length_of_the_run(overrides, num_tasks, expected):
    found = messages("unwise", *overrides, num_tasks=num_tasks)
    assert len(found) == len(expected)
    assert all(words in message for words, message in zip(expected, found, strict=True))
