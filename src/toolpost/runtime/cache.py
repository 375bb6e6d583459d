"""Remembered results of read-only tools, for as long as the tool allows."""

from __future__ import annotations

import copy
import time
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolpost.contracts.outcomes import Completed

Key = tuple[str, ...]


class ResultCache:
    """A bounded map from call to result; the least recently used goes first. What is kept, nobody else holds."""

    def __init__(self, *, capacity: int = 1000, clock: Callable[[], float] = time.monotonic) -> None:
        self._capacity = capacity
        self._clock = clock
        self._kept: OrderedDict[Key, tuple[float, Completed]] = OrderedDict()

    def get(self, key: Key) -> Completed | None:
        """A result that is still fresh."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        if kept[0] < self._clock():
            del self._kept[key]
            return None
        self._kept.move_to_end(key)
        return kept[1]._replace(content=copy.deepcopy(kept[1].content))

    def put(self, key: Key, result: Completed, *, ttl_s: float) -> None:
        """Remember a result."""
        self._kept[key] = (self._clock() + ttl_s, result._replace(content=copy.deepcopy(result.content)))
        self._kept.move_to_end(key)
        if len(self._kept) > self._capacity:
            self._kept.popitem(last=False)
