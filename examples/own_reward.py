"""A reward of your own: a house rule that wants one `return` per function.

    python examples/own_reward.py

In a configuration it is named as `module:name`, with its weight:

    reward:
      custom:
        own_reward:SingleReturn: 0.3

Modules are found in the current folder and on PYTHONPATH.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from evenkeel.cli import run
from evenkeel.records import RewardPart
from evenkeel.reward.base import Submission


@dataclass(frozen=True)
class SingleReturn:
    """share of tests passed * functions / returns, at most 1. Made with its weight; frozen, so that grades can be reused."""

    weight: float
    name: str = "single_return"
    needs_facts: bool = True  # facts come from parsing the program in the sandbox

    def grade(self, submissions: Sequence[Submission]) -> list[list[RewardPart]]:
        return [[self.part(submission)] for submission in submissions]

    def part(self, submission: Submission) -> RewardPart:
        facts, verdict = submission.facts, submission.verdict
        if not verdict.scored or (facts is None and verdict.share > 0):
            return RewardPart(self.name, self.weight, "unscored", reason="the sandbox failed")  # never 0 for our own failures
        if facts is None or facts.num_returns == 0:
            return RewardPart(self.name, self.weight, "scored", verdict.share)
        tidiness = min(1.0, facts.num_functions / facts.num_returns)
        return RewardPart(self.name, self.weight, "scored", verdict.share * tidiness)


TASK = {"task_id": "sign", "prompt": "def sign(n):\n", "entry_point": "sign",
        "tests": [{"args": [n], "expected": (n > 0) - (n < 0)} for n in (5, 0, -5)]}  # fmt: skip
ANSWERS = ["    return (n > 0) - (n < 0)\n", "    if n > 0:\n        return 1\n    return -1 if n else 0\n"]
# allow_weak: these answers are ours, so no isolation is needed to run them
CONFIG = "reward: {tests: 0.7, teacher: 0.0, custom: {'own_reward:SingleReturn': 0.3}}\nsandbox: {allow_weak: true}\n"

if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        tasks, answers, config = (Path(folder, name) for name in ("tasks.jsonl", "answers.jsonl", "config.yaml"))
        tasks.write_text(json.dumps(TASK))
        answers.write_text("".join(json.dumps({"task_id": "sign", "completion": answer}) + "\n" for answer in ANSWERS))
        config.write_text(CONFIG)
        sys.exit(run(["score", str(tasks), str(answers), "--config", str(config), "--json"]))
