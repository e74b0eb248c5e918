"""Text that others wrote, made safe to show in a terminal."""

from __future__ import annotations

import unicodedata


def plain_text(text: str) -> str:
    """Without what could steer a terminal or disguise the text: control characters (escape sequences lose their ESC and
    stay readable), invisible formatting characters such as right-to-left overrides, and lone surrogates. Newline and tab stay.

    >>> plain_text("\\x1b[31mred\\x1b[0m \\u202eevil\\nnext")
    '[31mred[0m evil\\nnext'
    """
    return "".join(letter for letter in text if letter in "\n\t" or unicodedata.category(letter) not in ("Cc", "Cf", "Cs"))


def safe_text(text: str) -> str:
    """`plain_text`, escaped for rich markup. Print it with `emoji=False`: markup also replaces `:names:`.

    Rich shows a backslash at the very end twice; where text must be exact, hand `plain_text` to a `rich.text.Text`.

    >>> safe_text("xs[0] = [bold]1[/bold]")
    'xs[0] = \\\\[bold]1\\\\[/bold]'
    """
    from rich.markup import escape

    return escape(plain_text(text))
