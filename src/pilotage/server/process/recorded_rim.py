"""The rim of a server whose decisions are recorded or replayed: its clock and its chance follow from the record."""

from __future__ import annotations

import random
import uuid
from pathlib import Path
from typing import NamedTuple

from pilotage.core.secret_source import SecretSource
from pilotage.server.disk_space import Usage, disk_usage
from pilotage.server.duties.peers import DatabaseClock
from pilotage.server.outside_calls import OutsideCalls
from pilotage.server.process.front import Front
from pilotage.server.recording.adapter import TapedCalls
from pilotage.server.recording.lines import RecordBegin
from pilotage.server.recording.loop import DecisionLoop
from pilotage.server.recording.tape import Tape
from pilotage.store.engine.connection import Readers, WriterConnection


class DiskSize(NamedTuple):
    """Implements `Usage`."""

    total: int
    free: int


def stream(seed: str, name: str) -> random.Random:
    """One of the streams of a seed, from its begin."""
    return random.Random(f"{seed} {name}")  # noqa: S311


def uuid_of(seed: str) -> str:
    """The name of an instance that begins with a record."""
    return str(uuid.UUID(int=stream(seed, "uuid").getrandbits(128), version=4))


class RecordedRim:
    """All draws follow from the header, and all that comes from outside goes over the tape."""

    inline = True

    def __init__(
        self, header: RecordBegin, tape: Tape, loop: DecisionLoop, front: Front, secrets: SecretSource
    ) -> None:
        self._header = header
        self._tape = tape
        self.outside: OutsideCalls = TapedCalls(tape)
        self._loop = loop
        self.front = front
        self.hostname = header.server.hostname
        self.secrets = secrets
        tape.clock = loop.time

    def clock(self) -> float:
        return self._loop.time()

    def monotonic(self) -> float:
        return self._loop.time()

    def database_clock(self, readers: Readers) -> DatabaseClock:
        """The clock of the loop: a replay has no other."""
        return DatabaseClock(readers, self._loop.time, lambda connection, now: now)

    def rng(self) -> random.Random:
        return stream(self._header.seed, "decisions")

    def new_uuid(self) -> str:
        return uuid_of(self._header.seed)

    def storage(self, home: Path) -> str:
        return self._header.server.storage

    def usage(self, folder: Path) -> Usage:
        """The size of a disk, with the free space in whole thousandths: it changes all the time."""

        def measure() -> DiskSize:
            usage = disk_usage(folder)
            step = max(1, usage.total // 1000)
            return DiskSize(usage.total, usage.free - usage.free % step)

        return self._tape.ask("disk", DiskSize, measure)

    def started(self, connection: WriterConnection) -> None:
        self._tape.changes = lambda: connection.total_changes or 0
        connection.clock = self._loop.time
