"""The running limits of a pool, with the rollback of each change."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from pilotage.core.ids import QueueId
from pilotage.core.policy import Policy
from pilotage.core.queues.identity import QueueIdentity
from pilotage.core.queues.limit_leases import UnleasedRoom
from pilotage.core.queues.limits import Limit, Limiter, Rates
from pilotage.core.queues.shared_limits import Key, SharedLimiter
from pilotage.services.pool.peers import Peers
from pilotage.store.cluster import limit_leases as lease_rows
from pilotage.store.tables import counts as count_rows
from pilotage.store.tables.pilots import PilotRow
from pilotage.store.writer.transaction import Transaction

IdentityOf = Callable[[Transaction, QueueId], QueueIdentity]


class RunningLimits:
    """The limits of the only server of a store: it counts running jobs in memory."""

    __slots__ = ("_identity_of", "limiter")

    def __init__(self, limiter: Limiter, identity_of: IdentityOf) -> None:
        self.limiter = limiter
        self._identity_of = identity_of

    def replace(self, tx: Transaction, limits: Iterable[Limit]) -> None:
        """Apply the limits of a policy, and count the jobs under them."""
        self.limiter.replace_limits(limits)
        self.recount(tx)

    def started(self, tx: Transaction, queue: QueueIdentity, pilot: PilotRow, now: float) -> None:
        """Add a job of `queue` that is offered to `pilot`."""
        if self.limiter.limits:
            self._touch(tx)
            self.limiter.record_start(queue, pilot.site, pilot.ce, now)

    def left(self, tx: Transaction, queue: QueueIdentity, pilot: PilotRow) -> None:
        """Subtract a job of `queue` that `pilot` no longer has."""
        if self.limiter.limits:
            self._touch(tx)
            self.limiter.record_end(queue, pilot.site, pilot.ce)

    def _touch(self, tx: Transaction) -> None:
        touched = tx.touched("limits", self._restore)
        if not touched:
            touched[tx] = self.limiter.rates()

    def _restore(self, touched: dict[Transaction, Rates]) -> None:
        for tx, rates in touched.items():
            self.recount(tx)
            self.limiter.restore(rates)

    def recount(self, tx: Transaction) -> None:
        """Count the running jobs in the store."""
        held = count_rows.held_counts(tx.connection)
        self.limiter.recount(
            (self._identity_of(tx, queue), site, ce, count) for queue, site, ce, count in held
        )

    def save(self, tx: Transaction) -> None:
        """Write this server's allocations of shared limits. A single server has none."""

    def invalidate_counts(self, tx: Transaction, policy: Policy) -> None:
        """Drop stored counts that no server updates under `policy`. Call it in the transaction that applies it.

        A single server counts in memory: it has no stored counts.
        """


class SharedRunningLimits(RunningLimits):
    """The limits of one of several servers. Its allocations in the store decide whether a job may start."""

    __slots__ = ("_server", "allocated")
    limiter: SharedLimiter

    def __init__(self, limiter: SharedLimiter, identity_of: IdentityOf, server: str) -> None:
        super().__init__(limiter, identity_of)
        self._server = server
        self.allocated: set[Key] = set()
        """Limits with an allocation of this server in the store."""

    def replace(self, tx: Transaction, limits: Iterable[Limit]) -> None:
        self.save(tx)
        self.limiter.replace_limits(limits)
        lease_rows.create_allocations(
            tx.connection, self._server, [limit.key for limit in self.limiter.limits]
        )
        self.recount(tx)

    def _touch(self, tx: Transaction) -> None:
        super()._touch(tx)
        tx.before_commit("limits", lambda: self.save(tx))

    def recount(self, tx: Transaction) -> None:
        """Read the allocations. A duty counts the running jobs."""
        limiter = self.limiter
        mine = lease_rows.allocations_of(tx.connection, self._server)
        self.allocated = set(mine)
        limiter.read(lease_rows.states(tx.connection), mine, limiter.others)

    def save(self, tx: Transaction) -> None:
        """Write the changed allocations of this server. Call it before allocations are read from the store."""
        limiter = self.limiter
        # A limit has no allocation until a server has counted its running jobs.
        known = {key: limiter.mine[key] for key in limiter.changed if key in self.allocated}
        limiter.changed.clear()
        lease_rows.save_allocations(tx.connection, self._server, known)

    def invalidate_counts(self, tx: Transaction, policy: Policy) -> None:
        """Drop the counts, so that a later policy with the same limit counts its jobs again.

        The duty could miss that a limit was absent for a short time. Jobs that started meanwhile would then return
        room that they had never taken.
        """
        self.save(tx)
        states = lease_rows.states(tx.connection, lock=True)
        limits = {limit.key: limit for limit in policy.matching_limits()}
        lease_rows.delete_limits(tx.connection, states.keys() - limits.keys())
        lease_rows.save_states(tx.connection, _uncounted(states, limits))


def _uncounted(states: dict[Key, UnleasedRoom], limits: dict[Key, Limit]) -> dict[Key, UnleasedRoom]:
    """New states for limits that no longer restrict running jobs."""
    return {
        key: replace(shared, running=None)
        for key, shared in states.items()
        if key in limits and limits[key].running is None and shared.running is not None
    }


def limits_for(peers: Peers, identity_of: IdentityOf) -> RunningLimits:
    if peers.shared:
        return SharedRunningLimits(SharedLimiter(), identity_of, peers.server)
    return RunningLimits(Limiter(), identity_of)
