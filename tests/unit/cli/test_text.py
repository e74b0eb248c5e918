"""Model text can neither steer the terminal nor use rich's markup."""

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from evenkeel.cli.text import plain_text, safe_text


# rich doubles a backslash at the very end, and fills tabs up by columns: wide letters take two
@given(st.text(st.characters(exclude_characters="\t")).filter(lambda text: not text.endswith("\\")))
def test_safe_text_prints_as_itself_less_its_control_characters(text):
    out = io.StringIO()
    Console(file=out, width=10_000, color_system="truecolor", force_terminal=True, highlight=False, emoji=False).print(
        safe_text(text), end="", soft_wrap=True
    )
    assert out.getvalue() == plain_text(text)


def test_right_to_left_overrides_and_escapes_go_and_code_stays():
    assert plain_text("x\u202e = \x1b]0;title\x07xs[0]\r\n\ty") == "x = ]0;titlexs[0]\n\ty"
