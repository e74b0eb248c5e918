import json
import shutil

import pytest
import torch

from evenkeel.config.schema import ModelSettings
from evenkeel.errors import UsageError
from evenkeel.policy.model import embedded_student, end_tokens, load_base, resolve_dtype

CPU = torch.device("cpu")


@pytest.fixture
def copied_student(tmp_path):
    return shutil.copytree(embedded_student(), tmp_path / "student")


def test_the_embedded_student_has_one_to_two_million_parameters_in_under_ten_megabytes():
    model, _ = load_base(ModelSettings(), CPU)
    assert 1e6 <= model.num_parameters() <= 2e6
    assert sum(file.stat().st_size for file in embedded_student().iterdir()) < 10e6
    assert model.config.model_type == "qwen2"


def test_a_missing_directory_says_what_a_model_directory_holds(tmp_path):
    with pytest.raises(UsageError, match="no `config.json`"):
        load_base(ModelSettings(name=str(tmp_path / "absent")), CPU)


def test_a_model_without_a_tokenizer_is_refused(copied_student):
    for file in copied_student.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(UsageError, match="has no tokenizer"):
        load_base(ModelSettings(name=str(copied_student)), CPU)


def test_damaged_weights_are_an_error_with_the_name_of_the_model(copied_student):
    (copied_student / "model.safetensors").write_bytes(b"not safetensors")
    with pytest.raises(UsageError, match="could not be loaded"):
        load_base(ModelSettings(name=str(copied_student)), CPU)


def test_a_model_that_brings_code_along_does_not_get_to_run_it(copied_student):
    config = json.loads((copied_student / "config.json").read_text())
    config["auto_map"] = {"AutoModelForCausalLM": "evil.Model", "AutoConfig": "evil.Config"}
    config["model_type"] = "evil"
    (copied_student / "config.json").write_text(json.dumps(config))
    (copied_student / "evil.py").write_text(f"open({str(copied_student / 'ran')!r}, 'w')\n")
    with pytest.raises(UsageError):
        load_base(ModelSettings(name=str(copied_student)), CPU)
    assert not (copied_student / "ran").exists()


def test_pickled_weights_are_refused(copied_student):
    model, _ = load_base(ModelSettings(name=str(copied_student)), CPU)
    torch.save(model.state_dict(), copied_student / "pytorch_model.bin")
    (copied_student / "model.safetensors").unlink()
    with pytest.raises(UsageError, match="safetensors"):
        load_base(ModelSettings(name=str(copied_student)), CPU)


def test_every_end_token_that_anything_names_counts():
    model, tokenizer = load_base(ModelSettings(), CPU)
    own = tokenizer.eos_token_id
    model.config.eos_token_id = [own, 7]
    model.generation_config.eos_token_id = 9
    assert end_tokens(model, tokenizer) == {own, 7, 9}


def test_a_model_without_any_end_token_is_refused():
    model, tokenizer = load_base(ModelSettings(), CPU)
    model.config.eos_token_id = model.generation_config.eos_token_id = tokenizer.eos_token = None
    with pytest.raises(UsageError, match="end-of-sequence"):
        end_tokens(model, tokenizer)


def test_the_automatic_dtype_is_float32_on_a_cpu():
    assert resolve_dtype("auto", CPU) is torch.float32
    assert resolve_dtype("bfloat16", CPU) is torch.bfloat16
