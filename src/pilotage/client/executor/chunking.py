"""Groups calls into jobs that last seconds, by the durations of earlier calls."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pilotage.client.executor.calls import PendingCall

PROBES = 8
"""Calls of a function that go alone, while its duration is not known."""
HOLD = 30.0
"""Seconds for which the others wait for a first duration, while no call runs."""
SHORTEST, LONGEST = 1.0, 5.0
"""Seconds of work for a job: at least the first, if there are more jobs than nodes could use."""
STARTING = 10.0
"""Seconds that the imports of a first call may take."""
SPREAD = 16
"""Jobs that a large map is spread over at least, unless they would be shorter than SHORTEST."""
MAX_CALLS = 10_000
"""Calls of one job."""


class ChunkRule:
    """Cuts waiting calls into chunks; each becomes a job.

    Calls of one function are a kind. A function with a single call counts with others of its name, since programs
    such as joblib make a new function for each call.
    """

    def __init__(self) -> None:
        self._shared: set[str] = set()
        """Kinds of functions that had several calls at once."""
        self._seconds: dict[str, float] = {}
        self._probes: dict[str, int] = {}
        self._first_probe: dict[str, float] = {}
        self._runs_since: dict[str, float] = {}

    def started(self, kind: str, now: float) -> None:
        """A call of this kind runs."""
        self._runs_since.setdefault(kind, now)

    def measured(self, kind: str, seconds: float) -> None:
        """A call of this kind took this number of seconds."""
        before = self._seconds.get(kind)
        self._seconds[kind] = seconds if before is None else 0.9 * before + 0.1 * seconds

    def lost_probe(self, kind: str) -> None:
        """A job ended without a duration: another call may be tried alone."""
        self._probes[kind] = max(0, self._probes.get(kind, 0) - 1)

    def take(self, waiting: deque[PendingCall], now: float) -> list[list[PendingCall]]:
        """Remove the calls that may be sent now from `waiting`, in chunks."""
        left = [call for call in waiting if not call.future.done()]
        waiting.clear()
        self._tell_kinds(left)
        by_kind: dict[tuple[str, int], list[PendingCall]] = {}
        for call in left:
            by_kind.setdefault((call.kind, call.chunk), []).append(call)
        chunks = []
        for (kind, size), calls in by_kind.items():
            sendable, width = (calls, size) if size else self._sendable(kind, calls, now)
            chunks += list(_cut(sendable, width))
            waiting.extend(calls[len(sendable) :])
        return chunks

    def _tell_kinds(self, calls: list[PendingCall]) -> None:
        functions = [call.function for call in calls if call.function is not None]
        numbers = Counter(function.name + function.digest for function in functions)
        self._shared.update(kind for kind, number in numbers.items() if number > 1)
        for call, function in zip(calls, functions, strict=True):
            own = function.name + function.digest
            call.kind = own if own in self._shared else function.name

    def _sendable(self, kind: str, calls: list[PendingCall], now: float) -> tuple[list[PendingCall], int]:
        """The calls that may go, and how many in a job."""
        seconds = self._seconds.get(kind)
        if seconds is not None:
            return calls, _width(len(calls), max(seconds, 1e-6))
        free = PROBES - self._probes.get(kind, 0)
        if now - self._runs_since.get(kind, now) > STARTING + LONGEST:
            return calls, 1
        if free <= 0 and now - self._first_probe[kind] < HOLD:
            return [], 1
        if free <= 0:
            return calls, max(1, -(-len(calls) // 1000))
        probes = calls[:free]
        self._probes[kind] = self._probes.get(kind, 0) + len(probes)
        self._first_probe.setdefault(kind, now)
        return probes, 1


def _width(calls: int, seconds: float) -> int:
    """The number of calls of a job, if each call takes this number of seconds."""
    most = max(1, min(MAX_CALLS, round(LONGEST / seconds)))
    least = max(1, min(most, round(SHORTEST / seconds)))
    return max(least, min(most, -(-calls // SPREAD)))


def _cut(calls: Iterable[PendingCall], width: int) -> Iterator[list[PendingCall]]:
    left = iter(calls)
    while chunk := list(islice(left, width)):
        yield chunk
