"""Duties of a server that shares its database: apply changes of peers, rebalance limits, evict silent servers."""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import time

from pilotage import __version__
from pilotage.server.context import Context
from pilotage.server.duties.duty_leases import DutyLeases
from pilotage.server.duties.startup import finish_submissions, forget_unaccepted
from pilotage.services.peers import sync
from pilotage.services.peers.membership import SILENT, evict_silent
from pilotage.services.pool import shared_limits
from pilotage.services.pool.database_peers import DatabasePeers
from pilotage.store.cluster import changes
from pilotage.store.cluster.servers import ServerRow
from pilotage.store.engine.connection import Readers, ServerEvicted, database_time

log = logging.getLogger(__name__)

POLL_PERIOD = 0.2
"""Seconds between two reads of the peers' changes without a notification."""
MIN_POLL_PERIOD = 0.05
"""Minimum seconds between two reads. Also the delay after a read that found changes."""
RECOUNT_PERIOD = 300.0
"""Seconds between two full recounts."""
WATCH_PERIOD = 5.0
LIMIT_PERIOD = 1.0
PRUNE_PERIOD = 60.0

ABANDONED_AFTER = 60.0
"""Seconds without changes after which a partial submission counts as abandoned by its server."""


def describe_server(url: str, policy_version: int, now: float) -> ServerRow:
    """The row of this server, with a new unique name."""
    host = socket.gethostname()
    name = f"{host}:{url.rpartition(':')[2]}-{secrets.token_hex(3)}"
    return ServerRow(name, host, url, __version__, now, now, policy_version)


class DatabaseClock:
    """Seconds since 1970 by the clock of the database, which all servers share."""

    def __init__(self, readers: Readers) -> None:
        self._readers = readers
        self._ahead = 0.0
        self.set()

    def __call__(self) -> float:
        return time.time() + self._ahead

    def set(self) -> None:
        """Read the clock of the database. Any thread may call it."""
        connection = self._readers.connection()
        begin = time.time()
        theirs = database_time(connection, begin)
        self._ahead = theirs - (begin + time.time()) / 2


class PeersDuty:
    """The work of a server that shares its database with others."""

    def __init__(
        self, context: Context, peers: DatabasePeers, duty_leases: DutyLeases, clock: DatabaseClock
    ) -> None:
        self._context = context
        self._peers = peers
        self._duty_leases = duty_leases
        self._clock = clock
        self._recounted_at = self._pruned_at = self._checked_at = time.monotonic()
        self._polled = 0.0
        self._read_to = 0
        self._busy = False
        self.wake = asyncio.Event()
        """Set when another server may have committed changes."""

    def on_notification(self, server: str) -> None:
        """A server has committed changes; "": any server may have."""
        if server != self._peers.server:
            self.wake.set()

    def poll_delay(self) -> float:
        """Seconds until the next read. Further changes without a notification may follow recent ones."""
        return MIN_POLL_PERIOD if self._busy else POLL_PERIOD

    async def poll(self) -> None:
        """Read and apply the committed changes of the other servers, at most once per `MIN_POLL_PERIOD`."""
        await asyncio.sleep(max(0.0, self._polled + MIN_POLL_PERIOD - time.monotonic()))
        self._polled = time.monotonic()
        self.wake.clear()
        context, peers = self._context, self._peers
        begin = max(self._read_to, peers.position)
        batch = await asyncio.to_thread(
            lambda: changes.read(context.readers.connection(), begin, peers.server)
        )
        self._busy = bool(batch.changes) or batch.more
        if not batch.registered:
            raise ServerEvicted("the other servers have evicted this server", hint="start it again")
        if batch.changes or batch.pruned or peers.uncertain:
            version = context.pool.policy_version
            await context.writer.acall(lambda tx: sync.apply_changes(context.pool, tx, batch))
            if context.pool.policy_version != version:
                context.wake_shares.set()
                context.wake_director.set()
        else:
            # There is nothing to apply: no request to the writer is needed.
            self._read_to = batch.position

    async def rebalance_limits(self) -> None:
        context = self._context
        if context.pool.limits.limiter.limits:
            await context.writer.acall(lambda tx: shared_limits.rebalance(context.pool, tx, context.clock()))

    async def recount(self) -> None:
        """Compare the counts in memory with the store, a few queues at a time. Corrects and logs differences."""
        if time.monotonic() - self._recounted_at < RECOUNT_PERIOD:
            return
        self._recounted_at = time.monotonic()
        context = self._context
        queues = await context.writer.acall(lambda _: sync.all_queues(context.pool))
        wrong = 0
        for first in range(0, len(queues), sync.RECOUNT_SIZE):
            part = queues[first : first + sync.RECOUNT_SIZE]
            wrong += await context.writer.acall(
                lambda tx, part=part: sync.recount(context.pool, tx, part)  # type: ignore[misc]
            )
        if wrong:
            log.warning("a recount of %d task queues corrected %d of them", len(queues), wrong)

    async def set_clock(self) -> None:
        await asyncio.to_thread(self._clock.set)

    async def watch(self) -> None:
        """Evict silent servers, and delete change rows that all servers have read. Run by one server."""
        context = self._context
        evicted = await context.writer.acall(lambda tx: evict_silent(context.pool, tx, context.clock()))
        for name in evicted:
            log.warning("evicted the server %s: no heartbeat for %.0f s", name, SILENT)
        if evicted:
            context.wake_director.set()
        if time.monotonic() - self._pruned_at >= PRUNE_PERIOD:
            self._pruned_at = time.monotonic()
            before = context.clock() - sync.CHANGES_KEPT
            await context.writer.acall(lambda tx: changes.prune(tx.connection, before))

    async def finish_submissions(self) -> None:
        """Finish or delete the submissions of servers that have ended. Run by one server."""
        before = self._context.clock() - ABANDONED_AFTER
        await forget_unaccepted(self._context, untouched_since=before)
        await finish_submissions(self._context, untouched_since=before)

    async def keep_limits(self) -> None:
        """Store the limits of the policy, and correct their counts. Run by one server."""
        context = self._context
        if not context.pool.limits.limiter.limits:
            return
        await context.writer.acall(lambda tx: shared_limits.establish(context.pool, tx, context.clock()))
        if time.monotonic() - self._checked_at >= RECOUNT_PERIOD:
            self._checked_at = time.monotonic()
            wrong = await context.writer.acall(
                lambda tx: shared_limits.check(context.pool, tx, context.clock())
            )
            for limit in wrong:
                log.warning("corrected the count of the limit %s", limit.key)
