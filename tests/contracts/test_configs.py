"""Every file in configs/ loads, is possible, and says what it claims."""

from pathlib import Path

import pytest

from evenkeel.config.check import refuse_impossible
from evenkeel.config.load import load_config
from evenkeel.config.schema import RunConfig

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_every_shipped_configuration_loads_and_is_possible(path):
    refuse_impossible(load_config(path))


def test_the_three_configurations_of_the_readme_are_shipped():
    assert {"embedded.yaml", "qwen2.5-coder-lora.yaml", "seed_run.yaml"} <= {path.name for path in CONFIGS}


def test_embedded_yaml_is_the_default():
    assert load_config(next(path for path in CONFIGS if path.name == "embedded.yaml")) == RunConfig()


def test_seed_run_yaml_has_the_settings_of_the_seed():
    config = load_config(next(path for path in CONFIGS if path.name == "seed_run.yaml"))
    training, rlaif = config.training, config.rlaif
    assert (training.learning_rate, training.warmup_steps, training.max_grad_norm) == (1e-5, 100, 1.0)
    assert (training.batch_size, training.gradient_accumulation_steps, training.lr_scheduler_type) == (2, 50, "cosine")
    assert (rlaif.kl_penalty, rlaif.generation_temperature, training.num_epochs) == (0.05, 1.0, 4)
