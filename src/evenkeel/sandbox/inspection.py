"""Facts about programs, gathered by a sandbox child that parses them and executes nothing.

One child parses program after program. A child that falls silent is replaced, and the program at which it did is the next
one's first: the limits are meant for one program, so only a program that has a child to itself is blamed for breaking it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import fields

from evenkeel import codec
from evenkeel.sandbox.base import CodeFacts, Limits
from evenkeel.sandbox.facts import MAX_SOURCE_BYTES
from evenkeel.sandbox.zygote import Child, Ending, Stopped, Zygote

_TYPES = {field.name: {"bool": bool, "str": str, "int": int, "float": float}[field.type] for field in fields(CodeFacts)}


def inspect_in(zygote: Zygote, programs: Sequence[str], limits: Limits) -> list[CodeFacts]:
    """Facts in the order of the programs. Raises ZygoteLost when our side failed."""
    facts: list[CodeFacts] = []
    while len(facts) < len(programs):
        num_before = len(facts)
        stop = None
        child = zygote.start_child()
        child.send(json.dumps({"mode": "facts"}) + "\n")
        try:
            for program in programs[num_before:]:
                facts.append(_inspect_one(child, program, limits.timeout_s))
        except (Stopped, codec.CodecError) as error:
            stop = error
        ending = zygote.end_child(child)
        if stop is not None and len(facts) == num_before:
            facts.append(broken_off(stop, ending, limits))
    return facts


def broken_off(stop: Stopped | codec.CodecError, ending: Ending, limits: Limits) -> CodeFacts:
    """What is known of the program on which a child of its own fell silent.

    Parsing waits for nothing, so a parser that the clock stopped before it had half of that time as CPU was starved by the
    machine; everything else is the program's doing.

    >>> limits = Limits(timeout_s=4.0, cpu_s=2, memory_mb=512, output_kb=1024)
    >>> broken_off(Stopped("timeout"), Ending(-9, cpu_s=0.3), limits).status
    'not_inspected'
    >>> broken_off(Stopped("ended"), Ending(-11, cpu_s=0.3), limits).status
    'unreadable'
    """
    if isinstance(stop, Stopped) and stop.reason == "timeout" and 2 * ending.cpu_s < limits.timeout_s:
        return CodeFacts("not_inspected", error=f"the parser had {ending.cpu_s:.1f} s of CPU in {limits.timeout_s:g} s")
    return CodeFacts("unreadable", error=f"the parser gave up: {stop}"[:200])


def _inspect_one(child: Child, program: str, timeout_s: float) -> CodeFacts:
    if len(program) > MAX_SOURCE_BYTES:
        return CodeFacts("unreadable", error=f"longer than {MAX_SOURCE_BYTES // 1024} KiB")
    child.send(json.dumps([0, program]) + "\n")
    message = codec.parse(child.read_line(time.monotonic() + timeout_s))
    if not isinstance(message, list) or len(message) != 3 or not isinstance(message[2], dict):
        raise codec.CodecError("no facts")
    found = message[2]
    if any(name not in _TYPES or type(value) is not _TYPES[name] for name, value in found.items()):
        raise codec.CodecError("facts of the wrong type")
    if found.get("status") not in ("parsed", "unreadable"):  # that we failed is not for a child to say
        raise codec.CodecError("facts without a status")
    return CodeFacts(**found)
