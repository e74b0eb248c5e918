"""Standard trackers, through Accelerate: the same metrics that the database gets; those of epochs under `epoch/`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from accelerate import Accelerator
from accelerate.tracking import get_available_trackers

from evenkeel.errors import UsageError


class Trackers:
    """The trackers of a run; with none configured, nothing is set up and nothing leaves the machine."""

    def __init__(self, names: Sequence[str], directory: Path, facts: Mapping[str, str | int | float | bool], *, is_main: bool):
        self._accelerator = None
        if not names or not is_main:
            return
        available = {str(name) for name in get_available_trackers()}
        missing = [name for name in names if name not in available]
        if missing:
            raise UsageError(
                f"`tracking.trackers` names {', '.join(missing)}, which is not installed. Run: pip install {' '.join(missing)}"
            )
        self._accelerator = Accelerator(log_with=list(names), project_dir=str(directory))
        self._accelerator.init_trackers("evenkeel", config=dict(facts))

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        if self._accelerator is not None:
            self._accelerator.log(dict(metrics), step=step)

    def close(self) -> None:
        if self._accelerator is not None:
            self._accelerator.end_training()
