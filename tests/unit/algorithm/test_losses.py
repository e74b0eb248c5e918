"""Values and gradients of every loss against numbers worked by hand, reductions between losses, and properties.

The hand case, called CASE below: two sequences of 3 columns, the second has one token of padding (*).

    b  A    r (t = 0, 1, 2)    pi                   clip_low 0.2, clip_high 0.3: bounds 0.8 and 1.3
    0   2   1.0  1.5  0.5      log 0.5, 0.3, 0.2
    1  -1   1.0  0.5   *       log 0.4, 0.1

    minus the surrogate, and its gradient by pi (d r / d pi = r):
    0   r = 1.0: -2          -2 * 1.0 = -2
        r = 1.5: -2 * 1.3 = -2.6, clipped, 0
        r = 0.5: -2 * 0.5 = -1    -2 * 0.5 = -1       (below 0.8, but A > 0: not clipped)
    1   r = 1.0: 1            1
        r = 0.5: 0.8, clipped, 0                       (A < 0, below 0.8)
"""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evenkeel.algorithm.aggregation import AGGREGATIONS, LossInputs
from evenkeel.algorithm.losses import DUAL_CLIP_RATIO, LOSSES, best_of_n, cispo, dapo, dr_grpo, grpo, gspo, reinforce

CLIPPED = ["grpo", "dr_grpo", "dapo", "gspo", "cispo"]


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


def make(ratios, probabilities, advantages, mask=None, *, clip_low=0.2, clip_high=0.3, max_new_tokens=10):
    logprobs = tensor(probabilities).log().requires_grad_()
    mask = torch.ones_like(logprobs) if mask is None else tensor(mask)
    old = logprobs.detach() - tensor(ratios).log()
    counts = (len(advantages), int(mask.sum()), max_new_tokens)
    return LossInputs(logprobs, old, tensor(advantages), mask, clip_low, clip_high, *counts)


def case():
    return make([[1.0, 1.5, 0.5], [1.0, 0.5, 1.0]], [[0.5, 0.3, 0.2], [0.4, 0.1, 1.0]], [2.0, -1.0], [[1, 1, 1], [1, 1, 0]])


def random_inputs(lengths, seed, *, spread=0.3, clip_low=0.2, clip_high=0.3, max_new_tokens=8):
    """Ratios around 1 by exp(spread * normal), advantages normal."""
    generator = torch.Generator().manual_seed(seed)
    shape = (len(lengths), max(lengths))
    logprobs = -torch.rand(shape, generator=generator, dtype=torch.float64) * 3
    old = logprobs + spread * torch.randn(shape, generator=generator, dtype=torch.float64)
    advantages = torch.randn(len(lengths), generator=generator, dtype=torch.float64)
    mask = (torch.arange(max(lengths))[None, :] < torch.tensor(lengths)[:, None]).double()
    counts = (len(lengths), sum(lengths), max_new_tokens)
    return LossInputs(logprobs.requires_grad_(), old, advantages, mask, clip_low, clip_high, *counts)


def gradient(loss, inputs):
    (gradient_BC,) = torch.autograd.grad(loss(inputs).loss, inputs.logprobs_BC)
    return gradient_BC


def check(loss, inputs, *, value, by_logprob, clipped):
    result = loss(inputs)
    assert result.loss.item() == pytest.approx(value, abs=1e-6)
    assert int(result.clipped_tokens) == clipped
    torch.testing.assert_close(gradient(loss, inputs), tensor(by_logprob))


# --------------------------------------------------------------------------- by hand


def test_grpo_by_hand():
    # value: ((-2 - 2.6 - 1) / 3 + (1 + 0.8) / 2) / 2 = (-1.8667 + 0.9) / 2 = -0.48333
    # gradient: row 0 divided by 3 * 2, row 1 by 2 * 2
    check(grpo, case(), value=-5.6 / 6 + 0.45, by_logprob=[[-2 / 6, 0, -1 / 6], [1 / 4, 0, 0]], clipped=2)


def test_dr_grpo_by_hand():
    # value: (-5.6 + 1.8) / (2 sequences * 10) = -0.19; gradient divided by 20
    check(dr_grpo, case(), value=-0.19, by_logprob=[[-0.1, 0, -0.05], [0.05, 0, 0]], clipped=2)


def test_dapo_by_hand():
    # value: (-5.6 + 1.8) / 5 tokens = -0.76; gradient divided by 5
    check(dapo, case(), value=-0.76, by_logprob=[[-0.4, 0, -0.2], [0.2, 0, 0]], clipped=2)


def test_gspo_by_hand():
    # s_0 = (1 * 1.5 * 0.5)^(1/3) = 0.75^(1/3) = 0.908560, inside the bounds; s_1 = sqrt(0.5) = 0.707107 < 0.8, A < 0: clipped
    # value: (-2 * 0.908560 + 0.8) / 2 = -0.508560
    # gradient by each pi of row 0: -2 * s_0 / 3 / 2 = -0.302853; row 1: 0. Both tokens of row 1 count as clipped.
    s_0 = 0.75 ** (1 / 3)
    check(gspo, case(), value=-s_0 + 0.4, by_logprob=[[-s_0 / 3] * 3, [0, 0, 0]], clipped=2)


def test_cispo_by_hand():
    # weights: 1, 1.3 (clipped), 0.8 (clipped) | 1, 0.8 (clipped); divided by 5 tokens
    # value: -(2 * (log 0.5 + 1.3 log 0.3 + 0.8 log 0.2) - (log 0.4 + 0.8 log 0.1)) / 5
    #      = -(2 * (-0.693147 - 1.565166 - 1.287550) + 0.916291 + 1.842068) / 5 = -(-7.091726 + 2.758359) / 5 = 0.866673
    # gradient: -weight * A / 5; clipped tokens keep theirs
    check(cispo, case(), value=0.866673, by_logprob=[[-2 / 5, -2.6 / 5, -1.6 / 5], [1 / 5, 0.8 / 5, 0]], clipped=3)


def test_reinforce_by_hand():
    # value: (-2 * (log 0.5 + log 0.3 + log 0.2) / 3 + (log 0.4 + log 0.1) / 2) / 2
    #      = (2 * 3.506558 / 3 - 3.218876 / 2) / 2 = (2.337705 - 1.609438) / 2 = 0.364134
    # gradient: -A / L_b / 2
    check(reinforce, case(), value=0.364134, by_logprob=[[-1 / 3] * 3, [1 / 4, 1 / 4, 0]], clipped=0)


def test_best_of_n_by_hand():
    # value: (3.506558 / 3 + 3.218876 / 2) / 2 = (1.168853 + 1.609438) / 2 = 1.389145; gradient: -1 / L_b / 2
    check(best_of_n, case(), value=1.389145, by_logprob=[[-1 / 6] * 3, [-1 / 4, -1 / 4, 0]], clipped=0)


def test_best_of_n_ignores_advantages():
    inputs = replace(case(), advantages_B=tensor([0.0, 0.0]))
    assert best_of_n(inputs).loss.item() == best_of_n(case()).loss.item() > 0


@pytest.mark.parametrize(
    ("ratio", "advantage", "value", "slope", "clipped"),
    [
        (1.5, 1.0, -1.3, 0.0, 1),  # above 1.3: clipped
        (0.5, 1.0, -0.5, -0.5, 0),  # a good token that got rarer is brought back
        (1.5, -1.0, 1.5, 1.5, 0),  # a bad token that got likelier is pushed down
        (0.5, -1.0, 0.8, 0.0, 1),  # below 0.8: clipped
        (2.9, -1.0, 2.9, 2.9, 0),
        (9.0, -1.0, 3.0, 0.0, 1),  # beyond 3: dual clip
        (9.0, 0.0, 0.0, 0.0, 0),  # no advantage: nothing to clip
    ],
)
def test_one_token_on_each_side_of_the_bounds(ratio, advantage, value, slope, clipped):
    check(grpo, make([[ratio]], [[0.05]], [advantage]), value=value, by_logprob=[[slope]], clipped=clipped)


def test_the_dual_clip_lies_above_a_wide_upper_bound():
    assert 1 + 4.0 > DUAL_CLIP_RATIO
    check(grpo, make([[4.5]], [[0.05]], [-1.0], clip_high=4.0), value=4.5, by_logprob=[[4.5]], clipped=0)


@pytest.mark.parametrize("name", CLIPPED)
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_a_huge_ratio_in_float32_stays_finite_and_bounded(name, advantage):
    logprobs = torch.tensor([[-0.1]], requires_grad=True)
    inputs = LossInputs(logprobs, torch.tensor([[-200.0]]), torch.tensor([advantage]), torch.ones(1, 1), 0.2, 0.3, 1, 1, 1)
    assert abs(LOSSES[name](inputs).loss.item()) <= DUAL_CLIP_RATIO
    assert gradient(LOSSES[name], inputs).abs().max() <= DUAL_CLIP_RATIO


# --------------------------------------------------------------------------- reductions


def test_dapo_with_equal_lengths_is_grpo():
    inputs = random_inputs([4, 4, 4], seed=1, clip_high=0.2)
    assert dapo(inputs).loss.item() == pytest.approx(grpo(inputs).loss.item())
    torch.testing.assert_close(gradient(dapo, inputs), gradient(grpo, inputs))


def test_dr_grpo_with_all_lengths_at_the_limit_is_grpo():
    inputs = random_inputs([8, 8, 8], seed=2, max_new_tokens=8)
    assert dr_grpo(inputs).loss.item() == pytest.approx(grpo(inputs).loss.item())
    torch.testing.assert_close(gradient(dr_grpo, inputs), gradient(grpo, inputs))


def test_gspo_on_sequences_of_one_token_is_grpo():
    inputs = random_inputs([1, 1, 1, 1, 1, 1], seed=3, spread=0.8)
    assert gspo(inputs).loss.item() == pytest.approx(grpo(inputs).loss.item())
    assert int(gspo(inputs).clipped_tokens) == int(grpo(inputs).clipped_tokens) > 0
    torch.testing.assert_close(gradient(gspo, inputs), gradient(grpo, inputs))


@pytest.mark.parametrize("loss", [grpo, gspo])
def test_on_policy_the_gradient_is_that_of_reinforce(loss):
    inputs = random_inputs([5, 2, 3], seed=4, spread=0.0)
    torch.testing.assert_close(gradient(loss, inputs), gradient(reinforce, inputs))


def test_on_policy_cispo_has_the_gradient_of_dapo():
    inputs = random_inputs([5, 2, 3], seed=4, spread=0.0)
    torch.testing.assert_close(gradient(cispo, inputs), gradient(dapo, inputs))


def test_reinforce_with_advantage_one_is_best_of_n():
    inputs = replace(random_inputs([5, 2, 3], seed=5), advantages_B=torch.ones(3, dtype=torch.float64))
    assert reinforce(inputs).loss.item() == pytest.approx(best_of_n(inputs).loss.item())


@pytest.mark.parametrize("name", LOSSES)
def test_the_table_of_aggregations_tells_how_each_loss_counts_tokens(name):
    inputs = replace(random_inputs([5, 2, 3], seed=6, spread=0.0), advantages_B=torch.ones(3, dtype=torch.float64))
    # on-policy with advantage 1 every loss has the gradient of minus the aggregated log-probability
    (aggregated,) = torch.autograd.grad(-AGGREGATIONS[name](inputs.logprobs_BC, inputs), inputs.logprobs_BC)
    torch.testing.assert_close(gradient(LOSSES[name], inputs), aggregated)


# --------------------------------------------------------------------------- properties

lengths = st.lists(st.integers(1, 6), min_size=1, max_size=8)


def rows_of(inputs, rows, width):
    """Some rows as a micro-batch of the same step, cut to their own width."""
    tensors = {name: getattr(inputs, name)[rows, :width] for name in ("logprobs_BC", "old_logprobs_BC", "mask_BC")}
    return replace(inputs, advantages_B=inputs.advantages_B[rows], **tensors)


@pytest.mark.parametrize("name", LOSSES)
@settings(max_examples=15, deadline=None)
@given(lengths=lengths, seed=st.integers(0, 999), size=st.integers(1, 5))
def test_the_sum_over_any_micro_batches_is_the_loss_of_the_whole_step(name, lengths, seed, size):
    whole = random_inputs(lengths, seed, spread=0.6)
    order = torch.randperm(len(lengths), generator=torch.Generator().manual_seed(seed)).tolist()
    splits = [order[start : start + size] for start in range(0, len(order), size)]
    parts = [LOSSES[name](rows_of(whole, rows, max(lengths[row] for row in rows))) for rows in splits]
    assert sum(part.loss for part in parts).item() == pytest.approx(LOSSES[name](whole).loss.item(), abs=1e-12)
    assert sum(int(part.clipped_tokens) for part in parts) == int(LOSSES[name](whole).clipped_tokens)
    (summed,) = torch.autograd.grad(sum(part.loss for part in parts), whole.logprobs_BC)
    torch.testing.assert_close(summed, gradient(LOSSES[name], whole), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("rubbish", [0.0, -math.inf, math.inf, math.nan, 1e30])
def test_what_stands_on_padding_changes_neither_value_nor_gradient(name, rubbish):
    inputs = random_inputs([3, 1], seed=7)
    mask = torch.nn.functional.pad(inputs.mask_BC, (0, 3))

    def widen(values):
        wide = torch.nn.functional.pad(values.detach(), (0, 3))
        return torch.where(mask > 0, wide, torch.full_like(wide, rubbish))

    logprobs, old = widen(inputs.logprobs_BC).requires_grad_(), widen(inputs.old_logprobs_BC)
    wide_inputs = replace(inputs, logprobs_BC=logprobs, old_logprobs_BC=old, mask_BC=mask)
    # to rounding only: a wider row is summed in another order
    assert LOSSES[name](wide_inputs).loss.item() == pytest.approx(LOSSES[name](inputs).loss.item(), rel=1e-14)
    assert int(LOSSES[name](wide_inputs).clipped_tokens) == int(LOSSES[name](inputs).clipped_tokens)
    torch.testing.assert_close(gradient(LOSSES[name], wide_inputs)[:, :3] * inputs.mask_BC, gradient(LOSSES[name], inputs))
    assert gradient(LOSSES[name], wide_inputs)[mask == 0].abs().sum() == 0


@pytest.mark.parametrize("name", sorted(set(LOSSES) - {"best_of_n"}))
def test_a_row_of_advantage_zero_adds_exactly_nothing(name):
    inputs = random_inputs([3, 2, 4], seed=8)
    inputs = replace(inputs, advantages_B=inputs.advantages_B * tensor([1.0, 0.0, 1.0]))
    without = rows_of(inputs, [0, 2], 4)  # the divisors still count it
    assert LOSSES[name](without).loss.item() == pytest.approx(LOSSES[name](inputs).loss.item(), rel=1e-14)
    assert gradient(LOSSES[name], inputs)[1].abs().sum() == 0


@pytest.mark.parametrize("name", CLIPPED)
def test_the_old_policy_gets_no_gradient(name):
    inputs = random_inputs([3, 2], seed=9)
    old = inputs.old_logprobs_BC.clone().requires_grad_()
    LOSSES[name](replace(inputs, old_logprobs_BC=old)).loss.backward()
    assert old.grad is None


@pytest.mark.parametrize("bound", ["clip_low", "clip_high"])
@pytest.mark.parametrize("name", CLIPPED)
def test_each_bound_changes_the_loss(name, bound):
    inputs = make([[1.5], [0.5]], [[0.3], [0.3]], [1.0, -1.0])  # both tokens clipped at bounds 0.8 and 1.3
    wider = replace(inputs, **{bound: 0.6})  # 0.4 or 1.6: one of them is not
    assert LOSSES[name](wider).loss.item() != LOSSES[name](inputs).loss.item()
    assert int(LOSSES[name](wider).clipped_tokens) == 1


def test_tensors_of_different_shapes_are_our_mistake():
    with pytest.raises(AssertionError):
        replace(case(), advantages_B=tensor([1.0]))
