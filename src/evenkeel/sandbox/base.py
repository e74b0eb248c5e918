"""What a sandbox is asked and what it answers.

    Job(task, program) --run--> Verdict (records.py)        the program is executed, the answers are compared out here
    program            --inspect--> CodeFacts               the program is only parsed, in a sandbox child

`pool.py` ships the sandbox; anything with these four members can take its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from evenkeel.records import Task, Verdict


@dataclass(frozen=True)
class Job:
    """One program to run against one task's hidden tests."""

    task: Task
    program: str
    """A whole program: what `tasks.base.program_of` made of the completion. Empty: there was no code."""


@dataclass(frozen=True)
class Limits:
    """What one program may use.

    >>> Limits(timeout_s=4.0, cpu_s=2, memory_mb=512, output_kb=1024).memory_mb
    512
    """

    timeout_s: float
    """Wall clock for the program and all its tests together, kept by the trainer: the backstop for programs that wait."""
    cpu_s: int
    """CPU seconds, kept by the kernel: a whole number, as its limit is. Well below `timeout_s` it decides on programs that
    compute, and a verdict then does not depend on what else the machine does."""
    memory_mb: int
    """Address space, kept by the kernel."""
    output_kb: int
    """Answers and prints together, counted by the trainer."""


@dataclass(frozen=True)
class CodeFacts:
    """What parsing alone says about a program; nothing here was executed.

    >>> facts = CodeFacts("unreadable", error="line 1: invalid syntax")
    >>> facts.parses, facts.num_statements
    (False, 0)
    """

    status: str
    """`parsed`; `unreadable`: by the program's own doing, as a syntax error, more than 64 KiB, or a text that broke the
    parser or used up its limits; `not_inspected`: a failure of ours, and nothing is known about the program."""
    error: str = ""
    """Why it is not parsed; one line, made of model output."""
    num_lines: int = 0
    """Lines that are not blank."""
    num_long_lines: int = 0
    """Lines of more than 100 characters."""
    num_comment_lines: int = 0
    """Lines whose first character is #."""
    num_statements: int = 0
    """All statements but docstrings, nested ones included."""
    num_repeated_statements: int = 0
    """Simple statements (no compound, return or pass) that occur literally a second, third... time in the program."""
    num_functions: int = 0
    num_parameters: int = 0
    """Of all functions."""
    num_annotations: int = 0
    """Parameters and results with a type annotation."""
    has_docstring: bool = False
    """The module or at least one function has one."""
    docstring_chars: int = 0
    """Of all docstrings together."""
    cyclomatic_complexity: int = 0
    """McCabe: 1 + branches (if, loop, except, case, boolean operator, conditional expression, comprehension's for and if)."""
    max_nesting: int = 0
    """Deepest nesting of compound statements below a function or the module."""
    num_loops: int = 0
    """for, while, and each `for` of a comprehension."""
    max_loop_depth: int = 0
    """Deepest nesting of loops, comprehensions included."""
    num_names: int = 0
    """Different names bound: variables, parameters, functions, classes, imports."""
    mean_name_chars: float = 0.0
    num_short_names: int = 0
    """Names of one character, other than _ and loop counters i, j, k."""
    num_unused_names: int = 0
    """Variables, parameters and imports that nothing in the program reads; _ not counted."""
    num_calls: int = 0
    num_bare_excepts: int = 0
    """`except:` without a type."""
    num_returns: int = 0

    @property
    def parses(self) -> bool:
        return self.status == "parsed"


@dataclass(frozen=True)
class Isolation:
    """What stands between a program and the machine, found by trying.

    >>> Isolation(("process",), ("pid namespace: not permitted",), uid=1000, weak=True, reason="no PID namespace").weak
    True
    """

    layers: tuple[str, ...]
    """Active: `non-root uid`, `pid namespace`, `network namespace`, `private root`, `rlimits`, ..."""
    missing: tuple[str, ...]
    """Tried in vain, each with the machine's reason."""
    uid: int
    """User id that the programs run under."""
    weak: bool
    """True when a program could reach the processes of this machine: run only what you trust."""
    reason: str = ""
    """Why it is weak; empty otherwise."""


class Sandbox(Protocol):
    """Runs programs that nobody trusts."""

    isolation: Isolation

    def run(self, jobs: Sequence[Job]) -> list[Verdict]:
        """Verdicts in the order of the jobs. What programs do is data; a failure of ours is `Outcome.INFRASTRUCTURE`."""

    def inspect(self, programs: Sequence[str]) -> list[CodeFacts]:
        """Facts in the order of the programs, which are parsed and never executed. A failure of ours is `not_inspected`."""

    def close(self) -> None:
        """Leaves no process behind."""
