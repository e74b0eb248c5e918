"""The memory estimate against parameter counts of published models and against itself."""

import json
from dataclasses import replace

import pytest

from evenkeel.config.load import load_config
from evenkeel.config.memory import DECODED_ROWS, ModelFacts, estimate_memory, find_model_facts, read_model_facts

QWEN_HALF_BILLION = ModelFacts(896, 24, 151_936, 14, 2, 64, 4864, tied_embeddings=True)
QWEN_7B = ModelFacts(3584, 28, 152_064, 28, 4, 128, 18_944, tied_embeddings=False)
GIB = 2**30


def estimate(*overrides, facts=QWEN_HALF_BILLION):
    config = load_config(None, ["model.name=some/model", *overrides])
    return estimate_memory(config, facts, prompt_tokens=200, num_validation_tasks=0)


def test_parameter_counts_are_those_that_qwen_publishes():
    assert QWEN_HALF_BILLION.num_parameters == pytest.approx(494_032_768, rel=1e-3)
    assert QWEN_7B.num_parameters == pytest.approx(7_615_616_512, rel=1e-3)


def test_the_adapter_has_r_times_in_plus_out_of_every_linear_map():
    # q 896+896, k and v 896+128 each, o 896+896, gate, up and down 896+4864 each: 22,912 a layer and rank
    assert QWEN_HALF_BILLION.num_adapter_parameters(16) == 24 * 16 * 22_912


def test_a_bfloat16_model_weighs_two_bytes_a_parameter_and_its_adapter_sixteen():
    memory = estimate("model.dtype=bfloat16")
    assert memory.weights == pytest.approx(2 * QWEN_HALF_BILLION.num_parameters / GIB)
    assert memory.trainable == pytest.approx(16 * QWEN_HALF_BILLION.num_adapter_parameters(16) / GIB)


def test_full_fine_tuning_keeps_a_frozen_copy_gradients_and_two_moments():
    memory = estimate("model.method=full", "model.dtype=float32")
    assert memory.weights + memory.trainable == pytest.approx(5 * 4 * QWEN_HALF_BILLION.num_parameters / GIB)


@pytest.mark.parametrize(
    ("smaller", "larger", "part"),
    [
        ("training.batch_size=8", "training.batch_size=16", "update"),
        ("model.gradient_checkpointing=true", "model.gradient_checkpointing=false", "update"),
        ("rlaif.max_new_tokens=100", "rlaif.max_new_tokens=200", "sampling"),
        ("model.quantization=4bit", "model.quantization=none", "weights"),
        ("model.lora_r=8", "model.lora_r=16", "trainable"),
    ],
)
def test_what_makes_a_run_heavier(smaller, larger, part):
    assert getattr(estimate(smaller), part) < getattr(estimate(larger), part)


def test_the_total_has_the_larger_of_update_and_sampling_and_not_both():
    memory = estimate()
    assert memory.total == memory.weights + memory.trainable + max(memory.update, memory.sampling)
    assert replace(memory, sampling=memory.update / 2).total == replace(memory, sampling=0.0).total


def test_facts_are_read_from_a_model_directory(tmp_path):
    values = {
        "hidden_size": 896, "num_hidden_layers": 24, "vocab_size": 151_936, "num_attention_heads": 14, "num_key_value_heads": 2,
        "intermediate_size": 4864, "tie_word_embeddings": True,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(values))
    assert find_model_facts(str(tmp_path)) == QWEN_HALF_BILLION  # head_dim = 896 / 14 = 64


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"num_attention_heads": 0, "hidden_size": "x"}'])
def test_a_configuration_of_another_family_gives_no_facts(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    assert read_model_facts(tmp_path / "config.json") is None
    assert find_model_facts("no/such-model-anywhere") is None


def test_the_number_of_rows_decoded_together_is_the_engines():
    hf = pytest.importorskip("evenkeel.rollout.hf")
    assert hf.MAX_ROWS == DECODED_ROWS
