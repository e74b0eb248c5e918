import pytest
import torch

from evenkeel.algorithm.batch import pack_all
from evenkeel.config.stages import SamplingSettings
from evenkeel.policy.logprobs import completion_statistics
from evenkeel.records import Outcome, ScoredGroup, ScoredSample, Verdict
from evenkeel.rollout.hf import HFEngine
from evenkeel.rollout.prompt import prompt_tokens
from evenkeel.tasks.synthetic import embedded_tasks

TASKS = embedded_tasks("validation")[:6]
SEEDS = [11, 12, 13, 14, 15, 16]


def unscored(groups):
    verdict = Verdict(Outcome.PASSED, 1, 1)
    return [
        ScoredGroup(g.task, g.prompt_ids, tuple(ScoredSample(c, "", verdict, (), 1.0) for c in g.completions)) for g in groups
    ]


@pytest.mark.parametrize(
    "settings",
    [SamplingSettings(4, 1.0, 64), SamplingSettings(4, 0.7, 64), SamplingSettings(4, 1.3, 64, top_p=0.9, top_k=40)],
    ids=["plain", "cool", "filtered"],
)
def test_log_probabilities_at_sampling_equal_those_at_training(make_policy, settings):
    policy = make_policy(trained=True)
    batch = pack_all(unscored(HFEngine(policy).sample(TASKS, settings, SEEDS)), pad_token_id=policy.pad_id, max_new_tokens=64)
    policy.model.eval()
    for micro in batch.micro_batches(5):
        with torch.no_grad():
            again = completion_statistics(policy.model, micro, temperature=settings.temperature).logprobs_BC
        torch.testing.assert_close(again, micro.sampler_logprobs_BC, atol=2e-5, rtol=0)


def test_greedy_decoding_equals_transformers_generate(make_policy):
    policy = make_policy()
    groups = HFEngine(policy).sample(TASKS, SamplingSettings(1, 0.0, 48), SEEDS)
    for group in groups:
        prompt = torch.tensor([group.prompt_ids])
        expected = policy.model.generate(
            input_ids=prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=48
        )
        assert group.completions[0].token_ids == tuple(expected[0, prompt.shape[1] :].tolist())


def test_a_sample_does_not_depend_on_what_is_sampled_beside_it(make_policy):
    engine = HFEngine(make_policy())
    settings = SamplingSettings(3, 1.0, 64)
    together = engine.sample(TASKS, settings, SEEDS)
    alone = [engine.sample([task], settings, [seed])[0] for task, seed in zip(TASKS, SEEDS, strict=True)]
    for one, other in zip(together, alone, strict=True):
        assert [c.token_ids for c in one.completions] == [c.token_ids for c in other.completions]


def test_the_same_seeds_give_the_same_samples_and_others_give_others(make_policy):
    engine = HFEngine(make_policy())
    settings = SamplingSettings(4, 1.0, 64)
    assert engine.sample(TASKS, settings, SEEDS) == engine.sample(TASKS, settings, SEEDS)
    assert engine.sample(TASKS, settings, SEEDS) != engine.sample(TASKS, settings, [seed + 100 for seed in SEEDS])


def test_an_end_token_is_the_last_token_and_its_absence_is_truncation(make_policy):
    policy = make_policy()
    groups = HFEngine(policy).sample(TASKS, SamplingSettings(4, 1.0, 14), SEEDS)
    completions = [completion for group in groups for completion in group.completions]
    assert {completion.truncated for completion in completions} == {True, False}
    for completion in completions:
        ends = [token in policy.eos_ids for token in completion.token_ids]
        assert not any(ends[:-1])
        assert ends[-1] != completion.truncated
        assert completion.length == 14 or not completion.truncated


def test_every_end_token_ends_a_completion(make_policy):
    policy = make_policy()
    newline = policy.tokenizer.encode("\n", add_special_tokens=False)[0]
    policy.eos_ids = policy.eos_ids | {newline}
    completions = [c for g in HFEngine(policy).sample(TASKS, SamplingSettings(2, 1.0, 64), SEEDS) for c in g.completions]
    assert all(completion.token_ids[-1] == newline for completion in completions)


def test_kept_tokens_hold_the_drawn_token_and_no_more_than_top_k(make_policy):
    groups = HFEngine(make_policy()).sample(TASKS, SamplingSettings(2, 1.0, 64, top_k=3), SEEDS)
    for completion in (completion for group in groups for completion in group.completions):
        assert len(completion.kept_tokens) == completion.length
        assert all(
            token in kept and len(kept) <= 3 for token, kept in zip(completion.token_ids, completion.kept_tokens, strict=True)
        )


def test_a_chat_template_wraps_the_prompt_and_a_plain_tokenizer_does_not(make_policy):
    tokenizer = make_policy().tokenizer
    assert tokenizer.decode(prompt_tokens(tokenizer, TASKS[0])) == TASKS[0].prompt
    tokenizer.chat_template = (
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    text = tokenizer.decode(prompt_tokens(tokenizer, TASKS[0]))
    assert text.startswith("<user>Write the Python function `solve`")
    assert TASKS[0].prompt in text
    assert text.endswith("<assistant>")


def test_out_of_memory_halves_the_rows_and_keeps_the_samples(make_policy, monkeypatch):
    engine, settings = HFEngine(make_policy()), SamplingSettings(4, 1.0, 64)
    expected = engine.sample(TASKS, settings, SEEDS)
    sample_chunk = engine._sample_chunk

    def scarce(model, tasks, settings, seeds):
        if len(tasks) > 2:
            raise torch.OutOfMemoryError("pretend")
        return sample_chunk(model, tasks, settings, seeds)

    monkeypatch.setattr(engine, "_sample_chunk", scarce)
    again = engine.sample(TASKS, settings, SEEDS)
    for one, other in zip(again, expected, strict=True):
        assert [c.token_ids for c in one.completions] == [c.token_ids for c in other.completions]


def test_full_fine_tuning_in_bfloat16_keeps_float32_weights_and_agrees_with_itself(make_policy):
    policy = make_policy(method="full", dtype="bfloat16")
    assert {parameter.dtype for parameter in policy.model.parameters()} == {torch.float32}
    settings = SamplingSettings(4, 1.0, 64)
    batch = pack_all(unscored(HFEngine(policy).sample(TASKS, settings, SEEDS)), pad_token_id=policy.pad_id, max_new_tokens=64)
    policy.model.eval()
    (micro,) = batch.micro_batches(64)
    with torch.no_grad(), policy.precision():
        again = completion_statistics(policy.model, micro, temperature=1.0).logprobs_BC
    gap = (again - micro.sampler_logprobs_BC).abs()
    # Three digits of bfloat16, and not exactly float32's numbers
    assert 1e-6 < gap.max() < 0.3 and gap.mean() < 0.02
