"""Agents join, drain and leave."""

from __future__ import annotations

from pilotage.core.errors import Conflict, Forbidden, IncompatibleVersion, NotFound, Superseded
from pilotage.core.programs import Programs
from pilotage.core.workqueue.states import ElementState
from pilotage.services.workqueue.custody import AgentUser
from pilotage.services.workqueue.moves import ElementMoves
from pilotage.services.workqueue.state import WorkQueue
from pilotage.store.tables import agents, elements
from pilotage.store.tables.agents import BY_ADMINISTRATOR, AgentRow
from pilotage.store.tables.elements import ElementRow
from pilotage.store.tables.events import record
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.agents import AGENT_PROTOCOL, JoinRequest, JoinResponse


def join(
    work_queue: WorkQueue, tx: Transaction, message: JoinRequest, user: AgentUser, now: float
) -> JoinResponse:
    """Store that an agent is there. Another process with its name is superseded, and its elements go back."""
    if message.protocol != AGENT_PROTOCOL:
        raise IncompatibleVersion(
            f"the agent speaks protocol {message.protocol}, the server {AGENT_PROTOCOL}",
            hint="install the version of the server",
        )
    user.check_team(message.team)
    settings = work_queue.pool.policy.requests
    lease_until = now + settings.agent_lease
    known = agents.by_name(tx.connection, message.name, lock=True)
    processes = Programs.of(known.nonce if known else None)
    is_present = processes.is_present(message.nonce)
    if processes.was_superseded(message.nonce):
        # A late copy of its message: it must not take the elements of the living process.
        raise _superseded(message.name)
    nonce = processes.followed_by(message.nonce)
    facts = {"nonce": nonce, "version": message.version, "host": message.host}
    if known is None:
        agent = agents.insert(
            tx.connection,
            name=message.name,
            team=message.team,
            owner=user.name,
            now=now,
            lease_until=lease_until,
            **facts,
        )
    else:
        agent = known.id
        _check_owner(known, user.name)
        if not is_present or known.team != message.team:
            give_back(work_queue, tx, known, "another process has joined with its name", now)
        agents.rejoin(tx.connection, agent, team=message.team, now=now, lease_until=lease_until, **facts)
    if known is None or not is_present or known.ended is not None:
        _record(work_queue, tx, now, "agent-joined", user.name, f"{message.name}, team {message.team}")
    return JoinResponse(agent, settings.agent_lease, settings.agent_period)


def present_agent(tx: Transaction, agent: int, user: AgentUser, nonce: str | None = None) -> AgentRow:
    """The row of an agent that sends a message. Raises `Superseded` if it has to join again."""
    row = agents.for_change(tx.connection, agent)
    if row is None:
        raise NotFound(f"there is no agent {agent}", hint="join again")
    _check_owner(row, user.name)
    user.check_team(row.team)
    if nonce is not None and not Programs.of(row.nonce).is_present(nonce):
        raise _superseded(row.name)
    if row.ended is not None:
        raise Superseded(f"the lease of agent {row.name} is over", hint="join again")
    return row


def _superseded(name: str) -> Superseded:
    return Superseded(
        f"another process has joined as {name}", hint="start only one agent of this name, or use --name"
    )


def give_back(work_queue: WorkQueue, tx: Transaction, agent: AgentRow, reason: str, now: float) -> int:
    """Return the elements that an agent has not split to the queue. Masks that exist stay; returns their number."""
    moves = ElementMoves(now, f"agent:{agent.name}")
    rows = elements.unsplit_of(tx.connection, agent.id)
    canceled: list[int] = []
    for row in rows:
        free(work_queue, moves, row, reason, canceled)
    elements.acknowledge_cancel(tx.connection, canceled, now)
    moves.save(tx.connection)
    return len(rows)


def free(
    work_queue: WorkQueue, moves: ElementMoves, row: ElementRow, reason: str, canceled: list[int]
) -> None:
    """Take an unsplit element from its agent. An element in state CancelRequested is added to `canceled` instead."""
    work_queue.coverages.pop((row.id, row.epoch), None)
    if row.state is ElementState.CANCEL_REQUESTED:
        canceled.append(row.id)
    else:
        moves.move(row, ElementState.AVAILABLE, agent=None, reason=reason)


def set_draining(
    work_queue: WorkQueue, tx: Transaction, name: str, jobs: int, *, draining: bool, by: str, now: float
) -> AgentRow:
    """Let an agent take no more elements, or take them again. `jobs`: the number of its unfinished jobs."""
    row = named(tx, name)
    flag = row.draining | BY_ADMINISTRATOR if draining else row.draining & ~BY_ADMINISTRATOR
    if flag != row.draining:
        row = row.with_draining(flag, jobs, now)
        agents.save_drain(tx.connection, row)
        _record(work_queue, tx, now, "agent-drained" if draining else "agent-enabled", by, row.name)
    return row


def remove(work_queue: WorkQueue, tx: Transaction, name: str, *, by: str, now: float) -> AgentRow:
    """End an agent at once: its elements go back. A process that still runs has to join again."""
    row = named(tx, name)
    if row.ended is not None:
        raise Conflict(f"agent {name} has ended already")
    give_back(work_queue, tx, row, f"the agent was removed by {by}", now)
    agents.end(tx.connection, row.id, now)
    _record(work_queue, tx, now, "agent-removed", by, row.name)
    return row._replace(ended=now)


def named(tx: Transaction, name: str) -> AgentRow:
    row = agents.by_name(tx.connection, name, lock=True)
    if row is None:
        raise NotFound(f"there is no agent {name}", hint="see `pilotage agent list`")
    return row


def _check_owner(row: AgentRow, owner: str) -> None:
    if row.owner != owner:
        raise Forbidden(
            f"the agent {row.name} belongs to another user", hint="use another name, or the token of its user"
        )


def _record(work_queue: WorkQueue, tx: Transaction, now: float, kind: str, by: str, detail: str) -> None:
    record(tx.connection, work_queue.pool.ids.events, at=now, kind=kind, actor=f"user:{by}", detail=detail)
