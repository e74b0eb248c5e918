"""The command line: one table of commands, each imported only when it is called.

    evenkeel NAME ... -> COMMANDS[NAME] -> module in cli/ -> its function -> exit code

`evenkeel --help` therefore imports neither torch nor pydantic and answers at once. Exit codes: 0 success, 1 this run
cannot go on, 2 the user can fix it, 130 Ctrl-C. Errors raised on purpose are shown without a traceback; anything else is
our mistake and keeps its own.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from evenkeel.errors import MissingExtra, RunError, UsageError

EXIT_RUN_ERROR, EXIT_USAGE_ERROR, EXIT_INTERRUPTED = 1, 2, 130


@dataclass(frozen=True)
class CommandEntry:
    """Where a command lives.

    >>> COMMANDS["plan"].function
    'plan'
    """

    module: str
    """Dotted; imported when the command is called."""
    function: str
    """A plain function with typer-annotated parameters; its docstring is the command's own help."""
    summary: str
    """One line for `evenkeel --help`, which does not import the module."""


COMMANDS = {
    "train": CommandEntry("evenkeel.cli.train", "train", "Train a student; without a configuration: the embedded default."),
    "plan": CommandEntry("evenkeel.cli.plan", "plan", "What a configuration will really do, and where it errs."),
    "score": CommandEntry("evenkeel.cli.score", "score", "Rewards for given completions, without training."),
    "eval": CommandEntry("evenkeel.cli.evaluate", "evaluate", "Unbiased pass@k of a model or a run."),
    "samples": CommandEntry(
        "evenkeel.cli.samples", "samples", "Read what the student writes: the best, the worst, what changed."
    ),
    "compare": CommandEntry("evenkeel.cli.compare", "compare", "Two runs, paired by task."),
    "export": CommandEntry("evenkeel.cli.export", "export", "A plain transformers model, or the metrics as JSONL or CSV."),
    "sandbox": CommandEntry("evenkeel.cli.sandbox", "sandbox", "Which isolation this machine gives, and what it withstands."),
}

EXTRA_OF_LIBRARY = {"torch": "train", "transformers": "train", "peft": "train", "accelerate": "train", "safetensors": "train",
                    "tokenizers": "train", "datasets": "data", "bitsandbytes": "quantized"}  # fmt: skip


class LazyCommand(TyperCommand):
    """Knows its name and summary; becomes the real command when its arguments are to be read."""

    def __init__(self, name: str, entry: CommandEntry):
        super().__init__(name, callback=None, help=entry.summary, rich_markup_mode=None)
        self.entry = entry

    def load(self) -> Any:
        module = importlib.import_module(self.entry.module)
        single = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        single.command(self.name)(getattr(module, self.entry.function))
        return typer.main.get_command(single)

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        return self.load().make_context(info_name, args, parent=parent, **extra)


class LazyGroup(TyperGroup):
    """The commands of the table."""

    def __init__(self, **attributes: Any):
        super().__init__(**attributes)
        self.commands.update({name: LazyCommand(name, entry) for name, entry in COMMANDS.items()})


# rich_markup_mode=None: plain help, because rich would double the time to the first line.
app = typer.Typer(cls=LazyGroup, name="evenkeel", no_args_is_help=True, add_completion=False, rich_markup_mode=None,
                  pretty_exceptions_enable=False)  # fmt: skip


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"evenkeel {version('evenkeel')}")
        raise typer.Exit()


@app.callback()
def evenkeel(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Train code models with reinforcement learning from AI feedback, and keep the training on an even keel."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; errors raised on purpose become one message on stderr."""
    # Idle OpenMP threads sleep instead of spinning. On a machine with other work, spinning threads wait for one that is not
    # running: sampling took up to ten times longer. Read when torch is loaded, so it must be set before; your own value stands.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    command = typer.main.get_command(app)
    try:
        command.main(args=None if arguments is None else list(arguments), prog_name="evenkeel")
    except SystemExit as finished:
        return finished.code if isinstance(finished.code, int) else int(finished.code is not None)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except UsageError as error:
        return _fail(error, EXIT_USAGE_ERROR)
    except RunError as error:
        return _fail(error, EXIT_RUN_ERROR)
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library not in EXTRA_OF_LIBRARY:
            raise
        return _fail(MissingExtra(library, EXTRA_OF_LIBRARY[library], "This command"), EXIT_USAGE_ERROR)
    return 0


def _fail(error: Exception, code: int) -> int:
    """Messages quote files and model output, so control characters are taken out."""
    from evenkeel.cli.text import plain_text

    typer.echo(f"evenkeel: {plain_text(str(error))}", err=True)
    return code


def main() -> None:
    sys.exit(run())
