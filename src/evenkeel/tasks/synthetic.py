"""The embedded tasks: Python functions composed of one to four small steps, with a docstring, visible and hidden tests.

    kind of the argument -> parts, chained by kind -> docstring, reference, cases -> Task

A *composition* is the sequence of part names. Train, validation and test share none: a hash of the composition decides
its split, so the student is measured on combinations that it was never trained on. The files that ship in
`embedded/tasks/` were written by `tools/make_tasks.py` with the functions here; a test makes them again and compares.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import as_file, files
from typing import Any

from evenkeel.records import Task, TestCase
from evenkeel.tasks.jsonl import read_tasks
from evenkeel.tasks.synthetic_parts import PARTS, Part

VARIABLES = {"list": "xs", "text": "s", "words": "ws", "dict": "d", "number": "n"}
PARTS_TAKING = {kind: [part for part in PARTS if part.takes == kind] for kind in VARIABLES}
START_KINDS = ("list", "list", "list", "text", "text", "words", "dict", "number")
CORPUS_STEPS = (2, 6, 7, 5)
"""How often a text of the student's corpus has one, two, three, four steps, out of 20."""
TASK_STEPS = (1, 5, 12, 12)
"""The same for tasks, out of 30: fewer of the short ones, which need little learning."""
MAX_STEPS = len(TASK_STEPS)
HIDDEN_CASES = 6
WORDS = "red blue green stone river cloud apple tree moon salt old small quick open warm north seven echo lamp bird".split()


@dataclass(frozen=True)
class Step:
    """One part with its number filled in."""

    part: Part
    number: int
    """0 where the part takes none."""

    def phrase(self) -> str:
        return self.part.phrase.format(k=self.number)

    def expression(self, *, slip: bool = False) -> str:
        template = self.part.slip if slip and self.part.slip else self.part.right
        return template.format(v=VARIABLES[self.part.takes], k=self.number)


Composition = tuple[Step, ...]


def composition_key(steps: Composition) -> str:
    return ">".join(step.part.name for step in steps)


def split_of(steps: Composition) -> str:
    """`train` (70 %), `validation` or `test` (15 % each), decided by the composition alone."""
    bucket = int.from_bytes(hashlib.sha256(composition_key(steps).encode()).digest()[:4]) % 100
    return "train" if bucket < 70 else "validation" if bucket < 85 else "test"


def draw_composition(rng: random.Random, step_weights: tuple[int, ...]) -> Composition:
    """A random chain of parts in which each takes what the one before gives; no part occurs twice in a row."""
    kind = rng.choice(START_KINDS)
    count = rng.choices(range(1, MAX_STEPS + 1), step_weights)[0]
    steps: list[Step] = []
    while len(steps) < count:
        part = rng.choice(PARTS_TAKING[kind])
        if steps and steps[-1].part is part:
            continue
        steps.append(Step(part, rng.choice(part.numbers) if part.numbers else 0))
        kind = part.gives
    return tuple(steps)


def write_body(steps: Composition, slips: tuple[bool, ...] | None = None) -> str:
    """The function body, one line a step. `slips[i]` writes the i-th step wrongly."""
    slips = slips or (False,) * len(steps)
    lines = [
        f"    {VARIABLES[step.part.gives]} = {step.expression(slip=slip)}\n"
        for step, slip in zip(steps[:-1], slips, strict=False)
    ]
    return "".join(lines) + f"    return {steps[-1].expression(slip=slips[-1])}\n"


def write_prompt(steps: Composition, example: TestCase) -> str:
    sentence = ", then ".join(step.phrase() for step in steps)
    name = VARIABLES[steps[0].part.takes]
    return (
        f'def solve({name}):\n    """{sentence[0].upper()}{sentence[1:]}.\n\n'
        f'    >>> solve({example.args[0]!r})\n    {example.expected!r}\n    """\n'
    )


def draw_argument(kind: str, rng: random.Random, *, short: bool = False) -> Any:
    """A random argument; a short one for the example in the docstring."""
    size = rng.randint(3, 4) if short else rng.randint(5, 9)
    match kind:
        case "list":
            return [rng.randint(0, 12) for _ in range(size)]
        case "number":
            return rng.randint(2, 60)
        case "words":
            return rng.sample(WORDS, size)
        case "text":
            words = rng.sample(WORDS, 2 if short else rng.randint(2, 4))
            return " ".join(rng.choice((word, word.capitalize())) for word in words)
        case "dict":
            return {word: rng.randint(1, 6) for word in rng.sample(WORDS, size)}
    raise AssertionError(kind)


def run_body(steps: Composition, body: str, argument: Any) -> Any:
    """Run a body written by `write_body`, which holds nothing but the expressions of `synthetic_parts.py`. Never model text."""
    scope: dict[str, Any] = {}
    exec(f"def solve({VARIABLES[steps[0].part.takes]}):\n{body}", scope)
    return scope["solve"](argument)


def _tells_apart(steps: Composition, bodies: list[str], argument: Any, expected: Any) -> int:
    """How many of the wrong bodies this argument exposes."""
    exposed = 0
    for body in bodies:
        try:
            exposed += run_body(steps, body, argument) != expected
        except (TypeError, ValueError, IndexError, ZeroDivisionError, AttributeError):
            exposed += 1
    return exposed


def draw_cases(steps: Composition, rng: random.Random) -> tuple[TestCase, ...] | None:
    """One short visible case and HIDDEN_CASES hidden ones, chosen from 40 to expose single slips; None where that fails.

    A slip that most cases do not expose would be paid as if it were right.
    """
    kind = steps[0].part.takes
    right = write_body(steps)
    wrong = [
        write_body(steps, tuple(i == at for i in range(len(steps))))
        for at, step in enumerate(steps)
        if step.part.slip is not None
    ]
    example = draw_argument(kind, rng, short=True)
    visible = TestCase((example,), run_body(steps, right, example), visible=True)
    candidates = []
    for _ in range(40):
        argument = draw_argument(kind, rng)
        expected = run_body(steps, right, argument)
        candidates.append((_tells_apart(steps, wrong, argument, expected), TestCase((argument,), expected)))
    candidates.sort(key=lambda pair: -pair[0])
    chosen = [case for _, case in candidates[:HIDDEN_CASES]]
    always_exposed = all(exposed == len(wrong) for exposed, _ in candidates[:HIDDEN_CASES])
    varied = len({repr(case.expected) for case in chosen}) >= HIDDEN_CASES // 2
    too_long = any(len(repr(case.expected)) > 600 for case in (visible, *chosen))
    return None if too_long or not varied or not always_exposed else (visible, *chosen)


def make_task(task_id: str, steps: Composition, rng: random.Random) -> Task | None:
    """One task, or None when the composition allows no telling tests (it ends in the same value whatever the argument)."""
    cases = draw_cases(steps, rng)
    if cases is None or len(repr(cases[0].expected)) > 60:
        return None
    difficulty = sum(step.part.weight for step in steps) / (1.5 * MAX_STEPS)
    return Task(
        task_id, write_prompt(steps, cases[0]), "solve",
        cases=cases, difficulty=round(difficulty, 3), reference=write_body(steps),
    )  # fmt: skip


def embedded_tasks(split: str) -> tuple[Task, ...]:
    """The tasks that ship with the package: `train`, `validation` or `test`."""
    with as_file(files("evenkeel.embedded") / "tasks" / f"{split}.jsonl.gz") as path:
        return read_tasks(path).tasks


def draw_tasks(split: str, count: int, seed: int) -> Iterator[Task]:
    """`count` tasks of different compositions, all of one split."""
    rng = random.Random(f"{split}/{seed}")
    seen: set[str] = set()
    while len(seen) < count:
        steps = draw_composition(rng, TASK_STEPS)
        key = composition_key(steps)
        if key in seen or split_of(steps) != split:
            continue
        task = make_task(f"{split}/{len(seen):04d}", steps, rng)
        if task is not None:
            seen.add(key)
            yield task
