"""How many rows one slice of long work takes, so that others get their turn in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Done = TypeVar("Done")

FIRST_SLICE = 4
LARGEST_SLICE = 500


class SlicePace:
    """Adapts the rows of a slice so that its work takes `aim` seconds.

    A slow slice makes the next ones smaller at once; fast ones let them grow, at most to the double.
    """

    def __init__(
        self,
        aim: float,
        clock: Callable[[], float] | None,
        *,
        first: int = FIRST_SLICE,
        least: int = 1,
        most: int = LARGEST_SLICE,
    ) -> None:
        """`clock` returns monotonic seconds; None: the size stays `first`."""
        self.size = first
        self._aim = aim
        self._clock = clock
        self._least = least
        self._most = most

    def measured(self, rows: int, work: Callable[[], Done]) -> Done:
        """Do the work for some rows, and adapt the size."""
        if self._clock is None:
            return work()
        begun = self._clock()
        done = work()
        self.took(rows, self._clock() - begun)
        return done

    def took(self, rows: int, seconds: float) -> None:
        """Adapt the size to a slice of `rows` that took `seconds`. Only a full slice lets it grow."""
        target = rows * self._aim / max(1e-6, seconds)
        if target < self.size or rows >= self.size:
            self.size = round(max(self._least, min(target, 2 * self.size, self._most)))
