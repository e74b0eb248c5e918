"""From a YAML file and `--set` overrides to a validated configuration, and back.

    file -> plain mapping -> overrides merged in -> checked against the schema -> RunConfig

Nothing is coerced: "1e-5" in quotes is text and an error, not a number. All errors of one attempt are reported together,
each with what was asked, what was found and what to do.
"""

from __future__ import annotations

import io
import json
import math
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from evenkeel.config.schema import RunConfig
from evenkeel.config.settings import describe, is_switch, nearest, section_of
from evenkeel.errors import RunError, UsageError


def load_config(path: Path | None, overrides: Sequence[str] = ()) -> RunConfig:
    """The configuration in the file, or the defaults without one, with `section.key=value` overrides on top."""
    values = {} if path is None else _read_file(Path(path))
    return _build(values, overrides, source="the configuration" if path is None else str(path))


def apply_overrides(config: RunConfig, overrides: Sequence[str]) -> RunConfig:
    """The same configuration with some settings changed; what was left at its default stays so."""
    return _build(config.model_dump(mode="json", exclude_unset=True), overrides, source="the configuration")


def dump_config(config: RunConfig, path: Path) -> None:
    """Write every setting, section by section, so that `load_config(path)` gives an equal configuration. Atomic."""
    yaml = YAML()
    yaml.default_flow_style = False
    text = io.StringIO()
    yaml.dump(config.model_dump(mode="json"), text)
    path = Path(path)
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text.getvalue())
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            Path(temporary).unlink(missing_ok=True)
    except OSError as error:
        raise RunError(f"Could not write `{path}`: {error.strerror}. Free space or choose another `--out`.") from error


def _read_file(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"`{path}` was asked for as the configuration, but there is no such file. Check the path.") from None
    except OSError as error:
        raise UsageError(f"`{path}` could not be read as the configuration: {error.strerror}. Name a YAML file.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"`{path}` is not UTF-8 text (byte {error.start}). Name a YAML file.") from error
    values = parse_yaml(text, f"`{path}`")
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise UsageError(f"`{path}` must be a mapping of sections (`training:`, `rlaif:`, ...), but is {_found(values)}.")
    return values


def parse_yaml(text: str, what: str) -> Any:
    """A YAML 1.2 value as plain Python data; `what` names the text in the error."""
    yaml = YAML(typ="safe", pure=True)
    try:
        return yaml.load(text)
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        raise UsageError(f"{what}{where}: not valid YAML: {getattr(error, 'problem', None) or error}.") from error


# --------------------------------------------------------------------------- overrides


def _build(values: dict[str, Any], overrides: Sequence[str], *, source: str) -> RunConfig:
    merged = _expand_switches(values, RunConfig)
    for override in overrides:
        merged = _merge(merged, _expand_switches(_parse_override(override), RunConfig))
    try:
        # Through JSON because pydantic's strict mode then still takes a list for a tuple and a whole number for a float.
        return RunConfig.model_validate_json(json.dumps(_text_keys(merged), default=str), strict=True)
    except ValidationError as error:
        messages = list(dict.fromkeys(_messages(error, merged)))
    heading = f"{source}: {len(messages)} errors\n  - " if len(messages) > 1 else f"{source}: "
    raise UsageError(heading + "\n  - ".join(messages))


def _parse_override(override: str) -> dict[str, Any]:
    """`training.lr_scheduler_kwargs.num_cycles=2` -> {"training": {"lr_scheduler_kwargs": {"num_cycles": 2}}}."""
    key, equals, text = override.partition("=")
    parts = _split_path(key.strip())
    if not equals or not all(parts) or len(parts) < 2:
        raise UsageError(
            f"`--set {override}` is not of the form section.key=value. Write for example: --set training.learning_rate=5e-6"
        )
    value = parse_yaml(text, f"`--set {override}`")
    for part in reversed(parts):
        value = {part: value}
    return value


def _text_keys(values: Any) -> Any:
    """YAML allows any value as a key, JSON only text."""
    return {str(key): _text_keys(value) for key, value in values.items()} if isinstance(values, dict) else values


def _split_path(key: str) -> list[str]:
    """Cut at dots, but not inside the names of a free mapping: `reward.custom.my.module:Name` has three parts."""
    parts, rest, model = [], key, RunConfig
    while "." in rest and model is not None:
        name, _, rest = rest.partition(".")
        parts.append(name)
        field = model.model_fields.get(name)
        if field is None:
            return parts + rest.split(".")
        model = section_of(field)
    return [*parts, rest]


def _expand_switches(values: Any, model: type[BaseModel]) -> Any:
    """`reward_shaping: true` -> {enabled: true}; `training:` with nothing below it -> {}."""
    if not isinstance(values, dict):
        return values
    expanded = {}
    for key, value in values.items():
        field = model.model_fields.get(key) if isinstance(key, str) else None
        section = section_of(field) if field is not None else None
        if isinstance(value, bool) and is_switch(section):
            value = {"enabled": value}
        elif value is None and field is not None and field.annotation is section:
            value = {}
        expanded[key] = _expand_switches(value, section) if section is not None else value
    return expanded


def _merge(base: Any, change: Any) -> Any:
    """`change` over `base`: mappings merge key by key, everything else is replaced."""
    if not (isinstance(base, dict) and isinstance(change, dict)):
        return change
    return base | {name: _merge(base[name], value) if name in base else value for name, value in change.items()}


# --------------------------------------------------------------------------- errors in words


def _messages(error: ValidationError, values: Mapping[str, Any]) -> list[str]:
    return [_message(item["type"], item["loc"], values) for item in error.errors(include_url=False)]


def _message(kind: str, location: tuple[int | str, ...], values: Mapping[str, Any]) -> str:
    """One error of pydantic's in our words. One inside a union (`reward_threshold.float`) is told as the whole setting."""
    model: type[BaseModel] | None = RunConfig
    path: list[str] = []
    found: Any = values
    for part in location:
        field = model.model_fields.get(part) if model is not None and isinstance(part, str) else None
        if field is None:
            break
        path.append(str(part))
        found = found.get(part) if isinstance(found, Mapping) else found
        section = section_of(field)
        model = section if field.annotation is section else None
        if model is None:
            return f"`{'.'.join(path)}` must be {describe(field)}, but is {_found(found)}.{_hint(found)}"
    if kind == "extra_forbidden":
        unknown = ".".join([*path, *(str(part) for part in location[len(path) :])])
        guess = nearest(unknown)
        advice = f"did you mean `{guess}`?" if guess else f"known there: {', '.join(model.model_fields if model else ())}."
        return f"`{unknown}` is not a setting; {advice}"
    asked = ("true, false or " if is_switch(model) else "") + "a mapping of settings"
    keys = ", ".join(model.model_fields) if model else ""
    return f"`{'.'.join(path)}` must be {asked} ({keys}), but is {_found(found)}."


def _found(value: Any) -> str:
    """The value as the user wrote it, with the type where that is the point."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'the text "{value[:80]}"'
    if isinstance(value, int | float):
        return str(value)
    kind = "a mapping" if isinstance(value, Mapping) else "a list" if isinstance(value, list) else "a " + type(value).__name__
    return f"{kind}: {str(value)[:80]}"


def _hint(value: Any) -> str:
    """What to do where the value shows what went wrong."""
    if isinstance(value, str):
        try:
            float(value)
        except ValueError:
            return ""
        return " Remove the quotes."
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        return f" If {int(value)} was meant, write it without a point or exponent."
    return ""
