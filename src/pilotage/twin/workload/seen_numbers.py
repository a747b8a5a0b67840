"""Remembers which job numbers were seen: a bit for each, as nearly all traces count from 1."""

from __future__ import annotations

from typing import Final

_BITS: Final = 10


class SeenNumbers:
    """A set of whole numbers: ten million that follow each other take 3 MB, numbers far apart some 200 bytes each."""

    def __init__(self) -> None:
        self._pages: dict[int, int] = {}

    def add(self, number: int) -> bool:
        """Add a number; False: it was there already."""
        page, bit = number >> _BITS, 1 << (number & (1 << _BITS) - 1)
        seen = self._pages.get(page, 0)
        self._pages[page] = seen | bit
        return not seen & bit
