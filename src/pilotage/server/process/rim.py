"""The rim of a server: its clocks, its chance, and the ways out of its process."""

from __future__ import annotations

import random
import secrets
import socket
import time
import uuid
from pathlib import Path
from typing import Protocol

from pilotage.core.secret_source import SecretSource
from pilotage.server.disk_space import Usage, disk_usage
from pilotage.server.duties.peers import DatabaseClock
from pilotage.server.outside_calls import DirectCalls, OutsideCalls
from pilotage.server.process.front import Front, HttpFront
from pilotage.server.process.settings import Settings
from pilotage.store.engine.connection import Readers, WriterConnection


class Rim(Protocol):
    """All that a server takes from outside of its process, beside its settings and its store."""

    inline: bool
    """Whether everything runs in one thread, in an order that a replay can repeat."""
    front: Front
    outside: OutsideCalls
    hostname: str
    secrets: SecretSource

    def clock(self) -> float:
        """Seconds since 1970."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back."""
        ...

    def database_clock(self, readers: Readers) -> DatabaseClock:
        """The clock of a database that several servers share."""
        ...

    def rng(self) -> random.Random:
        """For the draws of jobs."""
        ...

    def new_uuid(self) -> str: ...

    def storage(self, home: Path) -> str:
        """The name of a home's folder of output files."""
        ...

    def usage(self, folder: Path) -> Usage: ...

    def started(self, connection: WriterConnection) -> None:
        """The store is open."""
        ...


class RealRim:
    """The clocks, the chance and the disks of this machine."""

    inline = False
    secrets: SecretSource = secrets
    outside: OutsideCalls = DirectCalls()
    clock = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)

    def __init__(self, settings: Settings, listener: socket.socket) -> None:
        self.front: Front = HttpFront(settings, listener)
        self.hostname = socket.gethostname()

    def database_clock(self, readers: Readers) -> DatabaseClock:
        """It counts on from the database's clock by `monotonic`: a step of this machine's clock ends no lease."""
        return DatabaseClock(readers, time.monotonic)

    def rng(self) -> random.Random:
        return random.Random()  # noqa: S311

    def new_uuid(self) -> str:
        return str(uuid.uuid4())

    def storage(self, home: Path) -> str:
        return str(home)

    def usage(self, folder: Path) -> Usage:
        return disk_usage(folder)

    def started(self, connection: WriterConnection) -> None:
        """Nothing follows from it."""
