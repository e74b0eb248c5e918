import math

import pytest
import torch

from evenkeel.algorithm.batch import TrainBatch, TrainRow
from evenkeel.policy import logprobs
from evenkeel.policy.logprobs import completion_statistics, kept_mask, token_entropy

PROMPTS = ((40, 77, 130), (9, 260, 31, 55, 12))
COMPLETIONS = ((61, 62, 63, 1), (70,), (99, 98, 97, 96, 95, 1), (33, 34))


def micro_batch(rows):
    batch = TrainBatch(rows, len(rows), sum(row.length for row in rows), 16, pad_token_id=0)
    (micro,) = batch.micro_batches(len(rows))
    return micro


def rows_of_two_prompts():
    return tuple(TrainRow(PROMPTS[at % 2], ids, (0.0,) * len(ids), 1.0) for at, ids in enumerate(COMPLETIONS))


def by_hand(policy, row, temperature):
    """One row at a time, no padding, no cache: log softmax of the logits one position earlier."""
    with torch.no_grad():
        logits = policy.model(input_ids=torch.tensor([row.prompt_ids + row.completion_ids])).logits[0] / temperature
    table = torch.log_softmax(logits, dim=-1)
    start = len(row.prompt_ids) - 1
    return [table[start + offset, token].item() for offset, token in enumerate(row.completion_ids)]


@pytest.mark.parametrize("shared", [True, False], ids=["shared prompts", "whole rows"])
def test_padding_and_sharing_change_no_log_probability(make_policy, monkeypatch, shared):
    monkeypatch.setattr(logprobs, "_keeps_a_cache", lambda model: shared)
    policy, rows = make_policy(trained=True), rows_of_two_prompts()
    policy.model.eval()
    micro = micro_batch(rows)
    with torch.no_grad():
        found = completion_statistics(policy.model, micro, temperature=0.8).logprobs_BC
    for values, index in zip(found, micro.row_indices, strict=True):
        expected = by_hand(policy, rows[index], 0.8)
        assert values[: len(expected)].tolist() == pytest.approx(expected, abs=2e-5)
        assert values[len(expected) :].eq(0).all()


def test_sharing_prompts_gives_the_same_gradient(make_policy, monkeypatch):
    policy, micro = make_policy(trained=True), micro_batch(rows_of_two_prompts())
    weights = torch.tensor([[0.3, -1.2, 0.7, 0.1, 2.0, -0.4]])
    gradients = []
    for shared in (True, False):
        monkeypatch.setattr(logprobs, "_keeps_a_cache", lambda model, shared=shared: shared)
        policy.model.zero_grad()
        (completion_statistics(policy.model, micro, temperature=1.0).logprobs_BC * weights).sum().backward()
        gradients.append(torch.cat([parameter.grad.flatten() for _, parameter in policy.trainable()]))
    assert (gradients[0] - gradients[1]).norm() < 1e-5 * gradients[1].norm()


def test_completions_of_one_token_need_the_prompt_alone(make_policy):
    policy = make_policy(trained=True)
    policy.model.eval()
    rows = tuple(TrainRow(PROMPTS[0], (token,), (0.0,), 1.0) for token in (61, 62))
    with torch.no_grad():
        found = completion_statistics(policy.model, micro_batch(rows), temperature=1.0).logprobs_BC
    assert found.tolist() == [[pytest.approx(by_hand(policy, row, 1.0)[0], abs=2e-5)] for row in rows]


def test_a_kept_set_renormalises_and_shuts_the_rest_out(make_policy):
    policy = make_policy()
    policy.model.eval()
    free = TrainRow(PROMPTS[0], (61,), (0.0,), 1.0)
    kept = TrainRow(PROMPTS[0], (61,), (0.0,), 1.0, kept_tokens=((61, 62),))
    with torch.no_grad():
        alone = completion_statistics(policy.model, micro_batch((kept,)), temperature=1.0)
    first, second = (by_hand(policy, TrainRow(PROMPTS[0], (token,), (0.0,), 1.0), 1.0)[0] for token in (61, 62))
    # log(p / (p + q)) over the two tokens that could be drawn
    assert alone.logprobs_BC.item() == pytest.approx(first - math.log(math.exp(first) + math.exp(second)), abs=1e-4)
    assert 0 < alone.entropy_BC.item() <= math.log(2) + 1e-6
    assert kept_mask((free.kept_tokens, kept.kept_tokens), torch.Size((2, 1, 100)), torch.device("cpu")).sum(-1).tolist() == [
        [100],
        [2],
    ]


def test_entropy_of_known_distributions():
    # Four equal tokens: log 4. One certain token: 0, though its neighbours are at minus infinity.
    tables = torch.log(torch.tensor([[0.25, 0.25, 0.25, 0.25], [1.0, 0.0, 0.0, 0.0]]))
    assert token_entropy(tables).tolist() == pytest.approx([math.log(4), 0.0])


def test_gradient_checkpointing_runs_whole_rows(make_policy):
    policy = make_policy(gradient_checkpointing=True)
    policy.model.train()
    assert not logprobs._keeps_a_cache(policy.model)
    policy.model.eval()
    assert logprobs._keeps_a_cache(policy.model)


def test_two_threads_give_the_same_gradient_bit_for_bit_every_time(make_policy):
    policy = make_policy(trained=True)
    # 64 rows of one prompt: wherever the work is cut between threads, both add to that prompt's gradient
    rows = tuple(TrainRow(tuple(range(20, 80)), (*range(30, 60), 100 + at), (0.0,) * 31, 1.0) for at in range(64))
    micro = micro_batch(rows)
    before, gradients = torch.get_num_threads(), []
    torch.set_num_threads(2)
    try:
        for _ in range(6):
            policy.model.zero_grad()
            completion_statistics(policy.model, micro, temperature=1.0).logprobs_BC.sin().sum().backward()
            gradients.append(torch.cat([parameter.grad.flatten() for _, parameter in policy.trainable()]))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(gradient, gradients[0]) for gradient in gradients)
