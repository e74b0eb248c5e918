"""Facts about programs, gathered by a sandbox child that parses them and executes nothing.

One child parses program after program; the one at which it falls silent is reported as not parsing, and a new child goes
on with the next.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import fields

from evenkeel import codec
from evenkeel.sandbox.base import CodeFacts, Limits
from evenkeel.sandbox.facts import MAX_SOURCE_BYTES
from evenkeel.sandbox.zygote import Child, Stopped, Zygote

_TYPES = {field.name: {"bool": bool, "str": str, "int": int, "float": float}[field.type] for field in fields(CodeFacts)}


def inspect_in(zygote: Zygote, programs: Sequence[str], limits: Limits) -> list[CodeFacts]:
    """Facts in the order of the programs. Raises ZygoteLost when our side failed."""
    facts: list[CodeFacts] = []
    while len(facts) < len(programs):
        child = zygote.start_child()
        child.send(json.dumps({"mode": "facts"}) + "\n")
        try:
            for program in programs[len(facts) :]:
                facts.append(_inspect_one(child, program, limits.timeout_s))
        except (Stopped, codec.CodecError) as stop:
            facts.append(CodeFacts(parses=False, error=f"the parser gave up: {stop}"[:200]))
        zygote.end_child(child)
    return facts


def _inspect_one(child: Child, program: str, timeout_s: float) -> CodeFacts:
    if len(program) > MAX_SOURCE_BYTES:
        return CodeFacts(parses=False, error=f"longer than {MAX_SOURCE_BYTES // 1024} KiB")
    child.send(json.dumps([0, program]) + "\n")
    message = codec.parse(child.read_line(time.monotonic() + timeout_s))
    if not isinstance(message, list) or len(message) != 3 or not isinstance(message[2], dict):
        raise codec.CodecError("no facts")
    found = message[2]
    if any(name not in _TYPES or type(value) is not _TYPES[name] for name, value in found.items()):
        raise codec.CodecError("facts of the wrong type")
    return CodeFacts(**found)
