"""What can go wrong, and whose move it is.

    EvenkeelError       shown without a traceback
    ├── UsageError      the user can fix it (configuration, files, arguments); exit code 2
    └── RunError        this run cannot go on (full disk, no reward signal, repeated NaN); exit code 1

A message says what was asked, what was found and what to do. `assert` is for our own mistakes. What the world does
wrong (a timed-out test, an unreadable judge reply) is no exception but a status on a record, see `records.py`.
"""


class EvenkeelError(Exception):
    """Base of all errors that are raised on purpose."""


class UsageError(EvenkeelError):
    """The user can fix it."""


class RunError(EvenkeelError):
    """This run cannot go on."""


class MissingExtra(UsageError):
    """An optional library is needed and absent."""

    def __init__(self, library: str, extra: str, needed_for: str):
        super().__init__(f"{needed_for} needs `{library}`, which is not installed. Run: pip install 'evenkeel[{extra}]'")
