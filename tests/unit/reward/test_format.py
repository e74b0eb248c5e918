import pytest

from evenkeel.records import Outcome, Verdict
from evenkeel.reward.base import Submission
from evenkeel.reward.format import FormatReward
from tests.unit.reward.builders import PASSED, TASK

NO_PROGRAM = Verdict(Outcome.PARSE_ERROR, 0, 2)
BLOCK = "```python\ndef total(xs):\n    return sum(xs)\n```\n"


@pytest.mark.parametrize(
    ("text", "verdict", "value"),
    [
        ("    return sum(xs)\n", PASSED, 1.0),
        (BLOCK, PASSED, 1.0),
        (f"Here it is:\n{BLOCK}It adds up.\n", PASSED, 1.0),
        (BLOCK + BLOCK, PASSED, 0.0),
        (BLOCK.removesuffix("```\n"), PASSED, 0.0),  # the block is not closed
        ("The answer is sum.", NO_PROGRAM, 0.0),
        ("    return sum(xs)\n", Verdict(Outcome.WRONG_ANSWER, 0, 2), 1.0),  # wrong, but in the right form
    ],
)
def test_one_closed_block_or_code_alone_is_worth_one(text, verdict, value):
    [[part]] = FormatReward(0.1).grade([Submission(TASK, text, text, verdict)])
    assert (part.name, part.weight, part.value) == ("format", 0.1, value)


def test_a_failure_of_the_sandbox_leaves_it_unscored():
    [[part]] = FormatReward(0.1).grade([Submission(TASK, BLOCK, BLOCK, Verdict(Outcome.INFRASTRUCTURE))])
    assert (part.status, part.value) == ("unscored", None)
