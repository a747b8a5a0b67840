"""Measures payloads that run, for people who ask whether one is stuck.

Processor time and memory come from the samples that the limits need anyway. A background thread looks at the output,
since a file system may not answer. The results wait for the next message: no message is sent for them.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from dataclasses import dataclass
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

from pilotage.wire.payload_use import PayloadUse
from pilotage.wire.pilot import MB

from .disk import contents
from .events import Key
from .payload import RunningPayload
from .thread_pool import ThreadPool

LEAD = 1.0
"""Seconds before a heartbeat at which payloads are measured for it."""
_COST_FACTOR = 50
"""Looking at output may use at most 1/50 of a core."""


class WrittenFiles(NamedTuple):
    """The files of a payload at one moment."""

    sizes: Tuple[int, int]
    """Bytes of standard output and error, and bytes on the disk in its own folders."""
    changed_at: float
    """When one of them changed last, by the clock of the file system."""


class WrittenPlaces(NamedTuple):
    """Where a payload writes."""

    streams: Tuple[int, ...]
    """Descriptors, which the look closes."""
    folders: Tuple[str, ...]


@dataclass
class OutputGrowth:
    """When the output of a payload grew last, by the pilot's clock."""

    checked: float
    """The last look, or the start of the payload."""
    grew_at: Optional[float] = None
    output: Optional[WrittenFiles] = None

    def note(self, output: WrittenFiles, age: float, now: float) -> None:
        """Record a look. `age`: seconds since the last change of a file, by the clocks of the node.

        A file system may have another clock, and a program may set any time: a change lies between two looks.
        """
        is_first = self.output is None
        if output != self.output and (not is_first or (output.changed_at and now - age > self.checked)):
            self.grew_at = min(now, max(self.checked, now - age))
        self.output, self.checked = output, now


@dataclass
class Watched:
    """The measurements before of one payload."""

    growth: OutputGrowth
    cpu: float
    at: float
    busy: float = 0.0


class UseWatch:
    """Used by the loop's thread."""

    def __init__(
        self,
        heartbeat: float,
        background: ThreadPool,
        clock: Callable[[], float],
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._heartbeat = heartbeat
        self._background = background
        self._clock = clock
        self._wall_clock = wall_clock
        self._last = clock()
        """When the last measurement began."""
        self._not_before = -math.inf
        self._watched: Dict[Key, Watched] = {}
        self._measured: List[PayloadUse] = []
        self._at = 0.0
        """When `_measured` was measured."""

    def measure(self, running: Mapping[Key, RunningPayload], heartbeat_at: float) -> None:
        """Begin a measurement, if one is due: shortly before a heartbeat, and as often between many messages."""
        now = self._clock()
        if now < max(self._not_before, self._last + self._heartbeat / 2):
            return
        if now < min(heartbeat_at - LEAD, self._last + self._heartbeat):
            return
        places = {key: _places(payload) for key, payload in running.items() if _is_measurable(payload)}
        self._watched = {key: watched for key, watched in self._watched.items() if key in places}
        if not places:
            return
        self._last, self._not_before = now, math.inf

        def keep(result: Dict[Key, WrittenFiles], error: Optional[BaseException]) -> None:
            ended = self._clock()
            self._not_before = ended + _COST_FACTOR * (ended - now)
            if error is None:
                self._keep(running, result, ended)

        self._background.submit(lambda connection: look(places), keep)

    def _keep(
        self, running: Mapping[Key, RunningPayload], outputs: Dict[Key, WrittenFiles], now: float
    ) -> None:
        self._measured, self._at = [], now
        for key, output in outputs.items():
            payload = running.get(key)
            if payload is not None and _is_measurable(payload):
                self._measured.append(self._use_of(payload, output, now))

    def _use_of(self, payload: RunningPayload, output: WrittenFiles, now: float) -> PayloadUse:
        started, sampled_at = payload.started, payload.sampled_at or now
        watched = self._watched.setdefault(payload.key, Watched(OutputGrowth(started), 0.0, started))
        watched.growth.note(output, max(0.0, self._wall_clock() - output.changed_at), now)
        if sampled_at > watched.at:
            watched.busy = (payload.cpu - watched.cpu) / (sampled_at - watched.at)
            watched.cpu, watched.at = payload.cpu, sampled_at
        grew_at = watched.growth.grew_at
        return PayloadUse(
            *payload.key,
            ran=round(now - started, 3),
            cpu=round(payload.cpu, 3),
            busy=round(watched.busy, 3),
            memory=payload.memory // MB,
            peak=payload.rss // MB,
            silent=None if grew_at is None else round(now - grew_at, 3),
        )

    def take(self) -> List[PayloadUse]:
        """The measurements that no message has carried yet. One that is lost is not sent again: others follow."""
        measured, self._measured = self._measured, []
        for use in measured:
            use.age = round(self._clock() - self._at, 3)
        return measured


def _is_measurable(payload: RunningPayload) -> bool:
    return not payload.has_ended and payload.sampled_at is not None and payload.work_dir is not None


def _places(payload: RunningPayload) -> WrittenPlaces:
    assert payload.work_dir is not None
    streams: List[int] = []
    with contextlib.suppress(OSError):  # too many open files
        for number in payload.streams.files:
            streams.append(os.dup(number))
    return WrittenPlaces(tuple(streams), (payload.work_dir.folder, payload.work_dir.tmp))


def look(places: Mapping[Key, WrittenPlaces]) -> Dict[Key, WrittenFiles]:
    """The output of these payloads. For a background thread."""
    try:
        return {key: _output(place) for key, place in places.items()}
    finally:
        for place in places.values():
            for number in place.streams:
                os.close(number)


def _output(place: WrittenPlaces) -> WrittenFiles:
    statuses = [os.fstat(number) for number in place.streams]
    files = contents(place.folders)
    changes = [status.st_mtime for status in statuses if status.st_size]
    return WrittenFiles(
        (sum(status.st_size for status in statuses), files.written), max([files.changed_at, *changes])
    )
