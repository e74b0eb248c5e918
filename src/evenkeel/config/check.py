"""Is a configuration possible, and is it wise? `train` refuses the impossible, warns of the unwise and goes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from evenkeel.config.impossible import impossible
from evenkeel.config.length import RunLength
from evenkeel.config.meaningless import meaningless
from evenkeel.config.schema import RunConfig
from evenkeel.config.unwise import unwise
from evenkeel.errors import UsageError


@dataclass(frozen=True)
class Finding:
    """One thing that the configuration says and that a person should know before it runs.

    >>> Finding("unwise", "The whole run has 8 optimizer steps.").severity
    'unwise'
    """

    severity: Literal["impossible", "unwise"]
    message: str
    """What was asked, what follows from it, what to do."""


def findings(config: RunConfig, length: RunLength | None = None) -> list[Finding]:
    """The impossible first; warnings about steps and warmup only with the run's length."""
    return [Finding("impossible", message) for message in _refusals(config)] + [
        Finding("unwise", message) for message in unwise(config, length)
    ]


def refuse_impossible(config: RunConfig) -> None:
    """Raise a UsageError that lists every contradiction of the configuration."""
    messages = _refusals(config)
    if messages:
        heading = (
            "The configuration cannot run:"
            if len(messages) == 1
            else f"The configuration cannot run, for {len(messages)} reasons:"
        )
        raise UsageError("\n  - ".join([heading, *messages]))


def _refusals(config: RunConfig) -> list[str]:
    return [*impossible(config), *meaningless(config)]
