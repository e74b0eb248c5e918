"""`docs/config.md`, made from the schema: `python -m evenkeel.config.document > docs/config.md`. A test compares the two."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from evenkeel.config.schema import RunConfig
from evenkeel.config.settings import Setting, all_settings, is_switch, section_of

HEADER = """# Configuration

<!-- Made from src/evenkeel/config/schema.py by `make docs`. Change the schema, not this page. -->

One YAML file, with the sections below; what it leaves out has the default. `--set section.key=value` changes a setting on
the command line (the value is YAML), as often as needed. An unknown key is an error that names the nearest known one, and
nothing is coerced: `"1e-5"` in quotes is text, not a number. A setting that another one makes meaningless is an error too.
`evenkeel plan CONFIG` says what a file will really do.

Three words, because other trainers use them differently:

- `training.batch_size` counts **completions per micro-batch**. It sets the memory, never the gradient.
- A **group** is the `rlaif.num_samples_per_prompt` completions of one task. Groups are formed first and packed into
  micro-batches afterwards; an optimizer step has ceil(batch_size * gradient_accumulation_steps / num_samples_per_prompt)
  whole groups.
- An **epoch** is one pass over the train tasks.

The learning rate of the first optimizer step is the schedule's value at 0, as in transformers: with warmup it is 0.
"""


def document() -> str:
    """The whole page."""
    return HEADER + "".join(_section(name) for name in RunConfig.model_fields)


def _section(name: str) -> str:
    section = section_of(RunConfig.model_fields[name])
    assert section is not None, name
    rows = "".join(_row(setting, name) for setting in all_settings(section, f"{name}."))
    notes = "".join(_notes(name, section))
    summary = f"{section.__doc__.strip()}\n\n" if section.__doc__ else ""
    return f"\n## {name}\n\n{summary}| setting | accepts | default | |\n|---|---|---|---|\n{rows}{notes}"


def _row(setting: Setting, section: str) -> str:
    cells = (
        f"`{setting.path.removeprefix(section + '.')}`",
        setting.accepts,
        f"`{_shown(setting.default)}`",
        setting.description,
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _notes(name: str, section: Any) -> Iterator[str]:
    for field_name, field in section.model_fields.items():
        if is_switch(section_of(field)):
            yield f"\n`{name}.{field_name}: true` (or `false`) is short for `{name}.{field_name}.enabled`.\n"


def _shown(default: Any) -> str:
    return json.dumps(default)


if __name__ == "__main__":
    print(document(), end="")
