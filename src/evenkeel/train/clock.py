"""Wall-clock seconds of one step, by phase."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Clock:
    """Wall-clock seconds by phase of one step."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._seconds: dict[str, float] = {}

    @contextmanager
    def measure(self, phase: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        self._seconds[phase] = self._seconds.get(phase, 0.0) + time.monotonic() - started

    def move(self, source: str, target: str, seconds: float) -> None:
        """Book seconds that were measured inside `source` under `target`."""
        self._seconds[source] -= seconds
        self._seconds[target] = self._seconds.get(target, 0.0) + seconds

    def seconds(self) -> dict[str, float]:
        return {**self._seconds, "step": time.monotonic() - self._started}
