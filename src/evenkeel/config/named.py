"""Extension points: from `module:name` in the configuration to the object that it names, and whether that is allowed."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

from evenkeel.errors import UsageError


def trusted(config_path: Path | None) -> bool:
    """Whether a configuration may name code of its own: only the user's may, and one that lies in a run's directory, or in a
    folder of it, may be a stranger's. `None`, no file, is trusted: all names then come from the command line.

    Both the path as it is written and where its links lead must lie outside.
    """
    if config_path is None:
        return True
    folders = {*config_path.absolute().parents, *config_path.resolve().parents}
    return not any((folder / "run.db").exists() for folder in folders)


def named_object(named: str, *, setting: str, allowed: bool) -> Any:
    """What `module:name` names. Modules in the current folder are found too, as with `python -m`.

    `setting` is the configuration's key, for the errors. `allowed` False refuses: a configuration that came with a
    stranger's run imports nothing.

    >>> named_object("math:pi", setting="data.train", allowed=True)
    3.141592653589793
    """
    module_name, colon, attribute = named.partition(":")
    if not (module_name and colon and attribute):
        raise UsageError(f"`{setting}` is `{named}`; write `module:name`, such as `my_module:MyClass`.")
    if not allowed:
        raise UsageError(
            f"`{setting}` names `{named}`, and code that is named in the configuration of a run is not imported: it may be a "
            "stranger's. If you trust its author, copy the configuration out of the run's directory, or go on with the run by "
            "`evenkeel train --resume RUN --allow-code`."
        )
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # last: a file here must not stand in for a library
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # the module is there; something that it imports is not
        where = f"in {os.getcwd()} or installed"
        raise UsageError(f"`{setting}` is `{named}`, but there is no module `{error.name}` {where}.") from None
    if not hasattr(module, attribute):
        where = getattr(module, "__file__", None) or "built in"
        raise UsageError(f"`{setting}` is `{named}`, but the module `{module_name}` ({where}) has no `{attribute}`.")
    return getattr(module, attribute)
