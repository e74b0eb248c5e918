from pathlib import Path

import pytest

from .small_run import arguments, evenkeel


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory) -> Path:
    """One unbroken small run, to read from; tests must not write into it."""
    directory = tmp_path_factory.mktemp("runs") / "unbroken"
    evenkeel(arguments(directory))
    return directory
