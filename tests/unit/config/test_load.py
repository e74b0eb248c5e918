"""What a user writes, and what the configuration or the error then says."""

from pathlib import Path

import pytest

from evenkeel.config.load import apply_overrides, dump_config, load_config
from evenkeel.config.schema import QuantileThreshold, RunConfig
from evenkeel.config.settings import all_settings, nearest
from evenkeel.errors import RunError, UsageError


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return path


def error_of(tmp_path: Path, text: str, *overrides: str) -> str:
    with pytest.raises(UsageError) as caught:
        load_config(written(tmp_path, text), overrides)
    return str(caught.value)


def test_no_file_and_an_empty_file_are_the_defaults(tmp_path):
    assert (
        load_config(None) == RunConfig() == load_config(written(tmp_path, "")) == load_config(written(tmp_path, "training:\n"))
    )


@pytest.mark.parametrize("text", ["5e-6", "5E-6", "5.0e-6", "0.000005", "+5e-6"])
def test_a_rate_is_a_number_in_every_spelling(tmp_path, text):
    assert load_config(written(tmp_path, f"training:\n  learning_rate: {text}\n")).training.learning_rate == 5e-6


def test_a_whole_number_is_taken_where_a_number_is_asked(tmp_path):
    assert load_config(written(tmp_path, "rlaif: {generation_temperature: 1}")).rlaif.generation_temperature == 1.0


def test_the_snippets_of_the_seed_apply_as_they_stand(tmp_path):
    seed = """
training:
  learning_rate: 5e-6  # Reduce from 1e-5 to 5e-6 (50% reduction)
  warmup_steps: 200
  max_grad_norm: 0.5
  lr_scheduler_type: "cosine_with_restarts"
  lr_scheduler_kwargs:
    num_cycles: 2
  batch_size: 4
  gradient_accumulation_steps: 25
rlaif:
  kl_penalty: 0.1
  curriculum_learning: true
  generation_temperature: 1.1
"""
    config = load_config(written(tmp_path, seed))
    assert (config.training.learning_rate, config.training.lr_scheduler_kwargs.num_cycles, config.rlaif.kl_penalty) == (
        5e-6,
        2,
        0.1,
    )


def test_a_misspelt_key_names_the_nearest_with_its_whole_path(tmp_path):
    message = error_of(tmp_path, "training: {learning_rte: 1e-5}")
    assert "`training.learning_rte` is not a setting; did you mean `training.learning_rate`?" in message


@pytest.mark.parametrize(
    ("unknown", "meant"),
    [
        ("training.kl_penalty", "rlaif.kl_penalty"),  # right name, wrong section
        ("learning_rate", "training.learning_rate"),  # no section
        ("traning", "training"),
        ("rlaif.temperature", "rlaif.generation_temperature"),  # own section before evaluation.temperature
        ("training.lr_scheduler_kwargs.num_cycle", "training.lr_scheduler_kwargs.num_cycles"),
        ("training.frobnicate", None),
    ],
)
def test_the_nearest_setting(unknown, meant):
    assert nearest(unknown) == meant


def test_a_key_like_no_other_lists_what_is_known_there(tmp_path):
    assert "known there: num_epochs, learning_rate." in error_of(tmp_path, "sft: {frobnicate: 1}")


def test_a_number_in_quotes_is_text_and_the_message_says_so(tmp_path):
    message = error_of(tmp_path, 'training: {learning_rate: "1e-5"}')
    assert 'must be a number, greater than 0, at most 1, but is the text "1e-5". Remove the quotes.' in message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("training: {learning_rate: -1e-5}", "greater than 0, at most 1, but is -1e-05"),
        ("training: {num_epochs: true}", "a whole number, at least 1, but is true"),
        ("training: {batch_size: 4.0}", "but is 4.0. If 4 was meant, write it without a point"),
        ("training: {batch_size: null}", "but is null"),
        ("training: {weight_decay: .nan}", "but is nan"),
        ("model: {lora_alpha: .inf}", "but is inf"),
        ("rlaif: {loss: gropo}", "`grpo` or `dr_grpo`"),
        ("rlaif: {reward_threshold: low}", "a number or a mapping {quantile: a number, greater than 0, less than 1} or null"),
        ("rlaif: {reward_shaping: 3}", "true, false or a mapping of settings (enabled, "),
        ("model: 3", "`model` must be a mapping of settings"),
        ("training: 2020-01-01", "but is a date: 2020-01-01"),
        ("2: 3", "`2` is not a setting"),
        ("? [a, b]\n: 3", "is not a setting"),
        ("- a", "must be a mapping of sections"),
        ("training: [", "line 1: not valid YAML"),
        ("sft: {}\nsft: {}", "line 2: not valid YAML: found duplicate key"),
        ("model: !!python/object:os.system {}", "not valid YAML"),
    ],
)
def test_a_wrong_value_says_what_was_asked_and_found(tmp_path, text, expected):
    assert expected in error_of(tmp_path, text)


def test_several_errors_are_reported_together(tmp_path):
    message = error_of(tmp_path, "training: {learning_rte: 1, batch_size: 0}\nrlaif: {top_k: -1}", "model.lora_r=x")
    assert "4 errors" in message
    assert all(name in message for name in ("training.learning_rte", "training.batch_size", "rlaif.top_k", "model.lora_r"))


def test_a_missing_file_and_a_directory_are_usage_errors(tmp_path):
    with pytest.raises(UsageError, match="there is no such file"):
        load_config(tmp_path / "absent.yaml")
    with pytest.raises(UsageError, match="could not be read"):
        load_config(tmp_path)


def test_a_binary_file_is_a_usage_error(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_bytes(b"\x80\x81\x82")
    with pytest.raises(UsageError, match="not UTF-8"):
        load_config(path)


def test_overrides_beat_the_file_and_the_last_one_wins(tmp_path):
    path = written(tmp_path, "training: {learning_rate: 1e-4, batch_size: 2}")
    config = load_config(path, ["training.learning_rate=5e-6", "training.learning_rate=7e-6"])
    assert (config.training.learning_rate, config.training.batch_size) == (7e-6, 2)


def test_overrides_reach_nested_settings_and_free_names():
    config = load_config(
        None,
        [
            "rlaif.reward_shaping.enabled=true",
            "training.lr_scheduler_kwargs.num_cycles=2",
            "reward.custom.own.rewards:Short=0.5",
            "evaluation.baseline_temperatures=[0.2]",
            "data.validation=null",
        ],
    )
    assert config.rlaif.reward_shaping.enabled
    assert config.training.lr_scheduler_kwargs.num_cycles == 2
    assert config.reward.custom == {"own.rewards:Short": 0.5}
    assert config.evaluation.baseline_temperatures == (0.2,)
    assert config.data.validation is None


def test_true_switches_a_section_on_and_keeps_its_other_settings(tmp_path):
    path = written(tmp_path, "rlaif: {reward_shaping: {correctness_bonus: 0.1}}\ntraining: {early_stopping: false}")
    config = load_config(path, ["rlaif.reward_shaping=true"])
    assert config.rlaif.reward_shaping.enabled and config.rlaif.reward_shaping.correctness_bonus == 0.1
    assert not config.training.early_stopping.enabled


def test_a_threshold_is_a_reward_or_a_quantile(tmp_path):
    path = written(tmp_path, "rlaif: {reward_threshold: 0.3}")
    assert load_config(path).rlaif.reward_threshold == 0.3
    assert load_config(path, ["rlaif.reward_threshold.quantile=0.25"]).rlaif.reward_threshold == QuantileThreshold(
        quantile=0.25
    )


@pytest.mark.parametrize("override", ["x", "training=", "=3", "training..seed=1", ".seed=1", "training.seed", ""])
def test_a_malformed_override_shows_the_form(override):
    with pytest.raises(UsageError):
        load_config(None, [override])


def test_an_unknown_key_in_an_override_names_the_nearest():
    with pytest.raises(UsageError, match="did you mean `rlaif.kl_penalty`"):
        load_config(None, ["rlaif.kl_penatly=0.1"])


def test_a_dumped_configuration_loads_as_the_same(tmp_path):
    config = load_config(
        None, ["rlaif.reward_threshold={quantile: 0.25}", "training.learning_rate=5e-6", "reward.custom.a:b=1"]
    )
    dump_config(config, tmp_path / "out.yaml")
    assert load_config(tmp_path / "out.yaml") == config
    assert [path.name for path in tmp_path.iterdir()] == ["out.yaml"]  # nothing temporary is left


def test_dumping_where_nothing_can_be_written_is_a_run_error(tmp_path):
    with pytest.raises(RunError, match="Could not write"):
        dump_config(RunConfig(), tmp_path / "absent" / "out.yaml")


def test_a_branch_changes_only_what_it_names():
    parent = load_config(None, ["training.warmup_steps=5"])
    child = apply_overrides(parent, ["training.learning_rate=5e-6"])
    assert child.training.model_dump() == parent.training.model_dump() | {"learning_rate": 5e-6}
    assert child.rlaif == parent.rlaif


def test_every_setting_can_be_described_and_its_default_is_accepted():
    paths = [setting.path for setting in all_settings()]
    assert len(paths) == len(set(paths)) and "training.lr_scheduler_kwargs.num_cycles" in paths
    assert all(setting.accepts for setting in all_settings())
