"""Every script in examples/ runs as it stands, and says what its docstring promises."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def run_example(name: str, folder: Path) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, str(EXAMPLES / name)], cwd=folder, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_an_example_runs_from_any_folder(name, tmp_path):
    done = run_example(name, tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_own_reward_enters_the_reward(tmp_path):
    rows = [json.loads(line) for line in run_example("own_reward.py", tmp_path).stdout.splitlines()]
    # both pass; two returns in one function halve the rule's part: 0.7 * 1 + 0.3 * 1/2 = 0.85
    assert [row["reward"] for row in rows] == [1.0, pytest.approx(0.85)]


def test_own_tasks_are_the_same_from_source_and_from_file(tmp_path):
    shown = run_example("own_task.py", tmp_path).stdout
    half = len(shown) // 2
    assert shown[:half] == shown[half:] and "3 passed" in shown
