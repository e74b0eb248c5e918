"""Easy to hard, the same after a restore, and every task of the pool about equally often."""

import json
import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.config.stages import CurriculumSettings
from evenkeel.records import Task
from evenkeel.tasks.curriculum import Curriculum


def tasks_of(*difficulties):
    return [Task(f"t{index}", "", "f", difficulty=level) for index, level in enumerate(difficulties)]


def curriculum(tasks, *, enabled=True, num_epochs=4, seed=0):
    return Curriculum(tasks, CurriculumSettings(enabled, num_epochs, seed))


def ids(tasks):
    return [task.task_id for task in tasks]


def test_the_mean_difficulty_rises_over_the_epochs():
    chosen = curriculum(tasks_of(0.6, 0.1, 0.4, 0.2, 0.5, 0.3))
    means = [chosen.mean_difficulty(chosen.order(epoch)) for epoch in (1, 2, 3, 4)]
    # pools of ceil(6 * 0.5, 0.667, 0.833, 1) = 3, 4, 5, 6 tasks. Epoch 1: 0.1 0.2 0.3 twice each: 0.2. Epoch 4: all: 0.35.
    # Epoch 2: 0.1 .. 0.4 once and two of them again: (1.0 + 0.3) / 6 = 0.217 to (1.0 + 0.7) / 6 = 0.283.
    # Epoch 3: 0.1 .. 0.5 once and one again: (1.5 + 0.1) / 6 = 0.267 to (1.5 + 0.5) / 6 = 0.333.
    assert means[0] == pytest.approx(0.2) and means[3] == pytest.approx(0.35)
    assert 0.2166 <= means[1] <= 0.2834 and 0.2666 <= means[2] <= 0.3334
    assert set(ids(chosen.order(2))) == {"t1", "t2", "t3", "t5"}


@pytest.mark.parametrize("seed", range(10))
def test_the_mean_difficulty_rises_for_every_seed_with_enough_tasks(seed):
    chosen = curriculum(tasks_of(*[index / 63 for index in range(64)]), seed=seed)
    means = [chosen.mean_difficulty(chosen.order(epoch)) for epoch in (1, 2, 3, 4)]
    assert means == sorted(means) and means[3] - means[0] > 0.2  # from 0.246 (mean of 0 .. 31 over 63) to 0.5


@given(num_tasks=st.integers(1, 40), epoch=st.integers(1, 5), num_epochs=st.integers(1, 5), seed=st.integers(0, 9))
def test_an_epoch_has_as_many_draws_as_tasks_spread_evenly_over_the_pool(num_tasks, epoch, num_epochs, seed):
    chosen = curriculum(tasks_of(*[index / num_tasks for index in range(num_tasks)]), num_epochs=num_epochs, seed=seed)
    counts = Counter(ids(chosen.order(epoch)))
    assert sum(counts.values()) == num_tasks
    assert set(counts.values()) <= {math.floor(num_tasks / len(counts)), math.ceil(num_tasks / len(counts))}
    easiest = {f"t{index}" for index in range(len(counts))}
    assert set(counts) == easiest


def test_a_single_epoch_has_every_task_once():
    chosen = curriculum(tasks_of(0.9, 0.1, 0.5), num_epochs=1)
    assert sorted(ids(chosen.order(1))) == ["t0", "t1", "t2"]


def test_without_a_curriculum_every_epoch_is_another_shuffle_of_all_tasks():
    tasks = tasks_of(*[index / 20 for index in range(20)])
    chosen = curriculum(tasks, enabled=False)
    first, second = ids(chosen.order(1)), ids(chosen.order(2))
    assert sorted(first) == sorted(second) == sorted(ids(tasks))
    assert first != second != ids(tasks)
    assert ids(curriculum(tasks, enabled=False).order(2)) == second  # a function of seed and epoch
    assert ids(curriculum(tasks, enabled=False, seed=1).order(1)) != first


def test_the_order_inside_an_epoch_is_not_sorted_by_difficulty():
    tasks = tasks_of(*[index / 40 for index in range(40)])
    levels = [task.difficulty for task in curriculum(tasks).order(1)]
    assert levels != sorted(levels)


def test_a_task_that_the_student_fails_moves_out_of_the_first_pool():
    chosen = curriculum(tasks_of(0.2, 0.3, 0.4, 0.5), num_epochs=2)
    chosen.observe("t0", solve_rate=0.0, num_samples=8)  # w = 8 / 16: 0.5 * 1 + 0.5 * 0.2 = 0.6
    chosen.observe("t3", solve_rate=1.0, num_samples=8)  # 0.5 * 0 + 0.5 * 0.5 = 0.25
    assert chosen.difficulty("t0") == pytest.approx(0.6) and chosen.difficulty("t3") == pytest.approx(0.25)
    assert set(ids(chosen.order(1))) == {"t1", "t3"}


def test_earlier_looks_count_half():
    chosen = curriculum(tasks_of(0.5))
    chosen.observe("t0", solve_rate=0.0, num_samples=8)
    chosen.observe("t0", solve_rate=1.0, num_samples=8)
    # failures 8 / 2 + 0 = 4, samples 8 / 2 + 8 = 12: (4 + 8 * 0.5) / (12 + 8) = 0.4
    assert chosen.difficulty("t0") == pytest.approx(0.4)


def test_what_is_observed_in_an_epoch_changes_only_the_next_one():
    chosen = curriculum(tasks_of(0.1, 0.2, 0.3, 0.4), num_epochs=3)
    before = ids(chosen.order(1))
    for task_id in ("t0", "t1"):
        chosen.observe(task_id, solve_rate=0.0, num_samples=64)
    assert ids(chosen.order(1)) == before
    # epoch 2 of 3 has a share of 0.75: 3 tasks, among them the two that are still thought easy
    assert {"t2", "t3"} < set(ids(chosen.order(2)))


def test_undeclared_difficulty_is_the_first_estimate_and_stays_it_as_the_student_learns():
    chosen = curriculum(tasks_of(None, None, 0.2))
    everything = chosen.order(4)
    assert chosen.mean_difficulty(everything) == pytest.approx(0.2)  # only one is known
    chosen.observe("t0", solve_rate=0.0, num_samples=8)  # (8 + 8 * 0.5) / 16 = 0.75
    chosen.observe("t1", solve_rate=0.5, num_samples=8)  # (4 + 4) / 16 = 0.5
    chosen.observe("t0", solve_rate=1.0, num_samples=8)
    assert chosen.difficulty("t0") < 0.75
    assert chosen.mean_difficulty(everything) == pytest.approx((0.75 + 0.5 + 0.2) / 3)


def test_nothing_known_has_no_mean_difficulty():
    chosen = curriculum(tasks_of(None, None))
    assert chosen.mean_difficulty(chosen.order(1)) is None


def test_a_restored_curriculum_goes_on_exactly_through_json_and_in_the_middle_of_an_epoch():
    tasks = tasks_of(*[(index * 7 % 20) / 20 if index % 3 else None for index in range(20)])
    unbroken = curriculum(tasks)
    for task in unbroken.order(1):
        unbroken.observe(task.task_id, solve_rate=len(task.task_id) / 7, num_samples=3)
    middle = unbroken.order(2)
    for task in middle[:7]:
        unbroken.observe(task.task_id, solve_rate=1 / 3, num_samples=5)
    resumed = curriculum(tasks)
    resumed.restore(json.loads(json.dumps(unbroken.state())))
    assert ids(resumed.order(2)) == ids(middle)
    for chosen in (unbroken, resumed):
        for task in middle[7:]:
            chosen.observe(task.task_id, solve_rate=0.1, num_samples=5)
    assert ids(resumed.order(3)) == ids(unbroken.order(3))
    assert resumed.state() == unbroken.state()


def test_a_state_of_other_tasks_is_used_as_far_as_it_fits():
    before = curriculum(tasks_of(0.1, 0.2, 0.3))
    before.order(1)
    before.observe("t2", solve_rate=0.0, num_samples=8)
    before.observe("t0", solve_rate=0.0, num_samples=8)
    after = curriculum(tasks_of(0.1, 0.2))
    after.restore(before.state())
    assert sorted(ids(after.order(4))) == ["t0", "t1"]
    assert after.difficulty("t0") == pytest.approx(0.55)  # (8 + 0.8) / 16
