"""A cache with a bound in bytes, for images and what becomes of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, Generic, TypeVar

Value = TypeVar("Value")


class BoundedCache(Generic[Value]):
    """The values used last, of at most `most_bytes` together. A copy of a cache is an empty one."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes, self.held_bytes = most_bytes, 0
        self._values: OrderedDict[Hashable, tuple[Value, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.most_bytes,)

    def get(self, key: Hashable) -> Value | None:
        """The value of a key, which then is the one used last; None when there is none."""
        if key not in self._values:
            return None
        self._values.move_to_end(key)
        return self._values[key][0]

    def put(self, key: Hashable, value: Value, size_bytes: int) -> None:
        """Keep a value and drop those used longest ago that no longer fit; one too large by itself is not kept."""
        if key in self._values:
            self.held_bytes -= self._values.pop(key)[1]
        self._values[key] = (value, size_bytes)
        self.held_bytes += size_bytes
        while self.held_bytes > self.most_bytes:
            self.held_bytes -= self._values.popitem(last=False)[1][1]
