"""A real model: the gradient of one step is the same for any micro-batch split, padding and order of the rows."""

import random

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from evenkeel.algorithm.aggregation import AGGREGATIONS, LossInputs
from evenkeel.algorithm.batch import TrainBatch, TrainRow
from evenkeel.algorithm.kl import kl_term
from evenkeel.algorithm.losses import LOSSES

NUM_ROWS = 9


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    size = {"vocab_size": 40, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
    return Qwen2ForCausalLM(Qwen2Config(**size, num_attention_heads=2, num_key_value_heads=1)).double().eval()


def batch(order):
    generator = random.Random(0)
    rows = []
    for index in range(NUM_ROWS):
        prompt = tuple(generator.randrange(40) for _ in range(generator.randint(1, 7)))
        completion = tuple(generator.randrange(40) for _ in range(generator.randint(1, 9)))
        sampled = tuple(-3.7 + 0.3 * generator.random() for _ in completion)
        rows.append(TrainRow(prompt, completion, sampled, advantage=(-1.0) ** index * (1 + index / 4)))
    rows = tuple(rows[index] for index in order)
    return TrainBatch(rows, NUM_ROWS, sum(row.length for row in rows), max_new_tokens=9, pad_token_id=0)


def completion_logprobs(model, micro):
    width = micro.completion_ids_BC.shape[1]
    output = model(input_ids=micro.input_ids_BT, attention_mask=micro.attention_mask_BT, position_ids=micro.position_ids_BT)
    logprobs_BCV = torch.log_softmax(output.logits[:, -width - 1 : -1], dim=-1)
    return logprobs_BCV.gather(2, micro.completion_ids_BC[:, :, None])[:, :, 0]


def step_gradient(model, order, size, loss):
    step = batch(order)
    model.zero_grad()
    for micro in step.micro_batches(size):
        logprobs_BC = completion_logprobs(model, micro)
        inputs = LossInputs(
            logprobs_BC, micro.sampler_logprobs_BC.double(), micro.advantages_B.double(), micro.mask_BC.double(), 0.2, 0.3,
            step.num_sequences, step.num_tokens, step.max_new_tokens,
        )  # fmt: skip
        kl = kl_term(inputs, micro.sampler_logprobs_BC.double(), "k3", AGGREGATIONS[loss])
        (LOSSES[loss](inputs).loss + 0.1 * kl).backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


@pytest.mark.parametrize("loss", LOSSES)
def test_any_split_padding_and_order_give_the_gradient_of_the_whole_step(model, loss):
    whole = step_gradient(model, range(NUM_ROWS), NUM_ROWS, loss)
    shuffled = random.Random(1).sample(range(NUM_ROWS), NUM_ROWS)
    for order, size in [(range(NUM_ROWS), 1), (range(NUM_ROWS), 4), (shuffled, 2), (shuffled, NUM_ROWS)]:
        difference = (step_gradient(model, order, size, loss) - whole).norm() / whole.norm()
        assert difference < 1e-6, (list(order), size)
