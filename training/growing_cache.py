"""A key-value cache with room at its end: a new token is written there, where transformers' cache is copied for it."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

ROOM = 64  # places; the cache is copied once per so many tokens


def growing_cache(config: Any) -> DynamicCache:
    """An empty cache for a model's configuration; sliding windows have transformers' own layers."""
    cache = DynamicCache(config=config)
    cache.layers = [GrowingLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


class GrowingLayer(DynamicLayer):
    """Keys and values (B, key heads, places, channels), views of tensors with room for more; without gradients.

    Values are kept in the type of the keys: under autocast rotated keys are in single precision, and attention would
    convert all values for every token.
    """

    def __init__(self) -> None:
        super().__init__()
        self._spacious: tuple[Tensor, Tensor] | None = None

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Keys and values with the new ones at their end."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start = self.get_seq_length()
        end = start + key_states.shape[-2]
        room = self._room()
        if room is None or end > room[0].shape[-2]:
            room = self._with_room(key_states, start, end + ROOM)
        keys, values = self._spacious = room
        keys[:, :, start:end], values[:, :, start:end] = key_states, value_states
        self.keys, self.values = keys[:, :, :end], values[:, :, :end]
        return self.keys, self.values

    def _with_room(self, like: Tensor, filled: int, places: int) -> tuple[Tensor, Tensor]:
        shape = (*like.shape[:2], places, like.shape[-1])
        keys, values = like.new_empty(shape), like.new_empty(shape)
        if filled:
            keys[:, :, :filled], values[:, :, :filled] = self.keys, self.values
        return keys, values

    def batch_select_indices(self, indices: Tensor) -> None:
        """Only keep some rows, in the order of `indices`; the room at the end stays."""
        room = self._room()
        if room is None:
            super().batch_select_indices(indices)
            return
        end = self.get_seq_length()
        keys, values = self._spacious = room[0][indices], room[1][indices]
        self.keys, self.values = keys[:, :, :end], values[:, :, :end]

    def _room(self) -> tuple[Tensor, Tensor] | None:
        """The tensors with room; None when keys and values are no views of them, as after stock changes of the rows."""
        if self._spacious is None or self.keys.data_ptr() != self._spacious[0].data_ptr():
            return None
        return self._spacious
