"""One iteration of the director over all CEs: its facts, its decisions, and the orders that follow from them.

Each step is short, so that the caller can make pauses between them. All steps run in the writer's thread or, where
their docstrings say so, in any thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from random import Random
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from pilotage.core.ids import QueueId
from pilotage.core.policy import Policy
from pilotage.core.policy.model import PilotType
from pilotage.core.provisioning.demand import DemandQueue
from pilotage.core.provisioning.iteration import (
    PRIVATE,
    BatchOrder,
    CeLoad,
    IterationFacts,
    Mask,
    QueueDecision,
    Shortfall,
    decide,
)
from pilotage.core.provisioning.matched import FreePilots, decide_matched
from pilotage.core.provisioning.submit_pools import PoolLoad, verdicts_text
from pilotage.core.queues.fit import jobs_beside
from pilotage.core.queues.index import QueueIndex
from pilotage.services.director.ce_loads import ce_load
from pilotage.services.director.ce_matching import QueueMatches, RequesterMatching
from pilotage.services.matching.known_offers import as_private
from pilotage.services.pool.provisioning import Provisioning
from pilotage.services.pool.state import Pool
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import ces, pilot_demand
from pilotage.store.tables.ces import CeRow
from pilotage.store.tables.pilot_demand import FreePilotsRow, WaitingPilots
from pilotage.store.writer.transaction import Transaction

PART = 500
"""Queues or rows of one step."""
CES_AT_ONCE = 4
"""CEs whose state is copied in one step."""

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class DemandCounts:
    """Counts from the store at the begin of an iteration. Read by any thread."""

    waiting: Sequence[WaitingPilots]
    pilots: Mapping[str, tuple[int, int]]
    """CE → waiting and running pilots."""
    ces: Mapping[str, CeRow]
    orders: Mapping[str, Sequence[BatchOrder]]
    """Orders of each CE that were not stored as intents before the rows were read."""
    free: Sequence[FreePilotsRow] = ()
    """Only with demand matched."""


def read_counts(
    connection: Connection, policy: Policy, orders: Mapping[str, Sequence[BatchOrder]], now: float
) -> DemandCounts:
    """Read the counts; for a reader's connection, in any thread.

    `orders`: a copy of the pool's. It must be older than the rows: an order that becomes an intent meanwhile is then
    counted twice, and never missed.
    """
    settings = policy.director
    since = now - settings.max_pilot_waiting_hours * 3600
    return DemandCounts(
        pilot_demand.waiting_by_queue(connection, since),
        ces.pilot_counts(connection),
        ces.all_rows(connection),
        orders,
        pilot_demand.free_pilots(connection, since) if settings.demand == "matched" else (),
    )


@dataclass(slots=True)
class CeFitting:
    """The predicate of the match for all waiting queues and all CEs."""

    pauses: Sequence[frozenset[QueueId]]
    """For each CE the queues for which no pilot is started there for a while."""
    places: Mapping[QueueId, int]
    generic: Mask
    """Whether a generic pilot fits, by queue and CE; Requirements are not checked."""
    private: Mask
    matches: QueueMatches = field(default_factory=QueueMatches)

    def ces(self, queue: DemandQueue, pilot_type: PilotType) -> Mask:
        row: Mask = (self.private if pilot_type == PRIVATE else self.generic)[self.places[queue.id]]
        return row

    def may_match(self, queue: DemandQueue, ce: int, pilot_type: PilotType) -> bool:
        match = self.matches.by_queue.get((queue.id, pilot_type))
        return match is None or bool(match.fits[ce])

    def is_paused(self, queue: DemandQueue, ce: int) -> bool:
        return queue.id in self.pauses[ce]

    def obstacle(self, queue: DemandQueue, pilot_type: PilotType, ces: Sequence[int]) -> Shortfall:
        return self.matches.obstacle(queue, pilot_type, ces)


@dataclass(slots=True)
class Iteration:
    """One iteration, made by `prepare`."""

    facts: IterationFacts
    fitting: CeFitting
    free: list[FreePilots]
    now: float
    policy: Policy
    index: QueueIndex
    slots: NDArray[np.int64]
    """The slot of each queue in the index."""
    decisions: list[QueueDecision] = field(default_factory=list)
    orders: dict[str, list[BatchOrder]] = field(default_factory=dict)
    """The orders of all decisions, by CE."""
    refusals: dict[QueueId, str] = field(default_factory=dict)
    """The reason why no pool takes the pilots of a queue."""

    def decide(self, rng: Random) -> Iterator[QueueDecision | None]:
        """The decisions, kept in `decisions` too. Runs in any thread; the caller may pause after each."""
        steps: Iterator[QueueDecision | None]
        if self.policy.director.demand == "matched":
            steps = decide_matched(self.facts, self.fitting, self.free, rng)
        else:
            steps = decide(self.facts, self.fitting, rng)
        for decision in steps:
            if decision is not None:
                self._keep(decision)
            yield decision

    def parts(self) -> list[Sequence[object]]:
        """All queues and decisions, in parts. Who drops an iteration frees these one by one, to make no long pause."""
        return [*_parts(self.facts.queues, PART), *_parts(self.decisions, PART)]

    def _keep(self, decision: QueueDecision) -> None:
        self.decisions.append(decision)
        if decision.shortfall is Shortfall.NO_POOL:
            self.refusals[decision.queue.id] = verdicts_text(decision.tried)
        elif decision.shortfall in (Shortfall.IMPOSSIBLE, Shortfall.REFUSED):
            self.refusals[decision.queue.id] = decision.shortfall
        settings, identity = self.policy.director, decision.queue.identity
        for order in decision.orders:
            owner, group = identity.owner, identity.group
            if order.pilot_type != PRIVATE:
                owner, group = settings.generic_pilot_dn, settings.generic_pilot_group
            pool = self.policy.ces[order.ce].submit_pool
            self.orders.setdefault(order.ce, []).append(
                BatchOrder(decision.queue.id, order.pilots, order.pilot_type, owner, group, pool)
            )


def prepare(
    pool: Pool, counts: DemandCounts, submissions: Mapping[str, int], now: float
) -> Iterator[Iteration | None]:
    """Copy the waiting queues and the state of CEs and pools, and match them; in the writer's thread.

    None: a good moment for a pause. The last value is the iteration. `submissions`: by pool, the number under way.
    """
    policy, index = pool.policy, pool.queues.index
    names, loads = sorted(policy.ces), list[CeLoad]()
    for some in _parts(names, CES_AT_ONCE):
        if pool.policy is not policy:
            # A new policy has come in a pause.
            yield from prepare(pool, counts, submissions, now)
            return
        loads += [ce_load(pool, name, counts, now) for name in some]
        yield None
    pauses = [_paused_queues(pool.provisioning, name, now) for name in names]
    pools = _pool_loads(policy, counts, submissions)
    yield None
    queues: list[DemandQueue] = []
    yield from _copy_queues(index, policy, counts, queues)
    facts = IterationFacts(
        settings=policy.director,
        default_pools=policy.default_submit_pools(),
        max_cpu=policy.matching.cpu_buckets[-1],
        queues=queues,
        ces=loads,
        pools=pools,
    )
    yield None
    size = (len(queues), len(names))
    fitting = CeFitting(
        pauses,
        {queue.id: place for place, queue in enumerate(queues)},
        np.zeros(size, dtype=np.bool_),
        np.zeros(size, dtype=np.bool_),
    )
    places = {name: place for place, name in enumerate(names)}
    free = [_free_pilots(places[row.ce], row) for row in counts.free if row.ce in places]
    slots = np.fromiter((queue.slot for queue in queues), np.int64, len(queues))
    work = Iteration(facts, fitting, free, now, policy, index, slots)
    yield from _match_all(pool, work, now)
    yield work


def _copy_queues(
    index: QueueIndex, policy: Policy, counts: DemandCounts, queues: list[DemandQueue]
) -> Iterator[None]:
    """Add the queues that wait to `queues`, a part in each step."""
    waiting: dict[QueueId, int] = {}
    ordered = [
        WaitingPilots(order.queue, name, ce.pilot_processors, ce.pilot_memory, order.pilots)
        for name, orders in counts.orders.items()
        if (ce := policy.ces.get(name)) is not None
        for order in orders
    ]
    for part in _parts([*counts.waiting, *ordered], PART):
        _add_waiting(waiting, index, policy, part)
        yield None
    for some in _parts(list(index.entries.values()), PART):
        queues += [
            DemandQueue(
                entry.id, entry.identity, entry.priority, entry.waiting, waiting.get(entry.id, 0), entry.slot
            )
            for entry in some
            if entry.waiting and entry.admitted
        ]
        yield None


def _parts(rows: Sequence[Row], size: int) -> Iterator[Sequence[Row]]:
    return (rows[first : first + size] for first in range(0, len(rows), size))


def _match_all(pool: Pool, work: Iteration, now: float) -> Iterator[None]:
    """Match the queues with the CEs: by the index, and by the broker."""
    for place, of_private in product(range(len(work.facts.ces)), (False, True)):
        yield None
        _match_ce(pool, work, place, of_private=of_private)
    if pool.policy is work.policy:
        # Under a new policy the orders will not be posted.
        matching = RequesterMatching(pool, work.facts.ces, now)
        work.fitting.matches = matching.answers
        yield from matching.run(work.facts.queues)


def _match_ce(pool: Pool, work: Iteration, place: int, *, of_private: bool) -> None:
    """Ask the index which queues fit the private, or the generic, pilots of a CE."""
    index, slots = work.index, work.slots
    if pool.queues.index is not index:
        return  # The slots are of an earlier index, and the orders will not be posted.
    fits = np.zeros(int(slots.max()) + 1 if len(slots) else 0, dtype=np.bool_)
    offer = work.facts.ces[place].offer
    closed = pool.offers.limits.limiter.exhausted_limits(offer.site, offer.ce, work.now)
    fitting = index.fitting_slots(as_private(offer) if of_private else offer, closed)
    fits[fitting[: fitting.searchsorted(len(fits))]] = True
    mask = work.fitting.private if of_private else work.fitting.generic
    mask[:, place] = fits[slots]


def post_orders(pool: Pool, tx: Transaction, work: Iteration) -> int:
    """Leave the orders for the cycles of the CEs, which store them as intents; the number of pilots."""
    policy = pool.policy
    if policy is not work.policy or pool.queues.index is not work.index:
        return 0  # A new policy has come since: the next iteration follows it.
    tx.set(pool.provisioning, "refusals", work.refusals)
    for ce, orders in work.orders.items():
        tx.put(pool.provisioning.orders, ce, (*pool.provisioning.orders.get(ce, ()), *orders))
    return sum(order.pilots for orders in work.orders.values() for order in orders)


def _add_waiting(
    waiting: dict[QueueId, int], index: QueueIndex, policy: Policy, rows: Sequence[WaitingPilots]
) -> None:
    """Add to each queue the jobs that its waiting and its ordered pilots run beside each other."""
    for row in rows:
        entry = index.entries.get(row.queue)
        if entry is not None:
            ce = policy.ces.get(row.ce)
            beside = jobs_beside(entry.identity, row.processors, row.memory, ce.pilot_disk if ce else 0)
            waiting[row.queue] = waiting.get(row.queue, 0) + row.pilots * max(1, beside)


def _pool_loads(policy: Policy, counts: DemandCounts, submissions: Mapping[str, int]) -> dict[str, PoolLoad]:
    settings = policy.director
    loads = {
        name: PoolLoad(
            name,
            settings.pool(name).total_threads,
            settings.pool(name).enabled,
            settings.is_handled(name),
            submissions.get(name, 0),
        )
        for name in policy.submit_pools()
    }
    for orders in counts.orders.values():
        for order in orders:
            if order.pool in loads:
                loads[order.pool].submissions += 1
    return loads


def _paused_queues(provisioning: Provisioning, name: str, now: float) -> frozenset[QueueId]:
    note = provisioning.directors.get(name)
    return (
        frozenset() if note is None else frozenset(q for q, pause in note.pauses.items() if now < pause.until)
    )


def _free_pilots(place: int, row: FreePilotsRow) -> FreePilots:
    private = row.pilot_type == PRIVATE
    return FreePilots(
        place,
        row.pilot_type,
        row.started,
        row.waiting,
        row.owner,
        row.group if private and row.group else None,
    )
