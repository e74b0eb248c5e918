"""Small records for the tests of metrics, report and cli."""

from evenkeel.records import (
    Completion,
    CreditedGroup,
    Outcome,
    RewardPart,
    ScoredGroup,
    ScoredSample,
    Task,
    UpdateReport,
    Verdict,
)


def sample(reward, *, text="return 1", share=None, outcome=None, bonus=0.0, length=4, truncated=False, parts=()):
    """One sample of two hidden tests; `share` (default: the reward) of them pass."""
    passed = round(2 * (reward or 0.0 if share is None else share))
    outcome = outcome or (Outcome.PASSED if passed == 2 else Outcome.WRONG_ANSWER)
    completion = Completion(tuple(range(length)), (-0.5,) * length, text, truncated)
    return ScoredSample(completion, "def f():\n    " + text, Verdict(outcome, passed, 2), tuple(parts), reward, bonus)


def scored(task_id, *samples, difficulty=None, prompt="def f():\n"):
    return ScoredGroup(Task(task_id, prompt, "f", difficulty=difficulty), (1, 2), tuple(samples))


def credited(group, *, has_signal=True, advantages=None):
    count = len(group.samples)
    return CreditedGroup(group, tuple(advantages or (0.0,) * count), (has_signal,) * count, has_signal)


def part(name, value, *, weight=1.0):
    return RewardPart(name, weight, "unscored" if value is None else "scored", value)


def report(**changes):
    values = {
        "loss": 0.1, "policy_loss": 0.0, "kl_to_reference": 0.02, "kl_sampler_to_trainer": 0.0, "entropy": 0.5,
        "grad_norm": 2.0, "grad_clipped": True, "clip_fraction": 0.0, "ratio_max": 1.0, "learning_rate": 1e-3,
        "kl_penalty": 0.05, "trained_tokens": 100, "trained_samples": 10, "micro_batch_size": 8,
    }  # fmt: skip
    return UpdateReport(**(values | changes))
