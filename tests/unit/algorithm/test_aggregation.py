"""The three ways to add up tokens, by hand: values [[1, 3], [5, *]] with * padding."""

import math

import torch

from evenkeel.algorithm.aggregation import LossInputs, constant_length_mean, sequence_mean, token_mean


def inputs(*, step_sequences=2, step_tokens=3):
    mask = torch.tensor([[1.0, 1.0], [1.0, 0.0]])
    zeros = torch.zeros(2, 2)
    return LossInputs(zeros, zeros, zeros[0], mask, 0.2, 0.2, step_sequences, step_tokens, max_new_tokens=10)


VALUES = torch.tensor([[1.0, 3.0], [5.0, math.inf]])


def test_by_hand():
    assert sequence_mean(VALUES, inputs()).item() == 3.5  # (4 / 2 + 5 / 1) / 2
    assert token_mean(VALUES, inputs()).item() == 3.0  # 9 / 3
    torch.testing.assert_close(constant_length_mean(VALUES, inputs()), torch.tensor(0.45))  # 9 / (2 * 10)


def test_the_divisors_are_those_of_the_step_and_not_of_the_micro_batch():
    # the same rows in a step of 4 sequences and 9 tokens
    step = inputs(step_sequences=4, step_tokens=9)
    assert sequence_mean(VALUES, step).item() == 1.75
    assert token_mean(VALUES, step).item() == 1.0
    torch.testing.assert_close(constant_length_mean(VALUES, step), torch.tensor(0.225))
