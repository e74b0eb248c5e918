from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.errors import RunError, UsageError
from evenkeel.records import Outcome, RewardPart, TestCase
from evenkeel.reward.score import MemoryGradeBook, Scorer, grade_key, score
from evenkeel.reward.teacher.offline import OfflineTeacher
from evenkeel.reward.tests import TestsReward
from evenkeel.sandbox.base import CodeFacts
from tests.unit.reward.builders import BROKEN, HALF, PASSED, PROMPT, RIGHT, TASK, VERDICTS, WRONG, TableSandbox, group


@dataclass(frozen=True)
class Judge:
    """A judge that knows some texts, and fails on the others."""

    values: dict[str, float]
    weight: float = 0.4
    name: str = "judge"
    needs_facts: bool = False

    def grade(self, submissions):
        return [[self.part(submission.completion_text)] for submission in submissions]

    def part(self, text):
        if text in self.values:
            return RewardPart(self.name, self.weight, "scored", self.values[text])
        return RewardPart(self.name, self.weight, "unscored", reason="the judge's reply had no verdict")


def rewards_of(groups, scorer):
    return [[sample.reward for sample in scored.samples] for scored in score(groups, scorer)]


def test_the_reward_is_the_share_of_hidden_tests():
    scorer = Scorer(TableSandbox(), (TestsReward(0.7),))
    assert rewards_of([group(RIGHT, HALF, WRONG)], scorer) == [[1.0, 0.5, 0.0]]


def test_all_or_nothing_pays_only_for_every_test():
    scorer = Scorer(TableSandbox(), (TestsReward(0.7, "all"),))
    assert rewards_of([group(RIGHT, HALF, WRONG)], scorer) == [[1.0, 0.0, 0.0]]


def test_parts_are_averaged_by_their_weights():
    scorer = Scorer(TableSandbox(), (TestsReward(0.6), Judge({RIGHT: 0.5, HALF: 1.0})))
    # (0.6 * 1 + 0.4 * 0.5) / 1 = 0.8        (0.6 * 0.5 + 0.4 * 1) / 1 = 0.7
    assert rewards_of([group(RIGHT, HALF)], scorer) == [[pytest.approx(0.8), pytest.approx(0.7)]]


def test_weights_need_not_add_up_to_one():
    scorer = Scorer(TableSandbox(), (TestsReward(3.0), Judge({HALF: 1.0}, weight=1.0)))
    # (3 * 0.5 + 1 * 1) / 4 = 0.625
    assert rewards_of([group(HALF)], scorer) == [[0.625]]


def test_a_part_unscored_for_one_sample_is_left_out_for_its_group_only():
    scorer = Scorer(TableSandbox(), (TestsReward(0.6), Judge({RIGHT: 0.5})))
    mixed, whole = score([group(RIGHT, HALF), group(RIGHT, task=replace(TASK, difficulty=0.5))], scorer)
    assert [sample.reward for sample in mixed.samples] == [1.0, 0.5]  # tests alone
    assert [sample.reward for sample in whole.samples] == [pytest.approx(0.8)]
    statuses = [[part.status for part in sample.parts] for sample in mixed.samples]
    assert statuses == [["scored", "scored"], ["scored", "unscored"]]


def test_a_group_with_nothing_left_has_no_reward():
    scorer = Scorer(TableSandbox(), (Judge({RIGHT: 0.5}),))
    assert rewards_of([group(RIGHT, HALF)], scorer) == [[None, None]]


def test_a_failure_of_the_sandbox_costs_that_sample_its_reward_and_no_other():
    scorer = Scorer(TableSandbox(), (TestsReward(0.7), OfflineTeacher(0.3)))
    [scored] = score([group(RIGHT, BROKEN)], scorer)
    assert [sample.reward for sample in scored.samples] == [1.0, None]
    assert {part.status for part in scored.samples[1].parts} == {"unscored"}
    assert scored.rewards == [1.0]


def test_a_sandbox_that_fails_on_most_samples_stops_the_run():
    scorer = Scorer(TableSandbox(), (TestsReward(1.0),))
    with pytest.raises(RunError, match="could not run 2 of 3 programs.*no memory left"):
        score([group(RIGHT, BROKEN), group(BROKEN, task=replace(TASK, task_id="other"))], scorer)
    # exactly half is survived
    assert rewards_of([group(RIGHT, BROKEN)], scorer) == [[1.0, None]]


def test_what_was_graded_before_a_failing_batch_is_kept():
    book, sandbox = MemoryGradeBook(), TableSandbox()
    scorer = Scorer(sandbox, (TestsReward(1.0),), book)
    with pytest.raises(RunError):
        score([group(RIGHT, BROKEN, BROKEN)], scorer)
    assert list(book.look_up([grade_key(TASK, RIGHT, scorer.rewards), grade_key(TASK, BROKEN, scorer.rewards)])) == [
        grade_key(TASK, RIGHT, scorer.rewards)
    ]


def test_an_answer_without_code_is_a_parse_error_that_never_ran():
    sandbox = TableSandbox()
    [scored] = score([group("  \n")], Scorer(sandbox, (TestsReward(1.0),)))
    [sample] = scored.samples
    assert (sample.verdict.outcome, sample.verdict.tests_total, sample.reward) == (Outcome.PARSE_ERROR, 2, 0.0)
    assert sample.program == "" and sandbox.ran == []


def test_equal_answers_in_a_batch_run_once():
    sandbox = TableSandbox()
    scorer = Scorer(sandbox, (TestsReward(1.0),))
    assert rewards_of([group(RIGHT, WRONG, RIGHT), group(RIGHT)], scorer) == [[1.0, 0.0, 1.0], [1.0]]
    assert sorted(sandbox.ran) == sorted([PROMPT + RIGHT, PROMPT + WRONG])


def test_a_grade_in_the_book_is_not_asked_for_again():
    book, rewards = MemoryGradeBook(), (TestsReward(0.6), Judge({RIGHT: 0.5}))
    first = score([group(RIGHT)], Scorer(TableSandbox(), rewards, book))
    replay = TableSandbox(verdicts={})  # answers nothing
    assert score([group(RIGHT)], Scorer(replay, rewards, book)) == first
    assert replay.ran == []


def test_an_unsettled_grade_is_tried_again():
    book = MemoryGradeBook()
    failing, mended = Judge({RIGHT: 0.5}), Judge({RIGHT: 0.5, HALF: 1.0})
    unsettled = [(HALF, failing), (BROKEN, failing)]
    score([group(RIGHT, HALF, BROKEN)], Scorer(TableSandbox(), (failing,), book))
    assert book.look_up([grade_key(TASK, text, (judge,)) for text, judge in unsettled]) == {}
    assert rewards_of([group(HALF)], Scorer(TableSandbox(), (mended,), book)) == [[1.0]]


def test_changed_settings_do_not_meet_old_grades():
    book, sandbox = MemoryGradeBook(), TableSandbox()
    assert rewards_of([group(HALF)], Scorer(sandbox, (TestsReward(1.0),), book)) == [[0.5]]
    assert rewards_of([group(HALF)], Scorer(sandbox, (TestsReward(1.0, "all"),), book)) == [[0.0]]


def test_the_key_depends_on_what_is_graded_and_on_nothing_else():
    key = grade_key(TASK, RIGHT)
    assert len(key) == 64 and key == grade_key(replace(TASK, task_id="renamed", difficulty=0.9), RIGHT)
    changed = [
        grade_key(TASK, WRONG),
        grade_key(replace(TASK, prompt="def total(items):\n"), RIGHT),
        grade_key(replace(TASK, cases=TASK.cases[:1]), RIGHT),
        grade_key(replace(TASK, cases=(TASK.cases[0], replace(TASK.cases[1], tolerance=0.1))), RIGHT),
        grade_key(replace(TASK, reference=None), RIGHT),
        grade_key(TASK, RIGHT, (TestsReward(1.0),)),
        grade_key(TASK, RIGHT, (TestsReward(1.0, "all"),)),
    ]
    assert len({key, *changed}) == 8


def test_the_key_does_not_depend_on_the_order_inside_a_set():
    # The same set, filled in two orders with colliding items, is iterated in two orders: 8 and 16 collide modulo 8.
    one, other = {8, 16}, {16, 8}
    assert list(one) != list(other)
    tasks = [replace(TASK, cases=(TestCase((values,), (1, frozenset(values))),)) for values in (one, other)]
    assert grade_key(tasks[0], RIGHT) == grade_key(tasks[1], RIGHT)


def test_the_reference_is_inspected_once_for_the_whole_run():
    sandbox = TableSandbox()
    scorer = Scorer(sandbox, (OfflineTeacher(1.0),))
    for texts in ((HALF, HALF), (WRONG,), (RIGHT,)):
        score([group(*texts)], scorer)
    assert sandbox.inspected.count(PROMPT + RIGHT) == 1


def test_an_answer_too_long_to_read_takes_no_part_away_from_its_group():
    bloated = RIGHT + "    # padding\n" * 6000  # 84 KB: it runs and passes, and nobody reads it
    sandbox = TableSandbox(VERDICTS | {PROMPT + bloated: PASSED})
    rewards = (TestsReward(0.6), OfflineTeacher(0.4, {"quality": 1.0}))
    # (0.6 * 1 + 0.4 * 1) / 1        (0.6 * 1 + 0.4 * 0) / 1
    assert rewards_of([group(RIGHT, bloated)], Scorer(sandbox, rewards)) == [[1.0, 0.6]]


def test_grades_against_a_reference_that_we_failed_to_inspect_are_not_kept():
    class Forgetful(TableSandbox):
        def inspect(self, programs):
            known = super().inspect(programs)
            return [CodeFacts("not_inspected") if program == PROMPT + RIGHT else facts
                    for program, facts in zip(programs, known, strict=True)]  # fmt: skip

    rewards = (TestsReward(0.6), OfflineTeacher(0.4, {"quality": 1.0}))
    scorer = Scorer(Forgetful(), rewards)
    assert rewards_of([group(HALF)], scorer) == [[0.5]]  # of the tests alone
    healed = replace(scorer, sandbox=TableSandbox())
    # one branch more than the reference: 0.5 * (0.30 * 2/3 + 0.70) = 0.45, and (0.6 * 0.5 + 0.4 * 0.45) / 1 = 0.48
    assert rewards_of([group(HALF)], healed) == [[pytest.approx(0.48)]]


def test_nothing_is_inspected_when_no_reward_looks_at_code():
    sandbox = TableSandbox()
    score([group(RIGHT)], Scorer(sandbox, (TestsReward(1.0),)))
    assert sandbox.inspected == []


@given(st.permutations([RIGHT, HALF, WRONG, BROKEN, RIGHT]))
def test_the_order_of_samples_does_not_matter(texts):
    rewards = (TestsReward(0.7), OfflineTeacher(0.3), Judge({RIGHT: 0.2, HALF: 0.9, WRONG: 0.4}))
    different = (RIGHT, HALF, WRONG, BROKEN)
    [in_order] = rewards_of([group(*different)], Scorer(TableSandbox(), rewards))
    [permuted] = rewards_of([group(*texts)], Scorer(TableSandbox(), rewards))
    assert permuted == [in_order[different.index(text)] for text in texts]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([], "returned parts for 0"),
        ([[RewardPart("own", 1.0, "scored", 1.5)]], "the value 1.5"),
        ([[RewardPart("own", 1.0, "scored", float("nan"))]], "the value nan"),
        ([[RewardPart("own", 1.0, "scored", None)]], "the value None"),
        ([[RewardPart("own", -1.0, "scored", 1.0)]], "the weight -1.0"),
        ([[RewardPart("own", 1.0, "failed")]], "the status 'failed'"),
        ([[RewardPart("tests", 1.0, "scored", 1.0)]], "Two parts of one reward are named `tests`"),
    ],
)
def test_a_reward_of_ones_own_that_breaks_its_promise_is_named(parts, message):
    @dataclass
    class Own:
        name = "own"
        weight = 1.0
        needs_facts = False

        def grade(self, submissions):
            return parts

    with pytest.raises(UsageError, match=message):
        score([group(RIGHT)], Scorer(TableSandbox(), (TestsReward(1.0), Own())))
