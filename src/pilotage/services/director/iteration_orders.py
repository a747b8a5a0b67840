"""The orders that the iterations over all CEs have left for the CE of a batch system."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pilotage.core.policy import Ce
from pilotage.core.provisioning.iteration import PRIVATE, BatchOrder, room_for_pilots
from pilotage.outside.batch.adapter import Shape
from pilotage.services.director.budgets import orders_within
from pilotage.services.director.ce_director import CeDirector, ChosenOrders, CycleFacts
from pilotage.services.director.forwarding import (
    ForwardedOrder,
    forwarded_orders,
    forwarding_properties,
    hook_call,
)
from pilotage.services.director.submissions import SubmissionOrder
from pilotage.services.pilots.enrolment import PROBE
from pilotage.services.pool.state import Pool
from pilotage.store.tables import ces
from pilotage.store.tables.ces import LiveTotals
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.pilot import Node


@dataclass(frozen=True, slots=True)
class IterationOrders:
    """Carries out the orders of the last iteration, as far as the CE has room now."""

    platform: str
    """The platform that the nodes of the CE are expected to have."""

    def node(self, ce: Ce) -> Node:
        return Node(
            platform=self.platform,
            processors=ce.pilot_processors,
            memory=ce.pilot_memory,
            disk=ce.pilot_disk,
        )

    def probe(self, ce: Ce) -> SubmissionOrder:
        return SubmissionOrder(1, _shape(ce), PROBE, ce.submit_pool)

    def choose(self, director: CeDirector, pool: Pool, tx: Transaction, facts: CycleFacts) -> ChosenOrders:
        """The submissions of this cycle. Orders that are not carried out now are decided again by an iteration."""
        ce, name = facts.ce, director.ce
        live = ces.live_totals(tx.connection, name) if facts.live is None else facts.live
        orders = _orders_with_jobs(pool, name)
        tx.delete(pool.provisioning.orders, name)
        allowed = _within_room(director, ce, live, orders) if facts.is_open else ()
        allowed = orders_within(facts.budget, allowed)
        forwarded = forwarded_orders(pool, tx, name, allowed, facts.now)
        chosen = [_submission(pool, name, ce, order) for order in forwarded]
        return ChosenOrders(chosen, live, ce.max_running * ce.pilot_processors)


def _shape(ce: Ce) -> Shape:
    return Shape(ce.pilot_processors, ce.pilot_memory, ce.wall)


def _orders_with_jobs(pool: Pool, ce: str) -> tuple[BatchOrder, ...]:
    """The orders whose jobs still wait: other pilots may have taken them since the iteration read its facts."""
    entries = pool.queues.index.entries
    return tuple(
        order
        for order in pool.provisioning.orders.get(ce, ())
        if (entry := entries.get(order.queue)) is not None and entry.waiting
    )


def _within_room(
    director: CeDirector, ce: Ce, live: LiveTotals, orders: Sequence[BatchOrder]
) -> tuple[BatchOrder, ...]:
    """The orders as far as the caps of the CE allow now."""
    running = live.pilots - live.waiting + director.memory.orphans
    room = room_for_pilots(live.waiting, running, ce.max_waiting, ce.max_running)
    allowed = []
    for order in orders:
        if room > 0:
            largest = order.pilots if director.largest is None else director.largest
            allowed.append(replace(order, pilots=min(room, order.pilots, largest)))
            room -= allowed[-1].pilots
    return tuple(allowed)


def _submission(pool: Pool, name: str, ce: Ce, forwarded: ForwardedOrder) -> SubmissionOrder:
    order, made = forwarded.order, forwarded.forwarding
    # Where a pilot isolates payloads, a private pilot may serve all owners of a group with JOB_SHARING.
    is_bound = order.pilot_type == PRIVATE and ce.isolation != "require"
    return SubmissionOrder(
        order.pilots,
        _shape(ce),
        order.pilot_type,
        order.pool,
        queue=order.queue,
        only_owner=order.owner if is_bound else None,
        owner=order.owner,
        group=order.group,
        properties=_properties(order) | forwarding_properties(forwarded),
        flags=made.flags,
        hook=hook_call(pool.policy, ce, name, forwarded.identity, made),
    )


def _properties(order: BatchOrder) -> dict[str, str]:
    """The identity under which pilots are submitted, and the task queue that they are for."""
    named = {"queue": str(order.queue), "owner": order.owner, "group": order.group}
    return {name: value for name, value in named.items() if value}
