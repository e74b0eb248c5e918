"""A key-value cache that grows in place.

transformers' dynamic layer concatenates: every new token copies all keys and values of all rows. Here a layer owns a buffer
with free columns and hands out a view of the used ones; the buffer is copied only when it is full and when rows leave.

Legend: R rows, H key-value heads, T used columns, D head size.
"""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

FREE_COLUMNS = 32
"""Added when the buffer is full: few copies for long completions, little unused memory for short ones."""


class GrowingLayer(DynamicLayer):
    """`keys` and `values` are views of the used columns, so everything that reads a dynamic layer reads this one."""

    def __init__(self, keys_RHTD: Tensor, values_RHTD: Tensor):
        super().__init__()
        self.lazy_initialization(keys_RHTD, values_RHTD)
        self._hold(keys_RHTD, values_RHTD)

    def _hold(self, keys_RHTD: Tensor, values_RHTD: Tensor) -> None:
        """Copy into buffers with free columns behind."""
        used = keys_RHTD.shape[-2]
        shape = (*keys_RHTD.shape[:-2], used + FREE_COLUMNS, keys_RHTD.shape[-1])
        self._buffers = keys_RHTD.new_empty(shape), values_RHTD.new_empty(shape)
        for buffer, held in zip(self._buffers, (keys_RHTD, values_RHTD), strict=True):
            buffer[..., :used, :] = held
        self._show(used)

    def _show(self, used: int) -> None:
        self.keys, self.values = (buffer[..., :used, :] for buffer in self._buffers)

    def update(self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object) -> tuple[Tensor, Tensor]:
        used, new = self.keys.shape[-2], key_states.shape[-2]
        if used + new > self._buffers[0].shape[-2]:
            self._hold(self.keys, self.values)
        for buffer, states in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[..., used : used + new, :] = states
        self._show(used + new)
        return self.keys, self.values

    def batch_select_indices(self, indices: Tensor) -> None:
        self._hold(self.keys[indices], self.values[indices])


def repeated(cache: DynamicCache, num_samples: int) -> DynamicCache:
    """The cache of G prompts, repeated for G * num_samples rows, able to grow. Layers of other kinds (sliding windows) are
    repeated and stay what they are."""
    with torch.no_grad():
        cache.batch_repeat_interleave(num_samples)
        cache.layers = [
            GrowingLayer(layer.keys, layer.values) if type(layer) is DynamicLayer else layer for layer in cache.layers
        ]
    return cache
