"""The objects that the routes and duties of one server share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pilotage.core.errors import PilotageError
from pilotage.core.ids import PilotId
from pilotage.outside.batch.ssh.connections import SshConnections
from pilotage.outside.batch.ssh.relay import RelayState
from pilotage.outside.sandbox.directory import DirectorySandbox
from pilotage.server.catalogue_clients import CatalogueClients
from pilotage.server.director_state import DirectorState
from pilotage.server.disk_space import DiskSpace
from pilotage.server.failing_rows import FailingRows
from pilotage.server.feed.change_feed import ChangeFeed
from pilotage.server.home_token import HomeToken
from pilotage.server.issuer_visits import IssuerVisits
from pilotage.server.issuers import TrustedIssuers
from pilotage.server.metrics_cache import CachedCounts
from pilotage.server.outside_calls import DirectCalls, OutsideCalls
from pilotage.server.prospects import Prospects
from pilotage.server.server_address import ServerAddress
from pilotage.server.session_file import SessionFile
from pilotage.server.signals import Stop, Wake
from pilotage.server.spans.traces import Traces
from pilotage.server.storage_clients import StorageClients
from pilotage.server.submission_gate import SubmissionGate
from pilotage.server.submit_pools import SubmitPools
from pilotage.server.tokens import Caller, Issuer
from pilotage.server.web_sessions import WebSessions
from pilotage.services.peers.sync import follow_rules
from pilotage.services.pool.state import Pool
from pilotage.services.shares.corrections import UseBook
from pilotage.services.workqueue.state import WorkQueue
from pilotage.store.cluster.changes import rules
from pilotage.store.engine.connection import Connection, Readers
from pilotage.store.tables.work_queue_depth import WorkQueueDepth
from pilotage.store.writer.transaction import Handler, Transaction
from pilotage.store.writer.writer import Writer
from pilotage.telemetry.collector import Collector
from pilotage.telemetry.tracer import Tracer

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Disk:
    """The files of jobs, and the room for more."""

    sandbox: DirectorySandbox
    space: DiskSpace
    """Decides whether the disks have room for new work."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of users and of the home's owner, the issuers whose tokens count here, and sessions of browsers."""

    issuer: Issuer
    home: HomeToken
    trusted: TrustedIssuers
    sessions: WebSessions = field(default_factory=WebSessions)
    session_file: SessionFile = field(default_factory=SessionFile)
    visits: IssuerVisits = field(default_factory=IssuerVisits)
    """Browsers that sign in at an issuer now."""


@dataclass(frozen=True, slots=True)
class PilotService:
    """Serves pilots: the outputs of local pilots, and their messages."""

    logs: Path
    """The folder with the output of this machine's pilots."""
    exchange: Handler
    """Answers messages of pilots: `exchange_handler`. The same object for all, since the writer groups by it."""
    ssh: SshConnections
    """The connections to login nodes."""
    outside: OutsideCalls = field(default_factory=DirectCalls)
    """The calls to batch systems and programs."""
    relays: dict[tuple[str, str], RelayState] = field(default_factory=dict)
    """The relays at the last look of their duty, by the `reach` and `relay` of CEs."""


@dataclass(frozen=True, slots=True)
class Telemetry:
    """The spans of this server, and their way to a collector."""

    tracer: Tracer
    collector: Collector
    traces: Traces = field(default_factory=Traces)


@dataclass(slots=True)
class ConnectionCounts:
    """Connections that a full server has not kept."""

    evicted: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True)
class WorkIntake:
    """The ways by which jobs and requests come in."""

    gate: SubmissionGate
    """Limits the concurrency of submissions."""
    prospects: Prospects
    work_queue: WorkQueue
    work_queue_depth: CachedCounts[WorkQueueDepth]
    catalogues: CatalogueClients
    """Outside catalogues, whose data sets requests read and write."""
    storage: StorageClients
    """S3 places of the policy, whose files jobs of requests read and write."""
    telemetry: Telemetry | None = None
    connections: ConnectionCounts = field(default_factory=ConnectionCounts)
    """Follows submissions and their jobs by spans; None: this server makes none."""


@dataclass(slots=True)
class DutyState:
    """The state of duties that routes show."""

    book: UseBook
    """The ledger of used resources."""
    failing: FailingRows
    """The rows that duties cannot process."""
    submit_pools: SubmitPools
    director: DirectorState
    feed: ChangeFeed = field(default_factory=ChangeFeed)
    """The changes of jobs and requests, for clients that wait for one."""
    retention_ran_at: float | None = None
    """When the retention duty last finished a cycle; None: not yet."""


@dataclass(frozen=True, slots=True)
class Context:
    """One running server."""

    pool: Pool
    writer: Writer
    readers: Readers
    clock: Callable[[], float]
    """Seconds since 1970."""
    monotonic: Callable[[], float]
    """Seconds that never go back, for intervals."""
    disk: Disk
    address: ServerAddress
    tokens: Tokens
    pilots: PilotService
    work: WorkIntake
    duties: DutyState
    wake: Wake = field(default_factory=Wake)
    stop: Stop = field(default_factory=Stop)

    def __post_init__(self) -> None:
        self.stop.told.append(self.duties.feed.wake)

    def standing(self, caller: Caller) -> Caller:
        """The caller of a request that began before, as the rights are now. Raises an error if they have ended."""
        return self.tokens.issuer.standing(caller, self.pool.policy, self.clock())

    async def quick_read(self, query: Callable[[Connection], Answer]) -> Answer:
        """Run a short query on a reader's connection.

        If the writer runs in the event loop's thread, the query runs there too. In another thread it would need
        Python's lock for each row, and take it from the writer as often.
        """
        if self.writer.in_loop:
            return query(self.readers.connection())
        return await asyncio.to_thread(lambda: query(self.readers.connection()))

    async def follow_rules(self) -> None:
        """Apply all changes of users, tokens, sites and the policy that any server had committed before this call."""
        peers = self.pool.peers
        if peers.shared and await self.quick_read(rules) != peers.rules:
            await self.apply_of_peers(lambda tx: follow_rules(self.pool, tx))

    async def apply_of_peers(self, apply: Callable[[Transaction], None]) -> None:
        """Run a request of the writer that may apply the policy of another server; wake the duties that follow it."""
        version = self.pool.server.policy_version
        await self.writer.acall(apply)
        if self.pool.server.policy_version != version:
            self.wake.shares.set()
            self.wake.local_ces.set()


def proxy_of(context: Context, ce: str) -> str:
    """The HTTP proxy that the policy gives to the pilots of a CE."""
    section = context.pool.policy.ces.get(ce)
    return section.proxy if section is not None else ""


def identity_of(scope: MutableMapping[str, Any]) -> Caller | PilotId:
    """The sender of a request, whose token was read before its body. Raises the error about that token."""
    identity: Caller | PilotId | PilotageError = scope["state"]["identity"]
    if isinstance(identity, PilotageError):
        raise identity
    return identity
