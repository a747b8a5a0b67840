"""One of several servers on one database: it follows the others, lends and borrows, and buries the dead."""

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

FOLLOWS = 0.2
"""Seconds between two looks at what the others have done, if nothing is heard of them."""
SOONEST = 0.05
"""Seconds between two looks at least, and while there is something each time."""
RECOUNTS = 300.0
"""Seconds between two full counts."""
WATCHES = 5.0
LIMITS = 1.0
PRUNES = 60.0


HANDED_ON = 60.0
"""A submission that nobody has touched for so long is not in the hands of its server any more."""


def describe_server(url: str, policy_version: int, now: float) -> ServerRow:
    """The row of this server, with a name that no earlier one had."""
    host = socket.gethostname()
    name = f"{host}:{url.rpartition(':')[2]}-{secrets.token_hex(3)}"
    return ServerRow(name, host, url, __version__, now, now, policy_version)


class DatabaseClock:
    """Seconds since 1970 by the clock of the database, which all servers have in common."""

    def __init__(self, readers: Readers) -> None:
        self._readers = readers
        self._ahead = 0.0
        self.set()

    def __call__(self) -> float:
        return time.time() + self._ahead

    def set(self) -> None:
        """Ask the database what time it is. Any thread."""
        connection = self._readers.connection()
        begin = time.time()
        theirs = database_time(connection, begin)
        self._ahead = theirs - (begin + time.time()) / 2


class PeersDuty:
    """What a server does because there may be others."""

    def __init__(
        self, context: Context, peers: DatabasePeers, duty_leases: DutyLeases, clock: DatabaseClock
    ) -> None:
        self._context = context
        self._peers = peers
        self._duty_leases = duty_leases
        self._clock = clock
        self._recounted = self._pruned = self._checked = time.monotonic()
        self._looked = 0.0
        self._read_to = 0
        self._busy = False
        self.wake = asyncio.Event()
        """Set when another server has written."""

    def heard(self, server: str) -> None:
        """A server has written; "": some may have."""
        if server != self._peers.server:
            self.wake.set()

    def poll_delay(self) -> float:
        """Seconds. Where there was something there may be more, of which no hint was given."""
        return SOONEST if self._busy else FOLLOWS

    async def follow(self) -> None:
        """Take up what the others have committed. However often it is woken, it looks so often only."""
        await asyncio.sleep(max(0.0, self._looked + SOONEST - time.monotonic()))
        self._looked = time.monotonic()
        self.wake.clear()
        context, peers = self._context, self._peers
        begin = max(self._read_to, peers.position)
        found = await asyncio.to_thread(
            lambda: changes.read(context.readers.connection(), begin, peers.server)
        )
        self._busy = bool(found.changes) or found.more
        if not found.registered:
            raise ServerEvicted("the other servers have given this one up", hint="start it again")
        if found.changes or found.pruned or peers.uncertain:
            version = context.pool.policy_version
            await context.writer.acall(lambda tx: sync.apply_changes(context.pool, tx, found))
            if context.pool.policy_version != version:
                context.wake_shares.set()
                context.wake_director.set()
        else:
            # Nothing to apply: the writer need not hear of it.
            self._read_to = found.position

    async def rebalance_limits(self) -> None:
        context = self._context
        if context.pool.limits.limiter.limits:
            await context.writer.acall(lambda tx: shared_limits.rebalance(context.pool, tx, context.clock()))

    async def recount(self) -> None:
        """Check memory against the store, some queues at a time; what differs is set right, and said."""
        if time.monotonic() - self._recounted < RECOUNTS:
            return
        self._recounted = time.monotonic()
        context = self._context
        queues = await context.writer.acall(lambda _: sync.all_queues(context.pool))
        wrong = 0
        for first in range(0, len(queues), sync.RECOUNT_SIZE):
            part = queues[first : first + sync.RECOUNT_SIZE]
            wrong += await context.writer.acall(
                lambda tx, part=part: sync.recount(context.pool, tx, part)  # type: ignore[misc]
            )
        if wrong:
            log.warning("a recount of %d task queues has set %d right", len(queues), wrong)

    async def set_clock(self) -> None:
        await asyncio.to_thread(self._clock.set)

    async def watch(self) -> None:
        """A duty: give up silent servers, forget what everybody has read."""
        context = self._context
        gone = await context.writer.acall(lambda tx: evict_silent(context.pool, tx, context.clock()))
        for name in gone:
            log.warning("the server %s has given no sign of life for %.0f s: it is given up", name, SILENT)
        if gone:
            context.wake_director.set()
        if time.monotonic() - self._pruned >= PRUNES:
            self._pruned = time.monotonic()
            before = context.clock() - sync.CHANGES_KEPT
            await context.writer.acall(lambda tx: changes.prune(tx.connection, before))

    async def finish_submissions(self) -> None:
        """A duty: what a server has left behind that is not there any more."""
        before = self._context.clock() - HANDED_ON
        await forget_unaccepted(self._context, untouched_since=before)
        await finish_submissions(self._context, untouched_since=before)

    async def keep_limits(self) -> None:
        """A duty: the limits of the policy are there, and rightly counted."""
        context = self._context
        if not context.pool.limits.limiter.limits:
            return
        await context.writer.acall(lambda tx: shared_limits.establish(context.pool, tx, context.clock()))
        if time.monotonic() - self._checked >= RECOUNTS:
            self._checked = time.monotonic()
            wrong = await context.writer.acall(
                lambda tx: shared_limits.check(context.pool, tx, context.clock())
            )
            for limit in wrong:
                log.warning("the limit %s was reckoned wrong and is set right", limit.key)
