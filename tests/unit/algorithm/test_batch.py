"""Where every token lands, what the step counts, and that the split is repeatable."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evenkeel.algorithm.batch import TrainBatch, TrainRow, pack, pack_all
from evenkeel.records import Completion, CreditedGroup, Outcome, ScoredGroup, ScoredSample, Task, Verdict

PAD = 0


def row(prompt_ids, completion_ids, advantage=1.0, kept_tokens=None):
    logprobs = tuple(-0.5 - position for position in range(len(completion_ids)))
    return TrainRow(tuple(prompt_ids), tuple(completion_ids), logprobs, advantage, kept_tokens)


def batch_of(*rows):
    return TrainBatch(tuple(rows), len(rows), sum(row.length for row in rows), max_new_tokens=8, pad_token_id=PAD)


def credited(prompt_ids, completions, advantages, trains):
    samples = tuple(
        ScoredSample(Completion(tuple(ids), (-0.5,) * len(ids), "", False), "", Verdict(Outcome.PASSED, 1, 1), (), 1.0)
        for ids in completions
    )
    return CreditedGroup(ScoredGroup(Task("t", "", "f"), tuple(prompt_ids), samples), tuple(advantages), tuple(trains), True)


def test_prompts_are_padded_left_and_completions_right():
    (micro,) = batch_of(row([11, 12], [21, 22, 23]), row([13], [24], advantage=-2.0)).micro_batches(2)
    assert micro.row_indices == (0, 1)
    assert micro.input_ids_BT.tolist() == [[11, 12, 21, 22, 23], [PAD, 13, 24, PAD, PAD]]
    assert micro.attention_mask_BT.tolist() == [[1, 1, 1, 1, 1], [0, 1, 1, 0, 0]]
    # the first prompt token is at position 0 whatever the padding before it
    assert micro.position_ids_BT.tolist() == [[0, 1, 2, 3, 4], [0, 0, 1, 1, 1]]
    assert micro.completion_ids_BC.tolist() == [[21, 22, 23], [24, PAD, PAD]]
    assert micro.mask_BC.tolist() == [[1, 1, 1], [1, 0, 0]]
    assert micro.sampler_logprobs_BC.tolist() == [[-0.5, -1.5, -2.5], [-0.5, 0, 0]]
    assert micro.advantages_B.tolist() == [1.0, -2.0]
    assert micro.num_tokens == 4 and micro.kept_tokens is None


def test_a_completion_that_ends_in_the_pad_token_trains_on_it():
    (micro,) = batch_of(row([11], [21, PAD]), row([11], [21, 22, 23])).micro_batches(2)
    assert micro.row_indices == (1, 0)
    assert micro.mask_BC.tolist() == [[1, 1, 1], [1, 1, 0]]


def test_each_micro_batch_is_only_as_wide_as_its_own_longest_prompt_and_completion():
    micros = batch_of(row([1], [2]), row([1, 1, 1], [2, 2, 2, 2]), row([1, 1], [2]), row([1], [2, 2, 2])).micro_batches(2)
    # The prompt with the longest completion first; the rows of one prompt stay together, so row 0 follows row 3
    assert [micro.row_indices for micro in micros] == [(1, 3), (0, 2)]
    assert [tuple(micro.input_ids_BT.shape) for micro in micros] == [(2, 3 + 4), (2, 2 + 1)]


def test_a_prompt_is_stored_once_for_all_its_completions():
    (micro,) = batch_of(row([1, 1], [2]), row([3], [4, 4]), row([1, 1], [5, 5, 5])).micro_batches(8)
    assert micro.row_indices == (2, 0, 1)
    assert micro.prompt_ids_UP.tolist() == [[1, 1], [PAD, 3]]
    assert micro.prompt_of_row_B.tolist() == [0, 0, 1]


def test_equal_lengths_keep_the_order_of_the_rows():
    micros = batch_of(*[row([1], [2, 2]) for _ in range(5)]).micro_batches(2)
    assert [micro.row_indices for micro in micros] == [(0, 1), (2, 3), (4,)]


def test_kept_token_sets_travel_with_their_rows():
    short = row([1], [2], kept_tokens=((2, 3),))
    long = row([1], [2, 4], kept_tokens=((2,), (4, 5)))
    (micro,) = batch_of(short, long).micro_batches(2)
    assert micro.row_indices == (1, 0)
    assert micro.kept_tokens == (((2,), (4, 5)), ((2, 3),))


lengths = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 6)), min_size=1, max_size=12)


@settings(max_examples=30, deadline=None)
@given(lengths=lengths, size=st.integers(1, 13))
def test_every_row_comes_back_whole_from_any_split(lengths, size):
    starts = range(100, 100 * len(lengths) + 1, 100)
    rows = [row(range(i, i + p), range(i + 50, i + 50 + c)) for i, (p, c) in zip(starts, lengths, strict=True)]
    micros = batch_of(*rows).micro_batches(size)
    seen = {}
    for micro in micros:
        for b, index in enumerate(micro.row_indices):
            ids = micro.input_ids_BT[b][micro.attention_mask_BT[b] == 1].tolist()
            positions = micro.position_ids_BT[b][micro.attention_mask_BT[b] == 1].tolist()
            assert positions == list(range(len(ids)))
            assert micro.completion_ids_BC[b][micro.mask_BC[b] == 1].tolist() == list(rows[index].completion_ids)
            seen[index] = ids
    assert seen == {index: [*row.prompt_ids, *row.completion_ids] for index, row in enumerate(rows)}
    assert sum(micro.num_tokens for micro in micros) == sum(row.length for row in rows)


def test_only_samples_that_train_are_packed_and_counted():
    group = credited([1, 2], [[3, 4], [5], [6, 7, 8]], [1.0, -1.0, 0.0], [True, False, True])
    batch = pack([group], pad_token_id=PAD, max_new_tokens=8)
    assert [row.completion_ids for row in batch.rows] == [(3, 4), (6, 7, 8)]
    assert (batch.num_sequences, batch.num_tokens, batch.num_skipped) == (2, 5, 0)


def test_a_skipped_zero_advantage_still_counts_in_the_divisors():
    group = credited([1, 2], [[3, 4], [5], [6, 7, 8]], [1.0, -1.0, 0.0], [True, True, True])
    batch = pack([group], pad_token_id=PAD, max_new_tokens=8, keep_zero_advantages=False)
    assert [row.completion_ids for row in batch.rows] == [(3, 4), (5,)]
    assert (batch.num_sequences, batch.num_tokens, batch.num_skipped) == (3, 6, 1)


def test_a_step_where_nothing_trains_has_no_micro_batches():
    batch = pack([credited([1], [[3]], [0.0], [False])], pad_token_id=PAD, max_new_tokens=8)
    assert batch.micro_batches(4) == [] and batch.num_sequences == 0


def test_measuring_takes_every_sample_in_order():
    group = credited([1, 2], [[3, 4], [5]], [1.0, -1.0], [False, True])
    batch = pack_all([group.group], pad_token_id=PAD, max_new_tokens=8)
    assert [row.completion_ids for row in batch.rows] == [(3, 4), (5,)]
    assert [row.advantage for row in batch.rows] == [0.0, 0.0]


def test_moving_to_a_device_moves_all_tensors_and_nothing_else():
    (micro,) = batch_of(row([1], [2], kept_tokens=((2, 3),))).micro_batches(1)
    moved = micro.to("meta")
    assert moved.input_ids_BT.device == moved.advantages_B.device == moved.mask_BC.device == torch.device("meta")
    assert moved.row_indices == (0,) and moved.kept_tokens == (((2, 3),),)


def test_a_completion_without_a_logprob_per_token_is_our_mistake():
    sample = ScoredSample(Completion((3, 4), (-0.5,), "", False), "", Verdict(Outcome.PASSED, 1, 1), (), 1.0)
    with pytest.raises(AssertionError):
        pack_all([ScoredGroup(Task("t", "", "f"), (1,), (sample,))], pad_token_id=PAD, max_new_tokens=8)
