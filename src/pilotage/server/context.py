"""The objects that the routes and duties of one server share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pilotage.core.errors import PilotageError
from pilotage.core.ids import PilotId
from pilotage.outside.sandbox.directory import DirectorySandbox
from pilotage.server.director_state import DirectorState
from pilotage.server.disk_space import DiskSpace
from pilotage.server.failing_rows import FailingRows
from pilotage.server.home_token import HomeToken
from pilotage.server.metrics_cache import CachedCounts
from pilotage.server.prospects import Prospects
from pilotage.server.submission_gate import SubmissionGate
from pilotage.server.submit_pools import SubmitPools
from pilotage.server.tokens import Caller, Issuer
from pilotage.services.pilots.exchange import PilotMessage, exchange_many
from pilotage.services.pool.state import Pool
from pilotage.services.shares.corrections import UseBook
from pilotage.services.workqueue.state import WorkQueue
from pilotage.store.cluster.servers import ServerRow
from pilotage.store.engine.connection import Connection, Readers
from pilotage.store.tables import work_queue_depth
from pilotage.store.tables.work_queue_depth import WorkQueueDepth
from pilotage.store.writer.transaction import Handler, Transaction
from pilotage.store.writer.writer import Writer

Answer = TypeVar("Answer")


@dataclass(slots=True)
class Context:
    """One running server."""

    pool: Pool
    writer: Writer
    readers: Readers
    sandbox: DirectorySandbox
    issuer: Issuer
    instance: str
    clock: Callable[[], float]
    """Seconds since 1970."""
    program: bytes
    """The pilot, as a zip application."""
    url: str
    pilot_url: str
    """The server's address for pilots."""
    pilot_logs: Path
    """The folder with the output of this machine's pilots."""
    book: UseBook
    """The ledger of used resources."""
    home_token: HomeToken
    exchange: Handler = field(init=False)
    """Processes messages of pilots."""
    work_queue: WorkQueue = field(init=False)
    work_queue_depth: CachedCounts[WorkQueueDepth] = field(init=False)
    prospects: Prospects = field(init=False)
    space: DiskSpace
    """Decides whether the disks have room for new work."""
    submission_gate: SubmissionGate
    """Limits the concurrency of submissions."""
    fingerprints: tuple[str, ...] = ()
    """Of the server's certificates, for pilots. Empty: pilots trust CAs, or there is no TLS."""
    ca_file: str = ""
    """File of CAs on the nodes; empty: the system's."""
    certificate_warning: str = ""
    """The warning of a certificate that ends soon; empty: there is none."""
    certificate_expires: float | None = None
    """When the certificate in use ends; None: there is no TLS."""
    host: str = ""
    """The name of this machine."""
    other_servers: tuple[ServerRow, ...] = ()
    """The other servers of the pool that this server's pilots and clients may turn to."""
    in_loop: bool = False
    """Whether transactions run in the event loop's thread. No other thread may then compute for long."""
    wake_director: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the number of pilots that are needed may have changed."""
    director: DirectorState = field(default_factory=DirectorState)
    submit_pools: SubmitPools = field(init=False)
    wake_locations: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when blocks have moved or data sets were removed."""
    wake_shares: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when shares or corrections must be computed again."""
    wake_intake: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a request was assigned, or a block was closed."""
    wake_release: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when jobs of elements were made, or jobs of requests have ended."""
    retention_ran_at: float | None = None
    """When the retention duty last finished a cycle; None: not yet."""
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    """Set to stop the server."""
    stopping: str = ""
    """The mode of the stop: "", "drain", "keep" or "cancel"."""
    failing: FailingRows = field(init=False)
    """The rows that duties cannot process."""
    ended_by: PilotageError | None = None
    """The error that ends the server, if it ends by itself."""

    @property
    def login_url(self) -> str:
        """The address with the pinned certificates, for clients."""
        return f"{self.url}#sha256={','.join(self.fingerprints)}" if self.fingerprints else self.url

    @property
    def pilot_urls(self) -> tuple[str, ...]:
        """The addresses for pilots of all servers, the own address first."""
        return tuple(dict.fromkeys((self.pilot_url, *(row.pilot_url for row in self.other_servers))))

    @property
    def pool_fingerprints(self) -> tuple[str, ...]:
        """The fingerprints of the certificates of all servers, the own fingerprints first."""
        others = (text for row in self.other_servers for text in row.fingerprints.split(",") if text)
        return tuple(dict.fromkeys((*self.fingerprints, *others)))

    def __post_init__(self) -> None:
        def exchange(tx: Transaction, messages: Sequence[PilotMessage]) -> Sequence[Any]:
            return exchange_many(self.pool, tx, messages, self.clock())

        self.exchange = exchange
        self.failing = FailingRows(self.clock)
        self.work_queue = WorkQueue(self.pool)
        self.submit_pools = SubmitPools(lambda name: self.pool.policy.director.pool(name).max_threads)
        self.prospects = Prospects(self.pool, self.writer, self.clock)
        self.work_queue_depth = CachedCounts(self.readers, time.monotonic, work_queue_depth.read)

    async def quick_read(self, query: Callable[[Connection], Answer]) -> Answer:
        """Run a short query on a reader's connection.

        If the writer runs in the event loop's thread, the query runs there too. In another thread it would need
        Python's lock for each row, and take it from the writer as often.
        """
        if self.in_loop:
            return query(self.readers.connection())
        return await asyncio.to_thread(lambda: query(self.readers.connection()))


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
