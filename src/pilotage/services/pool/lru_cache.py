"""A bounded dictionary."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class LruCache(OrderedDict[Key, Value]):
    """Keeps at most `limit` keys: a new key removes the least recently used one.

    `use` and assignment count as use. `get` changes nothing, so that any thread may call it.
    """

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit

    def use(self, key: Key) -> Value | None:
        """The value of a key, which becomes the most recently used one; None if it is absent."""
        value = self.get(key)
        if value is not None:
            self.move_to_end(key)
        return value

    def __setitem__(self, key: Key, value: Value) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self.limit:
            self.popitem(last=False)
