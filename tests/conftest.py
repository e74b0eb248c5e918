"""Parts that many tests need. The student is the embedded one: a real checkpoint, loaded as any other."""

from __future__ import annotations

import pytest
import torch

from evenkeel.config.schema import ModelSettings
from evenkeel.policy.lora import load_policy, lora_layers


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Small tensors run no faster on two threads, and sums then do not depend on the machine."""
    torch.set_num_threads(1)


@pytest.fixture
def make_policy():
    """A fresh policy on the embedded student; `trained=True` moves its adapter away from zero, as training would."""

    def make(*, trained: bool = False, **settings):
        torch.manual_seed(0)
        policy = load_policy(ModelSettings(**settings), "cpu")
        if trained:
            with torch.no_grad():
                for _, layer in lora_layers(policy.model):
                    torch.nn.init.normal_(layer.lora_B["default"].weight, std=0.02)
        return policy

    return make
