"""Agents that are silent for too long: unsplit elements go back, and split ones get another agent of the team."""

from __future__ import annotations

from collections.abc import Sequence

from pilotage.core.plurals import plural
from pilotage.services.workqueue.membership import give_back
from pilotage.services.workqueue.state import WorkQueue
from pilotage.store.tables import agents, elements
from pilotage.store.tables.events import record
from pilotage.store.writer.transaction import Transaction

MOST = 100
"""Agents of one look."""
ELEMENTS_AT_ONCE = 50
"""Split elements that a transaction gives to another agent, with their jobs."""


def over(tx: Transaction, now: float) -> list[int]:
    """Agents whose lease is over."""
    return [agent.id for agent in agents.with_expired_lease(tx.connection, now, MOST)]


def expire(work_queue: WorkQueue, tx: Transaction, now: float, gone: Sequence[int]) -> int:
    """End agents whose lease is over; returns their number."""
    ended = 0
    for number in gone:
        agent = agents.for_change(tx.connection, number)
        if agent is None or agent.ended is not None or agent.lease_until > now:
            continue
        back = give_back(work_queue, tx, agent, "the lease of the agent is over", now)
        agents.end(tx.connection, agent.id, now)
        detail = f"{agent.name}: its lease is over, {plural(back, 'element')} went back"
        record(
            tx.connection,
            work_queue.pool.ids.events,
            at=now,
            kind="agent-lost",
            actor="server",
            detail=detail,
        )
        ended += 1
    return ended


def abandoned(tx: Transaction, now: float) -> list[int]:
    """Ended agents with elements that a live agent of their team can take over."""
    return [
        agent.id
        for agent in agents.ended_with_work(tx.connection, MOST)
        if agents.live_of_team(tx.connection, agent.team, now)
    ]


def take_over(work_queue: WorkQueue, tx: Transaction, now: float, of: Sequence[int]) -> int:
    """Give split elements of ended agents to live ones, some of each; returns the number of elements."""
    given = 0
    for number in of:
        # Locked: an agent that joins again at another server keeps the elements that it gets there.
        agent = agents.for_change(tx.connection, number)
        if agent is None or agent.ended is None:
            continue
        heirs = agents.live_of_team(tx.connection, agent.team, now)
        ids = elements.split_of(tx.connection, agent.id, ELEMENTS_AT_ONCE) if heirs else []
        for place, heir in enumerate(heirs):
            part = ids[place :: len(heirs)]
            if part:
                elements.give_to_agent(tx.connection, part, heir)
        given += len(ids)
        if not ids:
            # An element that was offered while the lease ended has no holder who would give it back.
            give_back(work_queue, tx, agent, "its agent has ended", now)
    return given
