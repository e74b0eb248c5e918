from evenkeel.metrics.rows import SampleRow
from evenkeel.records import Outcome
from evenkeel.report.samples import best, changed, worst


def answer(task_id, reward, *, index=0, epoch=1, text="x"):
    return SampleRow(
        "train", epoch, epoch, 0, index, task_id, text, text, Outcome.WRONG_ANSWER, "", 0, 2, reward, 0.0, 0.0, True,
        (), -0.5, 3, False,
    )  # fmt: skip


ROWS = [answer("a", 0.9), answer("a", 1.0, index=1), answer("b", 0.2), answer("c", None), answer("b", 0.8, index=1)]


def test_the_best_answers_come_from_different_tasks():
    assert [(row.task_id, row.reward) for row in best(ROWS, 2)] == [("a", 1.0), ("b", 0.8)]
    assert [row.reward for row in best(ROWS, 3, one_per_task=False)] == [1.0, 0.9, 0.8]


def test_an_unscored_answer_is_not_the_worst():
    assert [(row.task_id, row.reward) for row in worst(ROWS, 5)] == [("b", 0.2), ("a", 0.9)]


def test_changes_are_of_means_and_shown_by_a_typical_answer():
    early = [answer("a", 0.0), answer("a", 0.2, index=1), answer("b", 0.5), answer("gone", 0.1)]
    late = [answer("a", reward, epoch=2, index=index) for index, reward in enumerate((1.0, 0.6, 0.7))]
    late.append(answer("b", 0.4, epoch=2))
    first, second = changed(early, late, 5)
    # a: 0.1 -> 2.3 / 3; nearest to 0.7667 is 0.7, the third answer
    assert (first.task_id, first.early_mean, round(first.late_mean, 4), first.late.sample_index) == ("a", 0.1, 0.7667, 2)
    assert (second.task_id, round(second.change, 4)) == ("b", -0.1)
    assert len(changed(early, late, 1)) == 1
