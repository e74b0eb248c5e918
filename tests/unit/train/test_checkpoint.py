import errno
import json

import pytest
import torch

from evenkeel.config.schema import ModelSettings
from evenkeel.errors import RunError, UsageError
from evenkeel.policy.lora import load_policy
from evenkeel.train import checkpoint
from evenkeel.train.step import make_optimizer


@pytest.fixture
def trained(make_policy):
    """A policy and an optimizer after two steps."""
    policy = make_policy(trained=True)
    optimizer = optimizer_of(policy)
    for _ in range(2):
        for _, parameter in policy.trainable():
            parameter.grad = torch.randn_like(parameter)
        for group in optimizer.param_groups:
            group["lr"] = 1e-3
        optimizer.step()
    return policy, optimizer


def optimizer_of(policy):
    return make_optimizer(policy, betas=(0.9, 0.99), epsilon=1e-8, weight_decay=0.0)


def save(directory, trained, step, *, ends_epoch=False, epoch=0):
    return checkpoint.save(directory, *trained, {"step": step}, step=step, epoch=epoch, ends_epoch=ends_epoch)


def test_weights_and_moments_come_back_bit_for_bit(tmp_path, trained):
    policy, optimizer = trained
    saved = save(tmp_path, trained, 2)
    again = load_policy(ModelSettings(adapter=str(saved.weights)), "cpu")
    fresh = optimizer_of(again)
    assert checkpoint.load_into(saved, again, fresh)
    for (name, parameter), (other_name, other) in zip(policy.trainable(), again.trainable(), strict=True):
        assert name == other_name and torch.equal(parameter, other)
        assert all(torch.equal(value, fresh.state[other][key]) for key, value in optimizer.state[parameter].items())
    assert saved.state() == {"step": 2}


def test_nothing_in_a_checkpoint_is_a_pickle(tmp_path, trained):
    saved = save(tmp_path, trained, 2)
    assert {file.suffix for file in saved.path.rglob("*") if file.is_file()} <= {".json", ".safetensors", ".md"}


@pytest.mark.parametrize("harm", ["cut", "flip", "remove", "manifest"])
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(tmp_path, trained, harm):
    save(tmp_path, trained, 10)
    file = save(tmp_path, trained, 20).path / "adapter" / "adapter_model.safetensors"
    content = bytearray(file.read_bytes())
    if harm == "cut":
        file.write_bytes(content[:-100])
    elif harm == "flip":
        content[-1] ^= 1
        file.write_bytes(content)
    elif harm == "remove":
        file.unlink()
    else:
        (file.parents[1] / "manifest.json").unlink()
    words = []
    assert checkpoint.newest_intact(tmp_path, words.append).step == 10
    assert len(words) == 1 and "step-000020" in words[0] and "the one before it" in words[0]


def test_without_any_intact_checkpoint_there_is_a_clear_error(tmp_path, trained):
    (save(tmp_path, trained, 10).path / "state.json").unlink()
    with pytest.raises(UsageError, match="no intact checkpoint"):
        checkpoint.newest_intact(tmp_path, lambda message: None)


def test_a_checkpoint_of_a_later_format_is_not_misread(tmp_path, trained):
    manifest = save(tmp_path, trained, 10).path / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"format": 99}))
    assert "format is 99" in checkpoint.damage(manifest.parent)


def test_a_full_disk_is_an_error_with_advice_and_leaves_the_earlier_ones(tmp_path, trained, monkeypatch):
    save(tmp_path, trained, 10)

    def full(*arguments, **keywords):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(RunError, match="the disk is full"):
        save(tmp_path, trained, 20)
    assert [found.step for found in checkpoint.list_checkpoints(tmp_path)] == [10]
    assert [path.name for path in tmp_path.iterdir()] == ["step-000010"]


def test_pruning_keeps_ends_of_epochs_the_best_and_the_newest_two(tmp_path, trained):
    for step in (5, 10, 15, 20, 25, 30, 35):
        save(tmp_path, trained, step, ends_epoch=step % 10 == 0, epoch=step // 10)
    checkpoint.prune(tmp_path, keep=1, best_step=10)
    # Ends of epochs: 10, 20, 30, of which the last one stays; best 10; newest two 30 and 35
    assert [found.step for found in checkpoint.list_checkpoints(tmp_path)] == [10, 30, 35]


def test_a_grown_adapter_starts_with_new_moments(tmp_path, trained):
    saved = save(tmp_path, trained, 2)
    grown = load_policy(ModelSettings(adapter=str(saved.weights), lora_r=32), "cpu")
    optimizer = optimizer_of(grown)
    assert not checkpoint.load_into(saved, grown, optimizer)
    assert not optimizer.state
