"""KL estimators by hand and in exact expectation over a small vocabulary, the term of the loss, and the controller."""

import json
import math

import pytest
import torch

from evenkeel.algorithm.aggregation import AGGREGATIONS, LossInputs, constant_length_mean, sequence_mean, token_mean
from evenkeel.algorithm.kl import K3_LINEAR_FROM, KL_ESTIMATORS, KlController, k1, k2, k3, kl_term
from evenkeel.errors import UsageError


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


LOGITS = tensor([0.3, -1.2, 0.9, 0.1])
BASE = torch.log_softmax(tensor([-0.4, 0.5, 0.7, 0.0]), dim=0)


def expected_gradient(estimator):
    """Exact mean, over all tokens with the policy's probabilities, of the estimator's gradient by the logits."""
    logits = LOGITS.clone().requires_grad_()
    policy = torch.log_softmax(logits, dim=0)
    (gradient,) = torch.autograd.grad((policy.detach().exp() * estimator(policy, BASE)).sum(), logits)
    return gradient


def gradient_of_kl(*, reverse):
    logits = LOGITS.clone().requires_grad_()
    policy = torch.log_softmax(logits, dim=0)
    value = (policy.exp() * (policy - BASE)).sum() if reverse else (BASE.exp() * (BASE - policy)).sum()
    return torch.autograd.grad(value, logits)[0]


# --------------------------------------------------------------------------- estimators


def test_estimators_by_hand():
    # policy 0.5, base 0.25: d = log 2 = 0.693147
    policy, base = tensor([0.5]).log(), tensor([0.25]).log()
    assert k1(policy, base).item() == pytest.approx(0.693147, abs=1e-6)
    assert k2(policy, base).item() == pytest.approx(0.240227, abs=1e-6)  # 0.693147^2 / 2
    assert k3(policy, base).item() == pytest.approx(0.193147, abs=1e-6)  # 0.5 - 1 + 0.693147
    # the other way round: d = -log 2
    assert k1(base, policy).item() == pytest.approx(-0.693147, abs=1e-6)
    assert k2(base, policy).item() == pytest.approx(0.240227, abs=1e-6)
    assert k3(base, policy).item() == pytest.approx(0.306853, abs=1e-6)  # 2 - 1 - 0.693147


@pytest.mark.parametrize("estimator", [k1, k3])
def test_k1_and_k3_have_the_kl_as_their_mean(estimator):
    policy = torch.log_softmax(LOGITS, dim=0)
    kl = (policy.exp() * (policy - BASE)).sum()
    torch.testing.assert_close((policy.exp() * estimator(policy, BASE)).sum(), kl)


def test_k1_in_a_loss_has_no_gradient_in_expectation():
    torch.testing.assert_close(expected_gradient(k1), torch.zeros(4, dtype=torch.float64), rtol=0, atol=1e-15)


def test_k2_in_a_loss_has_the_gradient_of_the_kl_from_policy_to_base():
    torch.testing.assert_close(expected_gradient(k2), gradient_of_kl(reverse=True))


def test_k3_in_a_loss_has_the_gradient_of_the_kl_from_base_to_policy():
    torch.testing.assert_close(expected_gradient(k3), gradient_of_kl(reverse=False))
    assert not torch.allclose(gradient_of_kl(reverse=True), gradient_of_kl(reverse=False), atol=1e-2)


@pytest.mark.parametrize("estimator", KL_ESTIMATORS.values())
def test_equal_policies_have_no_kl(estimator):
    assert estimator(BASE, BASE).tolist() == [0.0] * 4


def test_k3_keeps_its_digits_where_the_policies_nearly_agree():
    # d = 1e-3: d^2 / 2 - d^3 / 6 = 4.998e-7; exp(-d) - 1 + d in float32 would give a multiple of 6e-8
    value = k3(torch.tensor([0.0]), torch.tensor([-1e-3])).item()
    assert value == pytest.approx(4.998334e-7, rel=2e-4)


def test_k3_goes_on_along_its_tangent_with_a_gradient_in_the_right_direction():
    policy = torch.tensor([-500.0, -K3_LINEAR_FROM - 1, -K3_LINEAR_FROM + 1e-3], requires_grad=True)
    values = k3(policy, torch.zeros(3))
    assert torch.isfinite(values).all() and values[0] > values[1] > values[2]
    # at 11 nats: e^10 - 1 - 10 for the curve up to 10, and one nat of slope e^10 - 1
    assert values[1].item() == pytest.approx(2 * math.exp(10) - 12, rel=1e-6)
    (gradient,) = torch.autograd.grad(values.sum(), policy)
    assert gradient.tolist() == pytest.approx([1 - math.exp(10), 1 - math.exp(10), 1 - math.exp(10 - 1e-3)], rel=1e-6)


# --------------------------------------------------------------------------- the term of the loss


def inputs():
    logprobs = tensor([[0.5, 0.5], [0.25, 1.0]]).log().requires_grad_()
    mask = tensor([[1, 1], [1, 0]])
    return LossInputs(logprobs, logprobs.detach(), tensor([1.0, -1.0]), mask, 0.2, 0.2, 2, 3, max_new_tokens=10)


BASE_LOGPROBS = torch.cat([tensor([[0.25, 0.5], [0.5, 1.0]]).log()[:, :1], tensor([[math.log(0.5)], [-math.inf]])], dim=1)
# k2: [[log(2)^2 / 2, 0], [log(2)^2 / 2, *]] with log(2)^2 / 2 = 0.240227


@pytest.mark.parametrize(
    ("aggregate", "value"),
    [
        (sequence_mean, 0.240227 * (1 / 2 + 1) / 2),
        (token_mean, 0.240227 * 2 / 3),
        (constant_length_mean, 0.240227 * 2 / 20),
    ],
)
def test_the_term_counts_tokens_like_its_loss(aggregate, value):
    assert kl_term(inputs(), BASE_LOGPROBS, "k2", aggregate).item() == pytest.approx(value, abs=1e-6)


def test_the_gradient_of_the_term_by_hand_and_nothing_from_padding():
    given = inputs()
    (gradient,) = torch.autograd.grad(kl_term(given, BASE_LOGPROBS, "k3", token_mean), given.logprobs_BC)
    # (1 - base / policy) / 3 tokens: policy 0.5, base 0.25: 0.5 / 3; equal: 0; policy 0.25, base 0.5: (1 - 2) / 3
    torch.testing.assert_close(gradient, tensor([[0.5 / 3, 0.0], [-1 / 3, 0.0]]))


def test_k1_is_refused_in_the_loss_with_the_reason():
    with pytest.raises(UsageError, match="no gradient in expectation"):
        kl_term(inputs(), BASE_LOGPROBS, "k1", AGGREGATIONS["grpo"])


def test_the_base_gets_no_gradient():
    base = BASE_LOGPROBS.clone().requires_grad_()
    kl_term(inputs(), base, "k3", token_mean).backward()
    assert base.grad is None


# --------------------------------------------------------------------------- the controller


def test_without_a_target_the_penalty_is_fixed():
    controller = KlController(0.05)
    controller.observe(9.0)
    assert controller.kl_penalty == 0.05


def test_the_penalty_follows_the_error_by_hand():
    controller = KlController(0.1, target_kl=0.05)
    controller.observe(0.055)  # error +10 %: 0.1 * (1 + 0.1 * 0.1) = 0.101
    assert controller.kl_penalty == pytest.approx(0.101)
    controller.observe(0.0)  # error -100 %, clipped to -20 %: 0.101 * 0.98 = 0.09898
    assert controller.kl_penalty == pytest.approx(0.09898)
    controller.observe(0.05)  # on target
    assert controller.kl_penalty == pytest.approx(0.09898)


def test_a_target_that_cannot_be_met_stops_at_a_hundredth_and_a_hundred_times_the_start():
    above, below = KlController(0.1, target_kl=0.05), KlController(0.1, target_kl=0.05)
    for _ in range(400):  # 1.02^400 = 2755
        above.observe(50.0)
        below.observe(0.0)
    assert above.kl_penalty == pytest.approx(10.0) and below.kl_penalty == pytest.approx(0.001)


def test_a_restored_controller_goes_on_exactly():
    unbroken = KlController(0.1, target_kl=0.05)
    for kl in (0.051, 0.02, 0.3):
        unbroken.observe(kl)
    resumed = KlController(0.1, target_kl=0.05)
    resumed.restore(json.loads(json.dumps(unbroken.state())))
    for controller in (unbroken, resumed):
        controller.observe(0.07)
    assert resumed.kl_penalty == unbroken.kl_penalty and resumed.state() == unbroken.state()


def test_a_changed_penalty_in_the_configuration_wins_over_a_restored_state():
    before = KlController(0.1, target_kl=0.05)
    before.observe(1.0)
    for after in (KlController(0.4, target_kl=0.05), KlController(0.4)):
        after.restore(before.state())
        assert after.kl_penalty == 0.4


def test_a_target_needs_a_penalty_to_start_from():
    with pytest.raises(UsageError, match="cannot move it from 0"):
        KlController(0.0, target_kl=0.1)
