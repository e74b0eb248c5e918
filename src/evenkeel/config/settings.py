"""The schema in words: which settings exist, what each accepts, and which one a misspelt name meant.

`load.py` makes its error messages from it and `document.py` the reference page, so the two cannot disagree.
"""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from evenkeel.config.schema import RunConfig

BOUNDS = {"gt": "greater than {}", "ge": "at least {}", "lt": "less than {}", "le": "at most {}"}


@dataclass(frozen=True)
class Setting:
    """One setting.

    >>> next(s for s in all_settings() if s.path == "training.batch_size").accepts
    'a whole number, at least 1'
    """

    path: str
    """Dotted, as on the command line: `training.lr_scheduler_kwargs.num_cycles`."""
    accepts: str
    """Type and bounds in words."""
    default: Any
    description: str


def all_settings(model: type[BaseModel] = RunConfig, prefix: str = "") -> Iterator[Setting]:
    """Every setting in the schema's order; a section itself is not one, but an optional one (`reward_threshold`) is."""
    for name, field in model.model_fields.items():
        section = section_of(field)
        if section is not None and field.annotation is section:
            yield from all_settings(section, f"{prefix}{name}.")
        else:
            yield Setting(prefix + name, describe(field), field.get_default(call_default_factory=True), field.description or "")


def section_of(field: FieldInfo) -> type[BaseModel] | None:
    """The section that a field holds, also where it is one choice of several (`float | QuantileThreshold | None`)."""
    for choice in _choices(field.annotation):
        if isinstance(choice, type) and issubclass(choice, BaseModel):
            return choice
    return None


def is_switch(section: type[BaseModel] | None) -> bool:
    """Whether the section may be written as true or false, meaning {enabled: true}."""
    return section is not None and "enabled" in section.model_fields


def describe(field: FieldInfo) -> str:
    """What the field accepts, in words: `a number, greater than 0, at most 1`."""
    bounds = [
        words.format(getattr(item, name)) for item in field.metadata for name, words in BOUNDS.items() if hasattr(item, name)
    ]
    return ", ".join([" or ".join(_words(choice) for choice in _choices(field.annotation)), *bounds])


def _choices(annotation: Any) -> tuple[Any, ...]:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return typing.get_args(annotation)
    return (annotation,)


def _words(annotation: Any) -> str:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return " or ".join(f"`{choice}`" for choice in arguments)
    if origin is tuple:
        return f"a list, each {_words(arguments[0])}"
    if origin is dict:
        return f"a mapping from names, each to {_words(arguments[1])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "a mapping {" + "; ".join(f"{name}: {describe(field)}" for name, field in annotation.model_fields.items()) + "}"
    return {bool: "true or false", int: "a whole number", float: "a number", str: "text", types.NoneType: "null"}[annotation]


def known_paths() -> list[str]:
    """Every setting and every section, also those inside an optional section."""
    return list(_paths(RunConfig, ""))


def _paths(model: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield prefix + name
        section = section_of(field)
        if section is not None:
            yield from _paths(section, f"{prefix}{name}.")


def nearest(path: str) -> str | None:
    """The known path that an unknown one most likely meant: the right name in the wrong place, else a misspelling in its
    own section, else the most similar name anywhere.

    >>> nearest("training.learning_rte"), nearest("training.kl_penalty"), nearest("learning_rate")
    ('training.learning_rate', 'rlaif.kl_penalty', 'training.learning_rate')
    """
    section, _, name = path.rpartition(".")
    paths = known_paths()
    siblings = [known for known in paths if known.rpartition(".")[0] == section]
    elsewhere = [known for known in paths if known.rpartition(".")[2] == name]
    close = _similar(name, siblings) or elsewhere or _similar(name, paths)
    return close[0] if close else None


def _similar(name: str, paths: list[str]) -> list[str]:
    """Paths whose last part is a likely misspelling of the name, else those that contain it as whole words
    (`temperature`, `generation_temperature`), best first."""
    by_last_part: dict[str, str] = {}
    for path in paths:
        by_last_part.setdefault(path.rpartition(".")[2], path)
    close = difflib.get_close_matches(name, by_last_part, n=1, cutoff=0.75)
    close = close or [part for part in by_last_part if part.endswith("_" + name) or part.startswith(name + "_")]
    return [by_last_part[part] for part in close]
