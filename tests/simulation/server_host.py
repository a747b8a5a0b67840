"""The machine of the server: it starts there, dies there at any effect, and starts again on the same file."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path
from random import Random
from typing import Any

from pilotage.core.errors import Overloaded
from pilotage.core.policy import Ce
from pilotage.outside.batch.adapter import BatchAdapter, BatchSubmission, Receipt
from pilotage.store.engine.connection import ConnectionLost
from pilotage.twin.batch.adapter import TwinBatchAdapter
from pilotage.twin.batch.faults import BatchFault
from pilotage.twin.batch.system import TwinBatchSystem
from pilotage.twin.chance import Streams
from pilotage.twin.server import TwinServer, TwinServerSettings
from tests.simulation.faults import COMMAND, COMMIT, REPORT_COMMIT, CommandFaults, Fault, FaultQueue
from tests.simulation.processes import Outside, Process, ProcessDied, SimulationLoop
from tests.simulation.stores import Store

STARTS = 10_000
"""Starts of a server in one history, at most."""
AGAIN = 5.0
"""Seconds after which a server that could not start is started again."""
SKEW = 100.0
"""Seconds by which the clock of one of several servers may be wrong."""
LISTED = 25.0
"""Seconds for which a server must run until it has surely listed the batch jobs."""
CHANGES = frozenset({"submit", "release", "cancel", "cancel_tasks"})


class ServerHost:
    """Runs one server after another."""

    def __init__(
        self,
        loop: SimulationLoop,
        folder: Path,
        policy: str,
        seed: int,
        systems: dict[str, TwinBatchSystem],
        faults: FaultQueue,
        least_period: float,
        store: Store,
        number: int,
    ) -> None:
        """`number`: of the machines with a server on this store, from 0."""
        self.store, self.number = store, number
        self.cut_until = 0.0
        self._loop, self._folder, self._policy, self._seed = loop, folder, policy, seed
        self._systems, self._faults, self._least_period = systems, faults, least_period
        self._outside = Outside(loop)
        skew = Random(f"{seed} clock {number}").uniform(-SKEW, SKEW)
        self.clock_offset = 0.0 if store.servers == 1 else skew
        """Seconds by which its clock is ahead. Servers of one database go by the clock of that."""
        self.turned_back = 0.0
        """Seconds by which its clock has jumped back, in all."""
        self.has_jumped = False
        """Whether its clock ever has."""
        self.jumped_at = -1000.0
        """When its clock last jumped, and when the server that runs began, on the loop's clock."""
        self.up_since = 0.0
        self.changed_at = 0.0
        """When its last server began or ended."""
        self._up: list[tuple[float, float]] = []
        self.starts = 0
        self.process: Process | None = None
        self.server: TwinServer | None = None
        self.failure: BaseException | None = None
        """A server ended although nobody asked it to."""
        self.report_waits = False
        """A message with a report has come, and nothing was committed since."""
        self.dead: list[Process] = []
        self._task: asyncio.Task[None] | None = None
        self.after_death: Callable[[], None] = lambda: None

    def clock(self) -> float:
        return self._loop.time() + self.clock_offset

    def jump(self, seconds: float) -> None:
        self.clock_offset += seconds
        self.turned_back += max(0.0, -seconds)
        self.jumped_at, self.has_jumped = self._loop.time(), True

    def freeze(self, seconds: float) -> None:
        """The server stands still, and goes on as if nothing had been."""
        if self.process is not None:
            self.process.frozen_until = self._loop.time() + seconds
            self.changed_at = self.jumped_at = self._loop.time() + seconds

    def _note_end(self) -> None:
        self.changed_at = self._loop.time()
        self._up.append((self.up_since, self._loop.time()))

    def uptime(self, begin: float, end: float) -> float:
        """The seconds between two instants in which a server ran."""
        spans = [*self._up, *([(self.up_since, end)] if self.process is not None else [])]
        return sum(max(0.0, min(end, until) - max(begin, since)) for since, until in spans)

    def first_listing(self, after: float) -> float:
        """When its servers had surely listed the batch jobs after an instant. They have all ended."""
        spans = ((max(since, after), until) for since, until in self._up)
        return next((since + LISTED for since, until in spans if until - since >= LISTED), inf)

    def start(self) -> None:
        """Start a server, unless one runs."""
        if self.process is not None:
            return
        self.starts += 1
        self.up_since = self.changed_at = self._loop.time()
        process = Process(f"server {self.number} {self.starts}", self._loop)
        streams = Streams(self._seed * STARTS + self.starts + STARTS // 2 * self.number)
        clients = _BatchClients(self, process)
        with process.entered():
            settings = TwinServerSettings(
                self._folder,
                self._policy,
                streams,
                clients,
                least_period=lambda _: self._least_period,
                clock=self.clock,
            )
            server = self.store.make_server(settings, self._loop, self.number)
            self.process, self.server = process, server
            _hook_commits(server, self)
            process.at_death(server.abandon)
            self._task = task = self._loop.create_task(server.run())
        task.add_done_callback(self._ended, context=self._loop.outside)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A server whose start meets a failing disk ends, and is started again. Nothing else ends it."""
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Overloaded):
            self.die(AGAIN)
        elif error is not None:
            self.failure = error

    def die(self, downtime: float) -> None:
        """The server is killed, and started again after these seconds."""
        process = self.process
        if process is None:
            return
        self.process = self.server = None
        self._note_end()
        process.die()
        self.dead.append(process)
        self.after_death()
        self._outside.call_later(downtime, self.start)

    async def stop(self) -> None:
        """Stop the server in good order."""
        process, server, task = self.process, self.server, self._task
        if process is None or server is None or task is None:
            return
        ended = self._loop.create_future()

        def end(_: object = None) -> None:
            if not ended.done():
                ended.set_result(None)

        with process.entered():
            server.context.stop.set()
        task.add_done_callback(end, context=self._loop.outside)
        process.at_death(end)
        await ended
        with process.entered():
            process.run(server.close)
        if process.alive:
            # Its connections end with it: a person whose call it has not answered hears of that.
            process.forget(server.abandon)
            process.die()
            self.dead.append(process)
            self.process = self.server = None
            self._note_end()
            self.after_death()

    def fault(self, occasion: str) -> Fault | None:
        return self._faults.take(occasion)

    def fault_of_commit(self) -> Fault | None:
        if self.report_waits:
            self.report_waits = False
            if (fault := self.fault(REPORT_COMMIT)) is not None:
                return fault
        return self.fault(COMMIT)

    def system(self, name: str) -> TwinBatchSystem:
        return self._systems[name]

    @property
    def faults(self) -> FaultQueue:
        return self._faults


class ServerHosts:
    """All machines with a server on one store."""

    def __init__(self, hosts: Sequence[ServerHost]) -> None:
        self.all = hosts

    def picked(self, pick: float) -> ServerHost:
        return self.all[int(pick * 997) % len(self.all)]

    @property
    def running(self) -> list[ServerHost]:
        return [host for host in self.all if host.process is not None]

    @property
    def clock_offset(self) -> float:
        """Seconds by which the clock of the store is ahead: it is that of its only server, or of the database."""
        return self.all[0].clock_offset if len(self.all) == 1 else 0.0

    @property
    def jumped_at(self) -> float:
        return max(host.jumped_at for host in self.all)

    @property
    def steady_since(self) -> float:
        """Since when the servers that run do so, and no other one has ended."""
        return max(host.changed_at for host in self.all)

    @property
    def turned_back(self) -> float:
        """Seconds by which their clocks have jumped back, in all."""
        return sum(host.turned_back for host in self.all)

    def seconds_unseen(self, begin: float, end: float) -> float:
        """Of the time until a batch job was surely listed, the seconds in which no server ran. It ran from `begin`."""
        listed = min([end, *(host.first_listing(begin) for host in self.all)])
        return listed - begin - self.uptime(begin, listed)

    def uptime(self, begin: float, end: float) -> float:
        """The most seconds between two instants in which one of the servers ran."""
        return max(host.uptime(begin, end) for host in self.all)


def _hook_commits(server: TwinServer, host: ServerHost) -> None:
    connection: Any = server.connection
    commit = connection.commit

    def commit_or_fail() -> None:
        fault = host.fault_of_commit()
        if fault is None:
            commit()
            host.store.committed(server)
            return
        if fault.kind.endswith("fails"):
            if connection.dialect == "sqlite":
                raise CommitFailed("disk I/O error")
            if fault.pick < 0.5:
                commit()
            connection.close()
            raise ConnectionLost("the connection was lost in a commit")
        if fault.kind.startswith("server dies after"):
            commit()
        host.die(fault.seconds)
        raise ProcessDied

    connection.commit = commit_or_fail


class CommitFailed(sqlite3.OperationalError):
    """A commit that the disk refused: a fault of the simulation."""

    sqlite_errorcode = sqlite3.SQLITE_IOERR


class _BatchClients:
    """Implements `BatchClients`: the script of a pilot is its secret."""

    def __init__(self, host: ServerHost, process: Process) -> None:
        self._host, self._process = host, process

    def adapter(self, name: str, ce: Ce) -> BatchAdapter:
        return _Adapter(self._host.system(name), self._host, self._process)

    def script(
        self, ce: str, secret: str, submission: BatchSubmission, batch: BatchAdapter, *, local: bool
    ) -> str:
        return secret

    def obstacle(self, ce: Ce) -> str:
        return ""


class _Adapter(TwinBatchAdapter):
    """The adapter of one process. Dead processes give no commands."""

    def __init__(self, system: TwinBatchSystem, host: ServerHost, process: Process) -> None:
        super().__init__(system, CommandFaults(host.faults))
        self._host, self._process = host, process
        self._dies: Fault | None = None

    def _fault(self, command: str) -> BatchFault | None:
        if not self._process.alive:
            raise ProcessDied
        if command in CHANGES:
            self._dies = self._host.fault(COMMAND)
            if self._dies is not None and self._dies.kind == "server dies before a command":
                self._die(self._dies)
        return super()._fault(command)

    def _die(self, fault: Fault) -> None:
        self._host.die(fault.seconds)
        raise ProcessDied

    def _after(self) -> None:
        if self._dies is not None:
            self._die(self._dies)

    def submit(self, submission: BatchSubmission) -> Receipt:
        try:
            return super().submit(submission)
        finally:
            self._after()

    def _change(self, command: str, change: Callable[[], None]) -> None:
        try:
            super()._change(command, change)
        finally:
            self._after()
