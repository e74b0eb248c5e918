"""Write the embedded tasks: `python tools/make_tasks.py`. The same seed gives the same tasks."""

from __future__ import annotations

from pathlib import Path

from evenkeel.tasks.jsonl import write_tasks
from evenkeel.tasks.synthetic import draw_tasks

SIZES = {"train": 640, "validation": 160, "test": 320}
SEED = 0


def main(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for split, count in SIZES.items():
        write_tasks(directory / f"{split}.jsonl.gz", draw_tasks(split, count, SEED))


if __name__ == "__main__":
    main(Path(__file__).parents[1] / "src" / "evenkeel" / "embedded" / "tasks")
