"""The rows that duties cannot process, and the duties whose last cycle failed: for metrics and for `status`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Set
from typing import NamedTuple

LONGEST_ERROR = 500
"""Characters of an error."""

CYCLE = ""
"""Stands for the step of a failure that concerns a whole cycle."""


class FailingRow(NamedTuple):
    """A row that a step of a duty cannot process. Other rows do not wait for it."""

    duty: str
    step: str
    """Empty: the whole cycle failed."""
    row: str
    error: str
    since: float


class DutyFailures:
    """The failing rows of one duty. Only the event loop changes them; any thread may read them."""

    def __init__(self, duty: str, clock: Callable[[], float]) -> None:
        self.duty = duty
        self._clock = clock
        self._rows: dict[tuple[str, Hashable], FailingRow] = {}

    def rows_of(self, step: str) -> set[Hashable]:
        return {row for of, row in self._rows if of == step}

    def add(self, step: str, row: Hashable, error: Exception) -> bool:
        """Note a failure. Returns whether the row did not fail before."""
        known = self._rows.get((step, row))
        since = self._clock() if known is None else known.since
        text = (str(error) or type(error).__name__)[:LONGEST_ERROR]
        self._rows[step, row] = FailingRow(self.duty, step, str(row), text, since)
        return known is None

    def discard(self, step: str, row: Hashable) -> None:
        self._rows.pop((step, row), None)

    def keep_tried(self, tried: Callable[[str], Set[Hashable] | None]) -> None:
        """Forget rows that a complete cycle did not try: they need the duty no more. None: the step was left out."""
        for step, row in list(self._rows):
            of_step = tried(step)
            if step != CYCLE and of_step is not None and row not in of_step:
                self.discard(step, row)

    def __iter__(self) -> Iterator[FailingRow]:
        return iter(list(self._rows.values()))

    def __len__(self) -> int:
        return len(self._rows)


class FailingRows:
    """The failing rows of all duties of one server."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._duties: dict[str, DutyFailures] = {}

    def of(self, duty: str) -> DutyFailures:
        return self._duties.setdefault(duty, DutyFailures(duty, self._clock))

    def counts(self) -> dict[str, int]:
        """The number of failing rows of each duty; a failed cycle counts as one."""
        return {name: len(failures) for name, failures in sorted(list(self._duties.items()))}

    def __iter__(self) -> Iterator[FailingRow]:
        for _, failures in sorted(list(self._duties.items())):
            yield from failures
