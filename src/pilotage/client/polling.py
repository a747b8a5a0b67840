"""Waiting for the end of jobs by the change feed, and polling for the growing output of a job."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pilotage.core.errors import NotFound
from pilotage.core.jobs.states import FINAL, RUNS, JobState
from pilotage.wire.limits import LONGEST_POLL

if TYPE_CHECKING:
    from pilotage.wire.jobs import Counts

FINAL_STATES = frozenset(str(state) for state in FINAL)
SILENT_STATES = frozenset(str(state) for state in JobState) - FINAL_STATES - frozenset(map(str, RUNS))
"""States in which no payload runs."""

SMALL = 64 * 1024
"""Bytes; a shorter piece ends at the current end of the log, also for a running job."""


@dataclass(frozen=True)
class LogPiece:
    """Bytes of a log beginning at `offset`; `state` is the job's at that moment."""

    offset: int
    data: bytes
    state: str


class PollInterval:
    """Pauses between requests: short after a change, growing while nothing changes."""

    def __init__(self, shortest: float, longest: float) -> None:
        self._shortest = self._next = shortest
        self._longest = longest

    def next(self, changed: bool) -> float:
        """Seconds of the next pause."""
        self._next = self._shortest if changed else min(self._next * 1.3, self._longest)
        return self._next

    def pause(self, changed: bool, *, at_most: float | None = None) -> None:
        seconds = self.next(changed)
        time.sleep(seconds if at_most is None else max(0.0, min(seconds, at_most)))


def wait_until_final(
    ask: Callable[[], Counts],
    next_change: Callable[[float], None],
    timeout: float | None,
    progress: Callable[[Counts], None] | None,
) -> Counts:
    """Count after each change until all jobs are final or `timeout` seconds have passed; return the last counts.

    `next_change` waits for a change since it was made or called last, for at most the given seconds.
    """
    pace = PollInterval(0.05, 2.0)
    until = None if timeout is None else time.monotonic() + timeout
    before: Counts | None = None
    while True:
        counts = ask()
        if not counts.total:
            raise NotFound("no job of yours fits the selection", hint="see `pilotage status`")
        if progress and counts != before:
            progress(counts)
        left = None if until is None else until - time.monotonic()
        if counts.final >= counts.total or (left is not None and left <= 0):
            return counts
        # Changes of a large submission never stop: they are counted ever more rarely.
        pace.pause(before is None, at_most=left)
        before = counts
        next_change(LONGEST_POLL if left is None else min(left, LONGEST_POLL))


def read_log(ask: Callable[[int], LogPiece], final: frozenset[str] = FINAL_STATES) -> Iterator[LogPiece]:
    """Yield the log up to its current end, in one or more pieces; the server limits the size of a piece."""
    piece = ask(0)
    yield piece
    while piece.data and (piece.state in final or len(piece.data) >= SMALL):
        piece = ask(piece.offset + len(piece.data))
        if piece.data:
            yield piece


def follow_log(
    ask: Callable[[int], LogPiece],
    final: frozenset[str] = FINAL_STATES,
    offset: int = 0,
    *,
    wait: Callable[[float], None] = time.sleep,
    silent: frozenset[str] = frozenset(),
) -> Iterator[LogPiece]:
    """Yield the log as it grows, until its job or pilot is in a final state and the log is read to its end.

    `wait` pauses for some seconds, or until the state has changed. `silent`: states in which the log cannot grow.
    """
    pace = PollInterval(0.5, 3.0)
    while True:
        piece = ask(offset)
        if piece.data:
            yield piece
            offset = piece.offset + len(piece.data)
        elif piece.state in final:
            return
        if piece.state in silent:
            wait(LONGEST_POLL)
        elif piece.state not in final:
            wait(pace.next(bool(piece.data)))
