"""The processes that train one run together, over Accelerate.

    every process samples and scores its share of the tasks
      -> all scored groups are gathered, so that credit, divisors and records are those of one process
      -> every process runs its share of the rows
      -> gradients are summed: each loss is already divided by the counts of the whole step

So the update of N processes is the update of one, up to the order of floating-point sums. One process is the case N = 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list, gather_object

Item = TypeVar("Item")


class World:
    """This process among its peers."""

    def __init__(self, *, cpu: bool):
        self._accelerator = Accelerator(cpu=cpu)

    @property
    def size(self) -> int:
        return self._accelerator.num_processes

    @property
    def is_main(self) -> bool:
        """The process that writes the run directory and talks to the person."""
        return self._accelerator.is_main_process

    def share(self, items: Sequence[Item]) -> Sequence[Item]:
        """This process's part of the items: every size-th, from its own index on."""
        return items[self._accelerator.process_index :: self.size]

    def gather(self, items: Sequence[Item]) -> list[Item]:
        """All processes' shares, put back in the order that `share` cut up. The records travel as Python objects between
        our own processes; none of them comes from model-written code other than as text."""
        if self.size == 1:
            return list(items)
        shares: list[list[Item]] = gather_object([list(items)])
        whole: list[Any] = [None] * sum(len(share) for share in shares)
        for index, share in enumerate(shares):
            whole[index :: self.size] = share
        return whole

    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Replace each gradient by its sum over the processes; a process without rows contributes zeros."""
        if self.size == 1:
            return
        for parameter in parameters:
            gradient = parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
            parameter.grad = self._accelerator.reduce(gradient, reduction="sum")

    def sum_numbers(self, numbers: Sequence[float]) -> list[float]:
        if self.size == 1:
            return list(numbers)
        tensor = torch.tensor(numbers, dtype=torch.float64, device=self._accelerator.device)
        return self._accelerator.reduce(tensor, reduction="sum").tolist()

    def from_main(self, value: Item) -> Item:
        """The main process's value, in every process."""
        if self.size == 1:
            return value
        holder = [value]
        broadcast_object_list(holder, from_process=0)
        return holder[0]

    def wait(self) -> None:
        self._accelerator.wait_for_everyone()

    def main_first(self) -> AbstractContextManager[None]:
        """The body runs in the main process, then in the others."""
        return self._accelerator.main_process_first()
