"""An engine that answers from a script: for tests, for examples, and for scoring answers that others sampled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evenkeel.config.stages import SamplingSettings
from evenkeel.errors import UsageError
from evenkeel.records import Completion, SampleGroup, Task

END = 256


class ScriptedEngine:
    """Gives each task the next `num_samples` texts of its script, starting over at its end.

    Tokens are the bytes of the text and END; log-probabilities are 0 (a script is certain of itself).

    >>> engine = ScriptedEngine({"t": ["    return 1\\n", "    return 2\\n"]})
    >>> group, = engine.sample([Task("t", "def f():\\n", "f")], SamplingSettings(3, 1.0, 64), seeds=[0])
    >>> [completion.text.strip() for completion in group.completions]
    ['return 1', 'return 2', 'return 1']
    """

    def __init__(self, script: Mapping[str, Sequence[str]]):
        self._script = script
        self._position: dict[str, int] = {}

    def sample(self, tasks: Sequence[Task], settings: SamplingSettings, seeds: Sequence[int]) -> list[SampleGroup]:
        return [self._group(task, settings) for task in tasks]

    def _group(self, task: Task, settings: SamplingSettings) -> SampleGroup:
        texts = self._script.get(task.task_id)
        if not texts:
            raise UsageError(f"The script has no answer for task `{task.task_id}`; it has {len(self._script)} tasks. Add one.")
        start = self._position.get(task.task_id, 0)
        self._position[task.task_id] = start + settings.num_samples
        chosen = [texts[(start + offset) % len(texts)] for offset in range(settings.num_samples)]
        return SampleGroup(task, tuple(task.prompt.encode()), tuple(_completion(text, settings) for text in chosen))


def _completion(text: str, settings: SamplingSettings) -> Completion:
    ids = (*text.encode(), END)
    kept = ids[: settings.max_new_tokens]
    truncated = len(kept) < len(ids)
    return Completion(kept, (0.0,) * len(kept), bytes(kept if truncated else kept[:-1]).decode(errors="replace"), truncated)
