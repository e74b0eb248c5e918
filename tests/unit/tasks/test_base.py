import pytest

from evenkeel.records import Task
from evenkeel.tasks.base import preamble_of, program_of

CODE = Task("t", "import math\n\ndef half(x):\n    return x / 2\n\ndef inc(x):\n    '''Add.'''\n", "inc")
TEXT = Task("t", "Write a function inc that adds one.", "inc")
WHOLE = "def inc(x):\n    return x + 1\n"


def test_a_body_continues_the_prompt():
    assert program_of(CODE, "    return x + 1\n") == CODE.prompt + "    return x + 1\n"


def test_a_whole_program_gets_the_prompts_imports_and_helpers():
    assert program_of(CODE, WHOLE) == "import math\n\ndef half(x):\n    return x / 2\n\n" + WHOLE
    assert program_of(TEXT, WHOLE) == WHOLE


def test_a_body_that_later_defines_the_entry_point_again_still_continues_the_prompt():
    answer = "    return x + 1\n\n" + WHOLE
    assert program_of(CODE, answer) == CODE.prompt + answer


def test_of_several_blocks_the_last_that_defines_the_entry_point_runs():
    answer = f"```python\nold = 1\n```\nthen\n```python\n{WHOLE}```\nand use it:\n```python\nprint(inc(1))\n```\n"
    assert program_of(TEXT, answer) == WHOLE


def test_without_the_entry_point_the_last_block_runs():
    assert program_of(CODE, "```\n    return 1\n```\n```py\n    return 2\n```") == CODE.prompt + "    return 2\n"


def test_a_block_that_the_token_limit_cut_off_is_still_code():
    assert program_of(TEXT, "```python\ndef inc(x):\n    return") == "def inc(x):\n    return"


def test_longer_fences_may_hold_shorter_ones():
    inner = "def inc(x):\n    '''\n    ```\n    '''\n    return x + 1\n"
    assert program_of(TEXT, f"````python\n{inner}````\n") == inner


@pytest.mark.parametrize("answer", ["", "  \n\t\n", "```python\n```\n", "```bash\nrm -r x\n```\n"])
def test_an_answer_without_code_is_no_program(answer):
    assert program_of(CODE, answer) is None


@pytest.mark.parametrize(
    "head",
    ["def inc(x):", "async def inc(x):", "class inc:", "@cache\ndef inc(x):", "inc = lambda x:", "inc: object = lambda x:"],
)
def test_every_binding_at_column_zero_is_a_definition(head):
    assert program_of(TEXT, f"{head} 1\n") == f"{head} 1\n"
    assert preamble_of(f"import os\n{head} 1\n", "inc") == "import os\n"


@pytest.mark.parametrize("line", ["def increment(x):", "    def inc(x):", "inc == 3", "print(inc)"])
def test_a_mention_is_no_definition(line):
    assert preamble_of(f"import os\n{line}\n", "inc") == ""
