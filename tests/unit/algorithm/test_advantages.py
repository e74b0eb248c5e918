"""Worked numbers, properties and reductions of the advantages, and what trains."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.algorithm.advantages import (
    KlInReward,
    batch_advantages,
    centred_advantages,
    credit,
    group_advantages,
    raw_advantages,
    reward_threshold,
    rloo_advantages,
    skipping_is_exact,
    with_kl_in_reward,
)
from evenkeel.config.stages import CreditSettings, ObjectiveSettings
from evenkeel.records import Completion, Outcome, ScoredGroup, ScoredSample, Task, Verdict

rewards_of_a_group = st.lists(st.floats(0, 1), min_size=2, max_size=16)
one_group = {"group": group_advantages, "centred": centred_advantages, "rloo": rloo_advantages}


def sample(reward, *, truncated=False, bonus=0.0):
    return ScoredSample(Completion((5, 2), (-0.1, -0.2), "", truncated), "", Verdict(Outcome.PASSED, 1, 1), (), reward, bonus)


def group(*entries):
    samples = tuple(entry if isinstance(entry, ScoredSample) else sample(entry) for entry in entries)
    return ScoredGroup(Task("t", "def f():\n", "f"), (1, 3), samples)


def settings(**changes):
    plain = CreditSettings("centred", 1.0, None, None, None, mask_truncated=True, overlong_penalty=0.0)
    return CreditSettings(**(vars(plain) | changes))


def objective(**changes):
    plain = ObjectiveSettings("grpo", 0.2, 0.2, 0.0, "k3", "loss", None, 0.0, 1.0, 96)
    return ObjectiveSettings(**(vars(plain) | changes))


# --------------------------------------------------------------------------- formulas


def test_group_advantages_by_hand():
    # mean 0.25; deviations 0.75, -0.25 x 3; variance (0.5625 + 3 * 0.0625) / 4 = 0.1875; std 0.4330
    # 0.75 / 0.4330 = 1.7321; -0.25 / 0.4330 = -0.5774
    assert group_advantages([1.0, 0.0, 0.0, 0.0]) == pytest.approx([1.7321, -0.5774, -0.5774, -0.5774], abs=1e-4)


def test_centred_advantages_by_hand():
    assert centred_advantages([1.0, 0.0, 0.0, 0.0]) == [0.75, -0.25, -0.25, -0.25]  # mean 0.25


def test_rloo_advantages_by_hand():
    # the others' means: 0, 1/3, 1/3, 1/3
    assert rloo_advantages([1.0, 0.0, 0.0, 0.0]) == pytest.approx([1.0, -1 / 3, -1 / 3, -1 / 3])


def test_batch_advantages_by_hand():
    # rewards 1, 1, 1, 0.2: mean 0.8; deviations 0.2, 0.2, 0.2, -0.6; variance (3 * 0.04 + 0.36) / 4 = 0.12; std 0.3464
    # 0.2 / 0.3464 = 0.5774; -0.6 / 0.3464 = -1.7321: the first group is all equal and is still pushed up
    values = batch_advantages([[1.0, 1.0], [1.0, 0.2]])
    assert values[0] == pytest.approx([0.5774, 0.5774], abs=1e-4)
    assert values[1] == pytest.approx([0.5774, -1.7321], abs=1e-4)


def test_batch_advantages_of_unequal_groups_keep_their_shape():
    # mean 0.5, std 0.5
    values = batch_advantages([[1.0], [], [0.0, 1.0, 0.0]])
    assert [[round(value, 4) for value in group] for group in values] == [[1.0], [], [-1.0, 1.0, -1.0]]


def test_raw_advantages_are_the_weighted_rewards():
    assert raw_advantages([0.0, 0.5, 1.0], reward_weight=3.0) == [0.0, 1.5, 3.0]


def test_kl_in_the_reward_charges_each_nat():
    assert with_kl_in_reward([0.9, 0.9], [4.0, 0.0], kl_penalty=0.1) == pytest.approx([0.5, 0.9])  # 0.9 - 0.1 * 4


@pytest.mark.parametrize("name", one_group)
@pytest.mark.parametrize("noise", [0.0, 1e-16, 1e-9, 1e-7])
def test_rewards_that_differ_by_rounding_give_no_signal(name, noise):
    assert one_group[name]([0.3, 0.3 + noise, 0.3 - noise, 0.3]) == [0.0, 0.0, 0.0, 0.0]


def test_ten_equal_judge_scores_have_no_signal_although_their_float_mean_is_off():
    rewards = [0.1] * 10  # 0.1 summed ten times is 0.9999999999999999
    assert sum(rewards) / 10 != 0.1
    assert group_advantages(rewards) == [0.0] * 10


def test_the_smallest_meaningful_difference_still_counts():
    # one test of 1000: deviations +-0.0005, std 0.0005, 0.0005 / (0.0005 + 1e-6) = 0.998
    assert group_advantages([0.5, 0.501]) == pytest.approx([-0.998, 0.998], abs=1e-3)


def test_a_single_sample_has_nothing_to_compare_with():
    assert group_advantages([0.7]) == centred_advantages([0.7]) == rloo_advantages([0.7]) == [0.0]


# --------------------------------------------------------------------------- properties and reductions


@pytest.mark.parametrize("name", one_group)
@given(rewards=rewards_of_a_group, seed=st.integers(0, 99))
def test_permuting_the_samples_permutes_the_advantages_exactly(name, rewards, seed):
    order = list(range(len(rewards)))
    random.Random(seed).shuffle(order)
    values = one_group[name](rewards)
    assert one_group[name]([rewards[index] for index in order]) == [values[index] for index in order]


@pytest.mark.parametrize("name", one_group)
@given(rewards=rewards_of_a_group)
def test_advantages_of_a_group_sum_to_zero(name, rewards):
    assert math.fsum(one_group[name](rewards)) == pytest.approx(0, abs=1e-6)


@given(rewards=rewards_of_a_group)
def test_group_advantages_never_exceed_the_bound_of_one_against_all(rewards):
    # one winner among K has the largest possible: sqrt(K - 1)
    assert max(map(abs, group_advantages(rewards))) <= math.sqrt(len(rewards) - 1) + 1e-6


@given(rewards=rewards_of_a_group)
def test_rloo_is_centred_times_k_over_k_minus_one(rewards):
    factor = len(rewards) / (len(rewards) - 1)
    assert rloo_advantages(rewards) == pytest.approx([factor * value for value in centred_advantages(rewards)])


@given(rewards=rewards_of_a_group)
def test_batch_over_one_group_is_the_group_advantage(rewards):
    assert batch_advantages([rewards]) == [group_advantages(rewards)]


# --------------------------------------------------------------------------- credit


@pytest.mark.parametrize(
    ("advantage", "expected"),
    [
        ("group", (1.0, -1.0)),  # deviations +-0.5, std 0.5
        ("centred", (0.5, -0.5)),
        ("rloo", (1.0, -1.0)),
        ("batch", (1.0, -1.0)),
        ("none", (2.0, 0.0)),  # reward_weight 2
    ],
)
def test_credit_uses_the_advantage_that_was_asked_for(advantage, expected):
    (credited,) = credit([group(1.0, 0.0)], settings(advantage=advantage, reward_weight=2.0))
    assert credited.advantages == pytest.approx(expected, abs=1e-5)
    assert credited.trains == (True, True) and credited.has_signal


def test_an_unscored_sample_is_in_no_baseline_and_does_not_train():
    (credited,) = credit([group(1.0, None, 0.0)], settings())
    assert credited.advantages == (0.5, 0.0, -0.5)  # mean of 1 and 0, not of 1, 0, 0
    assert credited.trains == (True, False, True)


def test_a_group_without_any_score_has_no_signal_and_does_not_fail():
    for advantage in ("group", "centred", "rloo", "batch", "none"):
        (credited,) = credit([group(None, None)], settings(advantage=advantage, threshold_quantile=0.25))
        assert credited.advantages == (0.0, 0.0) and credited.trains == (False, False) and not credited.has_signal


def test_a_truncated_sample_counts_in_the_mean_but_does_not_train():
    scored = group(1.0, sample(0.0, truncated=True))
    (masked,) = credit([scored], settings(mask_truncated=True))
    (unmasked,) = credit([scored], settings(mask_truncated=False))
    assert masked.advantages == unmasked.advantages == (0.5, -0.5)
    assert masked.trains == (True, False) and unmasked.trains == (True, True)


def test_bonus_and_overlong_penalty_enter_the_advantages_only():
    scored = group(sample(0.5, bonus=0.25), sample(0.5, truncated=True))
    (credited,) = credit([scored], settings(overlong_penalty=0.25, mask_truncated=False, threshold=0.5))
    assert credited.advantages == (0.25, -0.25)  # 0.75 and 0.25, mean 0.5
    assert credited.trains == (True, True)  # both rewards are 0.5, not below the threshold


def test_kl_in_the_reward_moves_the_advantages_and_not_the_threshold():
    kl = KlInReward(kl_penalty=0.1, nats=((2.0, 0.0, 9.0),))
    (credited,) = credit([group(0.5, 0.5, None)], settings(threshold=0.5), kl_in_reward=kl)
    assert credited.advantages == pytest.approx((-0.1, 0.1, 0.0))  # 0.3 and 0.5, mean 0.4
    assert credited.trains == (True, True, False)


def test_the_threshold_applies_to_rewards_after_the_advantages_without_centring_again():
    (credited,) = credit([group(1.0, 0.8, 0.0)], settings(threshold=0.3))
    assert credited.advantages == pytest.approx((0.4, 0.2, -0.6))  # mean 0.6: both survivors are still pushed up
    assert credited.trains == (True, True, False)


def test_a_reward_equal_to_the_threshold_trains():
    (credited,) = credit([group(0.3, 0.2)], settings(threshold=0.3))
    assert credited.trains == (True, False)


def test_the_bottom_quarter_is_taken_over_the_whole_step():
    groups = [group(0.9, 0.8, 0.7, 0.6), group(0.5, 0.4, 0.2, 0.1)]
    first, second = credit(groups, settings(threshold_quantile=0.25))
    assert first.trains == (True,) * 4
    assert second.trains == (True, True, False, False)  # floor(0.25 * 8) = 2 lowest


def test_ties_at_the_quantile_all_stay():
    assert reward_threshold([0.0, 0.0, 0.0, 1.0], settings(threshold_quantile=0.25)) == 0.0
    (credited,) = credit([group(0.0, 0.0, 0.0, 1.0)], settings(threshold_quantile=0.25))
    assert credited.trains == (True,) * 4


def test_a_quantile_is_not_off_by_one_through_float_rounding():
    # 0.29 * 100 is 28.999999999999996; the 29 lowest of 0 .. 99 go
    assert reward_threshold([float(index) for index in range(100)], settings(threshold_quantile=0.29)) == 29.0


def test_best_of_n_keeps_the_advantages_and_breaks_ties_by_the_lower_index():
    (credited,) = credit([group(0.0, 1.0, 1.0, 0.4)], settings(keep_best=1))
    assert credited.trains == (False, True, False, False)
    assert credited.advantages == pytest.approx((-0.6, 0.4, 0.4, -0.2))  # mean 0.6, of all four
    (two,) = credit([group(0.0, 1.0, 0.4, 0.4)], settings(keep_best=2))
    assert two.trains == (False, True, True, False)


def test_best_of_n_passes_over_what_may_not_train():
    scored = group(sample(1.0, truncated=True), None, 0.6, 0.2)
    (credited,) = credit([scored], settings(keep_best=1))
    assert credited.trains == (False, False, True, False)


def test_best_of_n_picks_by_the_plain_reward_without_bonus():
    (credited,) = credit([group(sample(0.5, bonus=0.5), 0.6)], settings(keep_best=1))
    assert credited.trains == (False, True)


def test_equal_rewards_give_no_signal():
    (credited,) = credit([group(0.4, 0.4 + 1e-10)], settings(advantage="group"))
    assert credited.trains == (True, True) and not credited.has_signal


def test_a_group_whose_only_advantages_sit_on_samples_that_do_not_train_has_no_signal():
    scored = group(sample(1.0, truncated=True), 0.5, sample(0.0, truncated=True))
    (credited,) = credit([scored], settings())
    assert credited.advantages == (0.5, 0.0, -0.5) and credited.trains == (False, True, False)
    assert not credited.has_signal


def test_a_loss_without_advantages_trains_on_a_selected_sample_of_advantage_zero():
    (credited,) = credit([group(0.4, 0.4)], settings(keep_best=1), uses_advantages=False)
    assert credited.advantages == (0.0, 0.0) and credited.trains == (True, False)
    assert credited.has_signal


def test_with_batch_advantages_a_group_of_equal_rewards_has_signal():
    first, second = credit([group(1.0, 1.0), group(0.0, 0.0)], settings(advantage="batch"))
    assert first.has_signal and second.has_signal


def test_without_a_baseline_only_zero_rewards_have_no_signal():
    right, wrong = credit([group(0.4, 0.4), group(0.0, 0.0)], settings(advantage="none"))
    assert right.has_signal and not wrong.has_signal


# --------------------------------------------------------------------------- skipping


def test_zero_advantages_may_be_skipped_only_where_nothing_else_pulls_on_the_tokens():
    assert skipping_is_exact(objective(), kl_penalty=0.0)
    assert skipping_is_exact(objective(kl_placement="reward"), kl_penalty=0.1)
    assert not skipping_is_exact(objective(), kl_penalty=0.1)
    assert not skipping_is_exact(objective(entropy_bonus=0.01), kl_penalty=0.0)
    assert not skipping_is_exact(objective(loss="best_of_n"), kl_penalty=0.0)
