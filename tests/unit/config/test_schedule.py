"""Schedules against transformers' own, step by step, and against numbers worked by hand."""

import pytest

from evenkeel.config.schedule import learning_rate_at, multiplier, warmup_steps
from evenkeel.config.stages import ScheduleSettings


def settings(scheduler, *, learning_rate=1e-3, warmup=0, ratio=None, num_cycles=None, power=None, lr_end=None, timescale=None):
    return ScheduleSettings(
        scheduler, learning_rate, None if ratio is not None else warmup, ratio, num_cycles, power, lr_end, timescale
    )


CASES = [
    settings("linear"),
    settings("linear", warmup=5),
    settings("linear", warmup=60),  # longer than the run
    settings("cosine", warmup=7),
    settings("cosine", num_cycles=2),
    settings("cosine", warmup=3, num_cycles=1.25),
    settings("cosine_with_restarts", warmup=4),
    settings("cosine_with_restarts", warmup=4, num_cycles=3),
    settings("polynomial", warmup=5),
    settings("polynomial", power=2.0, lr_end=1e-5),
    settings("polynomial", warmup=6, power=0.5, lr_end=0.0),
    settings("constant"),
    settings("constant_with_warmup", warmup=10),
    settings("inverse_sqrt", warmup=8),
    settings("inverse_sqrt"),
    settings("inverse_sqrt", warmup=8, timescale=30),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_step_equals_transformers(case):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    total = 40
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=case.learning_rate)
    names = ("num_cycles", "power", "lr_end", "timescale")
    arguments = {name: getattr(case, name) for name in names if getattr(case, name) is not None}
    theirs = transformers.get_scheduler(case.scheduler, optimizer, case.warmup_steps, total, arguments)
    for step in range(total):
        assert theirs.get_last_lr()[0] == pytest.approx(learning_rate_at(case, step, total), rel=1e-12, abs=1e-18)
        optimizer.step()
        theirs.step()
    # the value after the last step, which no step applies
    assert theirs.get_last_lr()[0] == pytest.approx(learning_rate_at(case, total, total), rel=1e-12, abs=1e-18)


def test_the_first_step_of_a_warmup_has_rate_zero():
    assert learning_rate_at(settings("linear", warmup=4), 0, 10) == 0.0
    assert learning_rate_at(settings("linear", warmup=4), 1, 10) == 1e-3 / 4


def test_the_seed_never_leaves_its_warmup():
    seed = settings("cosine", learning_rate=1e-5, warmup=100)
    rates = [learning_rate_at(seed, step, 8) for step in range(8)]
    assert rates == pytest.approx([step * 1e-7 for step in range(8)], rel=1e-12)  # step / 100 * 1e-5


def test_a_cosine_of_two_whole_cycles_ends_at_its_peak():
    assert multiplier(settings("cosine", num_cycles=2), 10, 10) == pytest.approx(1.0)
    assert multiplier(settings("cosine"), 10, 10) == pytest.approx(0.0)


def test_hard_restarts_jump_back_to_the_peak():
    restarts = settings("cosine_with_restarts", num_cycles=2)
    assert multiplier(restarts, 4, 10) == pytest.approx(0.0954915, abs=1e-7)  # (1 + cos(0.8 pi)) / 2
    assert multiplier(restarts, 5, 10) == 1.0


def test_a_warmup_ratio_is_rounded_up_and_then_equals_the_steps():
    by_ratio, by_steps = settings("cosine", ratio=0.06), settings("cosine", warmup=3)
    assert warmup_steps(by_ratio, 50) == 3
    assert [multiplier(by_ratio, s, 50) for s in range(51)] == [multiplier(by_steps, s, 50) for s in range(51)]


def test_a_polynomial_without_a_step_after_its_warmup_ends_at_lr_end():
    assert learning_rate_at(settings("polynomial", warmup=5, lr_end=1e-5), 5, 5) == pytest.approx(1e-5)
