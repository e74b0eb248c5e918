"""Exit codes and what the user sees on stderr."""

import subprocess
import sys

import pytest

from evenkeel.cli import COMMANDS, CommandEntry, run
from evenkeel.errors import RunError, UsageError


def usage_error():
    raise UsageError("asked \x1b[31mthis\x1b[0m, found that")


def run_error():
    raise RunError("the disk is full")


def interrupted():
    raise KeyboardInterrupt


def needs_torch():
    raise ModuleNotFoundError("No module named 'torch.nn'", name="torch.nn")


def our_mistake():
    raise AssertionError("a bug")


def succeeds(count: int):
    print(count + 1)


@pytest.fixture
def command(monkeypatch):
    def register(function):
        monkeypatch.setitem(COMMANDS, "try-me", CommandEntry(__name__, function.__name__, "A command of the test."))
        return ["try-me"]

    return register


@pytest.mark.parametrize(
    ("function", "code", "shown"),
    [
        (usage_error, 2, "evenkeel: asked [31mthis[0m, found that"),  # the escape character is gone
        (run_error, 1, "evenkeel: the disk is full"),
        (interrupted, 130, ""),
        (needs_torch, 2, "needs `torch`, which is not installed. Run: pip install 'evenkeel[train]'"),
    ],
)
def test_errors_raised_on_purpose_are_one_message_and_an_exit_code(command, capsys, function, code, shown):
    assert run(command(function)) == code
    stderr = capsys.readouterr().err
    assert shown in stderr and "Traceback" not in stderr and "\x1b" not in stderr


def test_our_own_mistakes_keep_their_traceback(command):
    with pytest.raises(AssertionError, match="a bug"):
        run(command(our_mistake))


def test_a_command_gets_its_typed_arguments(command, capsys):
    assert run([*command(succeeds), "41"]) == 0
    assert capsys.readouterr().out == "42\n"
    assert run([*command(succeeds), "many"]) == 2


def test_a_misspelt_command_names_the_nearest_and_is_a_usage_error(capsys):
    assert run(["trian"]) == 2
    assert "Did you mean 'train'" in capsys.readouterr().err


def test_version_and_module_entry_point():
    finished = subprocess.run([sys.executable, "-m", "evenkeel.cli", "--version"], capture_output=True, text=True)
    assert finished.returncode == 0 and finished.stdout.startswith("evenkeel 0.")
