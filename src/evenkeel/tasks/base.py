"""Where tasks come from, and how an answer becomes a program.

    Task (records.py) + completion text --program_of--> program text, or None when the answer holds no code

Model text is searched with regular expressions only and never parsed here: parsing is the sandbox child's job.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Protocol

from evenkeel.records import Task

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*([\w+#.-]*)[^\n]*\n(.*?)(?:^[ \t]*\1[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_CODE_LANGUAGES = {"", "python", "python3", "py"}


class TaskSource(Protocol):
    """Extension point: tasks from anywhere, named in the configuration as `module:name`."""

    def tasks(self) -> Iterable[Task]:
        """The tasks, in a fixed order."""


def program_of(task: Task, completion_text: str) -> str | None:
    """The program to run for one answer.

    A fenced answer gives its last block that defines the entry point, else its last block. Code that defines the entry
    point at column 0 is a whole program: what the prompt has before its own `def` (imports, helpers) is put in front.
    Any other code continues the prompt. None: there is no code at all.

    >>> task = Task("inc", "import math\\ndef inc(x):\\n", "inc")
    >>> program_of(task, "    return x + 1\\n")
    'import math\\ndef inc(x):\\n    return x + 1\\n'
    >>> program_of(task, "Sure:\\n```python\\ndef inc(x):\\n    return 1 + x\\n```")
    'import math\\ndef inc(x):\\n    return 1 + x\\n'
    """
    code = _fenced_code(completion_text, task.entry_point)
    if not code.strip():
        return None
    starts_indented = code.lstrip("\r\n")[:1].isspace()  # a body that goes on from the prompt's def, whatever it defines later
    if defines(code, task.entry_point) and not starts_indented:
        return preamble_of(task.prompt, task.entry_point) + code
    return task.prompt + code


def defines(code: str, name: str) -> bool:
    """Whether a line at column 0 binds `name` by def, class or assignment."""
    return _definition(name).search(code) is not None


def preamble_of(prompt: str, entry_point: str) -> str:
    """What a code prompt has before the entry point's own `def` (decorators belong to the `def`); empty for an instruction.

    >>> preamble_of("from math import pi\\ndef area(r):\\n", "area")
    'from math import pi\\n'
    """
    match = _definition(entry_point).search(prompt)
    return prompt[: match.start()] if match else ""


def _definition(name: str) -> re.Pattern:
    name = re.escape(name)
    return re.compile(
        rf"^(?:@[^\n]*\n)*(?:async[ \t]+def|def|class)[ \t]+{name}\b|^{name}[ \t]*(?::[^=\n]*)?=(?!=)", re.MULTILINE
    )


def _fenced_code(text: str, entry_point: str) -> str:
    """The block to run, or the text itself when it has no fence."""
    blocks = [match[3] for match in _FENCE.finditer(text) if match[2].lower() in _CODE_LANGUAGES]
    if not blocks:
        return "" if _FENCE.search(text) else text
    return next((block for block in reversed(blocks) if defines(block, entry_point)), blocks[-1])
