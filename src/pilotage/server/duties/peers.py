"""Duties of a server that shares its database: apply changes of peers, rebalance limits, evict silent servers."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from functools import partial

from pilotage import __version__
from pilotage.core.secret_source import SecretSource
from pilotage.server.context import Context
from pilotage.server.duties.duty import Duty
from pilotage.server.duties.startup import finish_submission, forget_staged, unaccepted, unfinished
from pilotage.services.peers import sync
from pilotage.services.peers.membership import SILENT, evict_silent
from pilotage.services.pool import shared_limits
from pilotage.services.pool.database_peers import DatabasePeers
from pilotage.store.cluster import changes
from pilotage.store.cluster.servers import ServerRow
from pilotage.store.engine.connection import Connection, Readers, ServerEvicted, database_time

log = logging.getLogger(__name__)

POLL_PERIOD = 0.2
"""Seconds between two reads of the peers' changes without a notification."""
MIN_POLL_PERIOD = 0.05
"""Minimum seconds between two reads. Also the delay after a read that found changes."""
RECOUNT_PERIOD = 300.0
"""Seconds between two full recounts."""
WATCH_PERIOD = 5.0
RECOUNT = "recount queues"
PRUNE_PERIOD = 60.0

ABANDONED_AFTER = 60.0
"""Seconds without changes after which a partial submission counts as abandoned by its server."""


def describe_server(
    url: str, policy_version: int, now: float, secrets: SecretSource, *, recorded: bool = False
) -> ServerRow:
    """The row of this server, with a new unique name."""
    host = socket.gethostname()
    name = f"{host}:{url.rpartition(':')[2]}-{secrets.token_hex(3)}"
    return ServerRow(name, host, url, __version__, now, now, policy_version, recorded=recorded)


class DatabaseClock:
    """Seconds since 1970 by the clock of the database, which all servers share."""

    def __init__(
        self,
        readers: Readers,
        local: Callable[[], float],
        read: Callable[[Connection, float], float] = database_time,
    ) -> None:
        """`local`: seconds by a clock that nobody sets. `read`: reads the database's clock."""
        self._readers = readers
        self._read = read
        self._local = local
        self._ahead = 0.0
        self.set()

    def __call__(self) -> float:
        return self._local() + self._ahead

    def set(self) -> None:
        """Read the clock of the database. Any thread may call it."""
        connection = self._readers.connection()
        begin = self._local()
        theirs = self._read(connection, begin)
        self._ahead = theirs - (begin + self._local()) / 2


class PeersDuty(Duty):
    """Applies the committed changes of the other servers."""

    name = "peers"

    def __init__(self, context: Context, peers: DatabasePeers) -> None:
        super().__init__(context)
        self._peers = peers
        self._polled = 0.0
        self._read_to = 0
        self._busy = False
        self.wake = asyncio.Event()
        """Set when another server may have committed changes."""

    def on_notification(self, server: str) -> None:
        """A server has committed changes; "": any server may have."""
        if server != self._peers.server:
            self.wake.set()

    def period(self) -> float:
        """Seconds until the next read. Further changes without a notification may follow recent ones."""
        return MIN_POLL_PERIOD if self._busy else POLL_PERIOD

    async def work(self) -> None:
        """Read and apply the committed changes of the other servers, at most once per `MIN_POLL_PERIOD`."""
        await asyncio.sleep(max(0.0, self._polled + MIN_POLL_PERIOD - self._context.monotonic()))
        self._polled = self._context.monotonic()
        self.wake.clear()
        context, peers = self._context, self._peers
        begin = max(self._read_to, peers.position)
        batch = await asyncio.to_thread(
            lambda: changes.read(context.readers.connection(), begin, peers.server)
        )
        self._busy = bool(batch.changes) or batch.more
        if not batch.registered:
            raise ServerEvicted("the other servers have evicted this server", hint="start it again")
        if sync.has_news(peers, batch):
            await context.apply_of_peers(lambda tx: sync.apply_changes(context.pool, tx, batch))
        else:
            # There is nothing to apply: no request to the writer is needed.
            self._read_to = batch.position


class RebalanceDuty(Duty):
    """Shares the room of limits out among the servers."""

    name = "shared limits"

    def period(self) -> float:
        return POLL_PERIOD

    async def work(self) -> None:
        context = self._context
        if context.pool.offers.limits.limiter.limits:
            await context.writer.acall(lambda tx: shared_limits.rebalance(context.pool, tx, context.clock()))


class RecountDuty(Duty):
    """Compares the counts in memory with the store, a few queues at a time. Corrects and logs differences."""

    name = "recount"
    every = WATCH_PERIOD

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._recounted_at = context.monotonic()

    async def work(self) -> None:
        if self._context.monotonic() - self._recounted_at < RECOUNT_PERIOD:
            self._rows.leave_out(RECOUNT)
            return
        self._recounted_at = self._context.monotonic()
        context = self._context
        queues = await context.writer.acall(lambda _: sync.all_queues(context.pool.queues))
        wrong = await self._rows.in_slices(
            RECOUNT, queues, lambda tx, part: sync.recount(context.pool, tx, part), sync.RECOUNT_SIZE
        )
        if wrong:
            log.warning("a recount of %d task queues corrected %d of them", len(queues), wrong)


class ClockDuty(Duty):
    """Reads the clock of the database."""

    name = "clock"
    every = WATCH_PERIOD

    def __init__(self, context: Context, clock: DatabaseClock) -> None:
        super().__init__(context)
        self._clock = clock

    async def work(self) -> None:
        await asyncio.to_thread(self._clock.set)


class ServersDuty(Duty):
    """Evicts silent servers, and deletes change rows that all servers have read."""

    name = lease = "servers"
    every = WATCH_PERIOD

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._pruned_at = context.monotonic()

    async def work(self) -> None:
        context = self._context
        evicted = await context.writer.acall(lambda tx: evict_silent(context.pool, tx))
        for name in evicted:
            log.warning("evicted the server %s: no heartbeat for %.0f s", name, SILENT)
        if evicted:
            context.wake.local_ces.set()
        if self._context.monotonic() - self._pruned_at >= PRUNE_PERIOD:
            self._pruned_at = self._context.monotonic()
            before = context.clock() - sync.CHANGES_KEPT
            await context.writer.acall(lambda tx: changes.prune(tx.connection, before))


class SubmissionsDuty(Duty):
    """Finishes or deletes the submissions of servers that have ended."""

    name = lease = "submissions"
    every = 30.0
    """Seconds between two searches for abandoned submissions of other servers."""

    async def work(self) -> None:
        context, before = self._context, self._context.clock() - ABANDONED_AFTER
        for submission in await unaccepted(context, before):
            await self._rows.alone(
                "delete partial submissions",
                submission,
                partial(forget_staged, context, submission, before),
            )
        for submission in await unfinished(context, before):
            await self._rows.alone(
                "create remaining jobs",
                submission,
                partial(finish_submission, context, submission),
            )


class LimitsDuty(Duty):
    """Stores the limits of the policy, and corrects their counts."""

    name = lease = "limits"
    every = 1.0

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._checked_at = context.monotonic()

    async def work(self) -> None:
        context = self._context
        if not context.pool.offers.limits.limiter.limits:
            return
        await context.writer.acall(lambda tx: shared_limits.establish(context.pool, tx, context.clock()))
        if self._context.monotonic() - self._checked_at >= RECOUNT_PERIOD:
            self._checked_at = self._context.monotonic()
            wrong = await context.writer.acall(
                lambda tx: shared_limits.check(context.pool, tx, context.clock())
            )
            for limit in wrong:
                log.warning("corrected the count of the limit %s", limit.key)
