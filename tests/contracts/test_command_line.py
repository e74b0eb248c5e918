"""`evenkeel --help` is light, and every command in the table is really there."""

import importlib
import subprocess
import sys

import pytest

from evenkeel.cli import COMMANDS, run

HEAVY = ("torch", "transformers", "pydantic", "numpy", "scipy", "rich", "ruamel.yaml")


def modules_after(*arguments: str) -> set[str]:
    """The modules that one call of the command line has imported, in a fresh process."""
    script = (
        "import sys\nfrom evenkeel.cli import run\n"
        f"code = run({list(arguments)!r})\n"
        "print(code, *sorted(sys.modules), sep='\\n', file=sys.stderr)"
    )
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    code, *modules = finished.stderr.splitlines()
    assert code == "0", finished.stderr
    return set(modules)


def test_help_imports_neither_torch_nor_pydantic_nor_anything_else_that_is_heavy():
    assert modules_after("--help").isdisjoint(HEAVY)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_every_command_needs_no_torch(name):  # typer itself uses pydantic to read options
    assert modules_after(name, "--help").isdisjoint(("torch", "transformers"))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_of_the_table_is_there_and_documented(name):
    entry = COMMANDS[name]
    function = getattr(importlib.import_module(entry.module), entry.function)
    assert function.__doc__


def test_help_lists_every_command_with_its_whole_summary(capsys):
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown and entry.summary in shown for name, entry in COMMANDS.items())


def test_planning_needs_no_torch():
    modules = modules_after("plan", "--tasks", "100", "--json")
    assert modules.isdisjoint(("torch", "transformers"))
