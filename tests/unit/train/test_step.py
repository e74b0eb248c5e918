import math
import random
from dataclasses import replace

import pytest
import torch

from evenkeel.algorithm.batch import TrainBatch, TrainRow
from evenkeel.config.stages import ObjectiveSettings
from evenkeel.distributed.world import World
from evenkeel.errors import RunError
from evenkeel.train.step import RolloutMemory, StepSettings, Updater, make_optimizer

OBJECTIVE = ObjectiveSettings("grpo", 0.2, 0.2, 0.1, "k3", "loss", None, 0.01, 1.0, 64)
STEP = StepSettings(learning_rate=1e-3, kl_penalty=0.1, max_grad_norm=1e9, micro_batch_size=64)


def rows(policy, count=10):
    """Rows of different prompts, lengths and advantages, with plausible sampler log-probabilities."""
    rng = random.Random(1)
    texts = [
        (f'def solve(xs):\n    """Add {n} to each item."""\n' + "\n" * (n % 3), "    return xs\n" + "    xs = xs[1:]\n" * n)
        for n in range(count)
    ]
    encode = lambda text: tuple(policy.tokenizer.encode(text, add_special_tokens=False))  # noqa: E731
    return tuple(
        TrainRow(encode(prompt), encode(body), tuple(-rng.random() for _ in encode(body)), rng.uniform(-1, 1))
        for prompt, body in texts
    )


def batch_of(train_rows, pad_id=0):
    return TrainBatch(train_rows, len(train_rows), sum(row.length for row in train_rows), 64, pad_id)


def updater_for(policy, objective=OBJECTIVE):
    return Updater(
        policy, make_optimizer(policy, betas=(0.9, 0.99), epsilon=1e-8, weight_decay=0.0), objective, World(cpu=True)
    )


def gradient(policy, batch, step, objective=OBJECTIVE):
    """The gradient that an update applies, read before the optimizer clears it."""
    updater, seen = updater_for(policy, objective), {}
    apply = updater.optimizer.step
    updater.optimizer.step = lambda: seen.update({name: p.grad.clone() for name, p in policy.trainable() if p.grad is not None})
    report = updater.update(batch, step, RolloutMemory())
    updater.optimizer.step = apply
    return seen, report


def assert_same_gradient(one, other, tolerance=1e-5):
    assert one.keys() == other.keys() and one
    size = math.sqrt(sum(g.square().sum().item() for g in one.values()))
    difference = math.sqrt(sum((one[name] - other[name]).square().sum().item() for name in one))
    assert difference <= tolerance * size, difference / size


@pytest.mark.parametrize("loss", ["grpo", "dr_grpo", "dapo", "gspo", "cispo", "reinforce", "best_of_n"])
def test_the_gradient_does_not_depend_on_the_micro_batch_split(make_policy, loss):
    policy = make_policy(trained=True)
    batch, objective = batch_of(rows(policy)), replace(OBJECTIVE, loss=loss)
    whole, whole_report = gradient(policy, batch, STEP, objective)
    for size in (1, 3, 7):
        split, report = gradient(policy, batch, replace(STEP, micro_batch_size=size), objective)
        assert_same_gradient(whole, split)
        assert report.loss == pytest.approx(whole_report.loss, rel=1e-4, abs=1e-6)
        assert report.kl_to_reference == pytest.approx(whole_report.kl_to_reference, rel=1e-4)


def test_the_gradient_does_not_depend_on_order_or_padding(make_policy):
    policy = make_policy(trained=True)
    train_rows = rows(policy)
    whole, _ = gradient(policy, batch_of(train_rows), STEP)
    shuffled = list(train_rows)
    random.Random(0).shuffle(shuffled)
    assert_same_gradient(whole, gradient(policy, batch_of(tuple(shuffled), pad_id=17), STEP)[0])
    # One much longer row pads all others of its micro-batch; as a row of its own with advantage 0 it adds no policy gradient.
    policy_only = replace(OBJECTIVE, kl_penalty=0.0, entropy_bonus=0.0)
    no_kl = replace(STEP, kl_penalty=0.0)
    long_row = replace(train_rows[0], prompt_ids=train_rows[0].prompt_ids * 4, completion_ids=train_rows[9].completion_ids * 2,
                       sampler_logprobs=train_rows[9].sampler_logprobs * 2, advantage=0.0)  # fmt: skip
    counted = batch_of(train_rows)
    padded = replace(counted, rows=(*train_rows, long_row))
    assert_same_gradient(gradient(policy, counted, no_kl, policy_only)[0], gradient(policy, padded, no_kl, policy_only)[0])


def test_rows_without_advantage_may_be_skipped_when_nothing_else_pulls_on_them(make_policy):
    policy = make_policy(trained=True)
    train_rows = tuple(replace(row, advantage=row.advantage if index % 2 else 0.0) for index, row in enumerate(rows(policy)))
    objective, step = replace(OBJECTIVE, kl_penalty=0.0, entropy_bonus=0.0), replace(STEP, kl_penalty=0.0)
    whole = batch_of(train_rows)
    skipped = replace(whole, rows=tuple(row for row in train_rows if row.advantage != 0))
    assert_same_gradient(gradient(policy, whole, step, objective)[0], gradient(policy, skipped, step, objective)[0])


def test_on_policy_the_ratio_is_one_and_sampler_and_trainer_are_compared(make_policy):
    policy = make_policy(trained=True)
    _, report = gradient(policy, batch_of(rows(policy)), STEP)
    assert report.ratio_max == 1.0 and report.clip_fraction == 0.0
    assert report.kl_sampler_to_trainer > 0.01  # the sampler's numbers were made up


def test_the_second_update_on_a_rollout_has_ratios_against_the_first(make_policy):
    policy = make_policy(trained=True)
    updater, memory, batch = updater_for(policy), RolloutMemory(), batch_of(rows(policy))
    first = updater.update(batch, replace(STEP, learning_rate=5e-3), memory)
    second = updater.update(batch, replace(STEP, micro_batch_size=3), memory)
    assert first.ratio_max == 1.0 and second.ratio_max > 1.001
    assert len(memory.old_logprobs) == len(memory.reference_logprobs) == len(batch.rows)


def test_out_of_memory_halves_the_micro_batch_and_keeps_the_gradient(make_policy, monkeypatch):
    policy = make_policy(trained=True)
    batch = batch_of(rows(policy))
    expected, _ = gradient(policy, batch, STEP)
    forward = type(policy.model.base_model.model).forward

    def scarce(self, *args, input_ids=None, **kwargs):
        if len(input_ids) > 3:
            raise torch.OutOfMemoryError("pretend")
        return forward(self, *args, input_ids=input_ids, **kwargs)

    monkeypatch.setattr(type(policy.model.base_model.model), "forward", scarce)
    found, report = gradient(policy, batch, replace(STEP, micro_batch_size=10))
    assert report.micro_batch_size == 2  # 10 -> 5 -> 2
    assert_same_gradient(expected, found)


def test_out_of_memory_with_one_row_stops_with_advice(make_policy, monkeypatch):
    policy = make_policy()

    def full(self, *args, **kwargs):
        raise torch.OutOfMemoryError("pretend")

    monkeypatch.setattr(type(policy.model.base_model.model), "forward", full)
    with pytest.raises(RunError, match="max_new_tokens"):
        updater_for(policy).update(batch_of(rows(policy)), STEP, RolloutMemory())


def test_a_step_that_is_not_finite_is_dropped_and_leaves_the_weights(make_policy):
    policy = make_policy(trained=True)
    before = {name: p.detach().clone() for name, p in policy.trainable()}
    train_rows = list(rows(policy))
    train_rows[3] = replace(train_rows[3], advantage=math.nan)
    report = updater_for(policy).update(batch_of(tuple(train_rows)), STEP, RolloutMemory())
    assert not report.applied and report.nonfinite and "nan" in report.dropped_reason
    assert all(torch.equal(p, before[name]) for name, p in policy.trainable())


def test_a_batch_without_rows_is_dropped_and_says_so(make_policy):
    report = updater_for(make_policy()).update(TrainBatch((), 4, 40, 64, 0), STEP, RolloutMemory())
    assert not report.applied and not report.nonfinite and "had anything to teach" in report.dropped_reason


def test_the_gradient_norm_is_reported_before_clipping(make_policy):
    policy = make_policy(trained=True)
    batch = batch_of(rows(policy))
    found, report = gradient(policy, batch, STEP)
    norm = math.sqrt(sum(g.square().sum().item() for g in found.values()))
    assert report.grad_norm == pytest.approx(norm, rel=1e-5) and not report.grad_clipped
    clipped, report = gradient(policy, batch, replace(STEP, max_grad_norm=norm / 4))
    assert report.grad_norm == pytest.approx(norm, rel=1e-5) and report.grad_clipped
    assert math.sqrt(sum(g.square().sum().item() for g in clipped.values())) == pytest.approx(norm / 4, rel=1e-3)


def test_kl_is_zero_where_the_adapter_is_fresh(make_policy):
    policy = make_policy()
    assert gradient(policy, batch_of(rows(policy)), STEP)[1].kl_to_reference == 0.0
