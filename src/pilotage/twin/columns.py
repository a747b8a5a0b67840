"""Rows in arrays of numpy: a record of 60 bytes needs 60 bytes, where objects need some hundred."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

Array = NDArray[Any]

_PENDING_ROWS = 1024


class RowBuffer:
    """Rows of one type, which grow at the end. A pickled buffer has no spare room."""

    def __init__(self, dtype: DTypeLike) -> None:
        self._rows: Array = np.empty(0, dtype)
        self._size = 0
        self._pending: list[tuple[Any, ...]] = []
        """The newest rows: numpy takes many at once in a fifth of the time."""

    def __len__(self) -> int:
        return self._size + len(self._pending)

    def append(self, row: tuple[Any, ...]) -> None:
        self._pending.append(row)
        if len(self._pending) == _PENDING_ROWS:
            self._take_pending()

    def replace(self, rows: Array) -> None:
        """Take other rows in place of the present ones."""
        self._rows, self._size, self._pending = rows, len(rows), []

    @property
    def rows(self) -> Array:
        """All rows, without a copy; `rows["name"]` is one column."""
        if self._pending:
            self._take_pending()
        return self._rows[: self._size]

    def _take_pending(self) -> None:
        size = self._size + len(self._pending)
        if size > len(self._rows):
            grown = np.empty(max(2 * self._size, size), self._rows.dtype)
            grown[: self._size] = self._rows[: self._size]
            self._rows = grown
        self._rows[self._size : size] = self._pending
        self._size, self._pending = size, []

    def __getstate__(self) -> Array:
        return self.rows.copy()

    def __setstate__(self, rows: Array) -> None:
        self.replace(rows)


class NameIndex:
    """Names, each with its place in the order of their first use."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._places: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.names)

    def place(self, name: str) -> int:
        """The place of a name; a new name is added."""
        place = self._places.get(name)
        if place is None:
            place = self._places[name] = len(self.names)
            self.names.append(name)
        return place
