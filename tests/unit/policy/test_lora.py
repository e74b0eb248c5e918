import copy

import pytest
import torch
from transformers import AutoModelForCausalLM

from evenkeel.config.schema import ModelSettings
from evenkeel.errors import UsageError
from evenkeel.policy.lora import FoldedCopy, can_fold, grow_adapter, load_policy, lora_layers
from evenkeel.policy.model import embedded_student

IDS = torch.tensor([[5, 77, 130, 9, 260, 31]])


def logits(model):
    model.eval()
    with torch.no_grad():
        return model(input_ids=IDS).logits


def test_the_adapter_is_on_every_linear_layer_but_the_output_head(make_policy):
    layers = {name.rsplit(".", 1)[1] for name, _ in lora_layers(make_policy().model)}
    assert layers == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


def test_a_fresh_adapter_changes_nothing(make_policy):
    base = AutoModelForCausalLM.from_pretrained(embedded_student())
    assert torch.equal(logits(make_policy().model), logits(base))


def test_with_the_adapter_off_the_policy_is_its_base(make_policy):
    policy = make_policy(trained=True)
    base = AutoModelForCausalLM.from_pretrained(embedded_student())
    assert not torch.allclose(logits(policy.model), logits(base), atol=1e-2)
    with policy.reference() as reference:
        assert torch.equal(logits(reference), logits(base))


def test_the_folded_copy_computes_what_the_attached_adapter_computes(make_policy):
    policy = make_policy(trained=True)
    assert can_fold(policy)
    torch.testing.assert_close(logits(FoldedCopy(policy).refresh()), logits(policy.model), atol=2e-5, rtol=1e-5)


def test_folding_again_after_an_update_follows_the_adapter(make_policy):
    policy = make_policy(trained=True)
    folded = FoldedCopy(policy)
    folded.refresh()
    with torch.no_grad():
        lora_layers(policy.model)[3][1].lora_B["default"].weight.mul_(-3.0)
    torch.testing.assert_close(logits(folded.refresh()), logits(policy.model), atol=2e-5, rtol=1e-5)


def test_folding_never_touches_the_base_weights(make_policy):
    policy = make_policy(trained=True)
    before = copy.deepcopy(policy.model.state_dict())
    folded = FoldedCopy(policy)
    for _ in range(20):
        folded.refresh()
    assert all(torch.equal(value, before[name]) for name, value in policy.model.state_dict().items())


@pytest.mark.parametrize(("rank", "alpha"), [(24, 32.0), (32, 32.0), (32, 64.0)])
def test_a_grown_adapter_computes_the_same_function(make_policy, rank, alpha):
    policy = make_policy(trained=True)
    before = logits(policy.model)
    grow_adapter(policy.model, rank, alpha)
    torch.testing.assert_close(logits(policy.model), before, atol=2e-5, rtol=1e-5)
    assert lora_layers(policy.model)[0][1].lora_A["default"].weight.shape[0] == rank


def test_an_adapter_cannot_shrink(make_policy):
    with pytest.raises(UsageError, match="can grow, not shrink"):
        grow_adapter(make_policy().model, 8, 32.0)


def test_a_saved_adapter_is_continued_from_and_grown_on_the_way(make_policy, tmp_path):
    policy = make_policy(trained=True)
    policy.model.save_pretrained(tmp_path / "adapter")
    continued = load_policy(ModelSettings(adapter=str(tmp_path / "adapter")), "cpu")
    assert torch.equal(logits(continued.model), logits(policy.model))
    grown = load_policy(ModelSettings(adapter=str(tmp_path / "adapter"), lora_r=32), "cpu")
    torch.testing.assert_close(logits(grown.model), logits(policy.model), atol=2e-5, rtol=1e-5)
    assert all(parameter.requires_grad for name, parameter in grown.model.named_parameters() if "lora_" in name)


def test_a_directory_without_an_adapter_is_named_in_the_error(tmp_path):
    with pytest.raises(UsageError, match="adapter_config.json"):
        load_policy(ModelSettings(adapter=str(tmp_path)), "cpu")


def test_full_fine_tuning_keeps_a_frozen_base(make_policy):
    policy = make_policy(method="full")
    assert all(parameter.requires_grad for parameter in policy.model.parameters())
    with torch.no_grad():
        policy.model.model.norm.weight.mul_(1.5)
    base = AutoModelForCausalLM.from_pretrained(embedded_student())
    with policy.reference() as reference:
        assert torch.equal(logits(reference), logits(base))
