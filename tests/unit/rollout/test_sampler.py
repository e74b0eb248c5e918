import math

import torch

from evenkeel.config.stages import SamplingSettings
from evenkeel.rollout.sampler import draw, kept_tokens

# Probabilities 0.5, 0.25, 0.125, 0.125: cumulative 0.5, 0.75, 0.875, 1
LOGITS = torch.log(torch.tensor([[0.5, 0.25, 0.125, 0.125]]))


def drawn(uniform, settings, logits=LOGITS):
    result = draw(logits, torch.tensor([uniform]), settings)
    return result.tokens_R.item(), result.logprobs_R.item()


def test_the_token_is_the_first_whose_cumulative_probability_exceeds_the_number():
    settings = SamplingSettings(1, 1.0, 8)
    assert [drawn(u, settings)[0] for u in (0.0, 0.49, 0.5, 0.74, 0.76, 0.88, 0.9999999)] == [0, 0, 1, 1, 2, 3, 3]
    assert math.isclose(drawn(0.6, settings)[1], math.log(0.25), rel_tol=1e-6)


def test_temperature_sharpens_before_the_draw():
    # At temperature 0.5 the weights are squared: 0.25, 0.0625, 0.015625, 0.015625, sum 0.34375; first share 0.72727
    settings = SamplingSettings(1, 0.5, 8)
    assert drawn(0.72, settings)[0] == 0
    assert drawn(0.73, settings)[0] == 1
    assert math.isclose(drawn(0.1, settings)[1], math.log(0.25 / 0.34375), rel_tol=1e-5)


def test_temperature_zero_takes_the_most_likely_token_whatever_the_number():
    assert [drawn(u, SamplingSettings(1, 0.0, 8))[0] for u in (0.0, 0.99)] == [0, 0]


def test_top_k_renormalises_over_the_kept_tokens():
    token, logprob = drawn(0.99, SamplingSettings(1, 1.0, 8, top_k=2))
    assert token == 1
    assert math.isclose(logprob, math.log(0.25 / 0.75), rel_tol=1e-6)


def test_top_p_keeps_the_token_that_reaches_the_share():
    assert kept_tokens(LOGITS, 0.5, None).tolist() == [[True, False, False, False]]
    assert kept_tokens(LOGITS, 0.6, None).tolist() == [[True, True, False, False]]
    assert kept_tokens(LOGITS, 0.8, None).tolist() == [[True, True, True, False]]


def test_the_full_distribution_has_no_kept_set():
    assert kept_tokens(LOGITS, 1.0, None) is None
    assert kept_tokens(LOGITS, 1.0, 4) is None


def test_a_token_of_probability_zero_is_never_drawn():
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf]])
    for uniform in (0.0, 0.5, 0.99999994):
        assert drawn(uniform, SamplingSettings(1, 1.0, 8), logits)[0] == 1


def test_draws_follow_the_distribution():
    uniforms = (torch.arange(4000) + 0.5) / 4000
    tokens = draw(LOGITS.expand(4000, -1), uniforms, SamplingSettings(1, 1.0, 8)).tokens_R
    assert torch.bincount(tokens, minlength=4).tolist() == [2000, 1000, 500, 500]
