"""One turn of an agent: its lease is renewed, its elements are compared with the store, and it gets new ones.

The hand-over's table decides each message about an element. A turn that is sent again gets the same elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from pilotage.core.errors import Superseded
from pilotage.core.handover import Answer, Custody, Effect, Message
from pilotage.core.sites import SiteState
from pilotage.core.workqueue.states import ElementState, custody_of
from pilotage.core.workqueue.thresholds import lesser_slots, slots_of_sites
from pilotage.services.workqueue.custody import AgentUser, decide_for
from pilotage.services.workqueue.loads import AgentLoad
from pilotage.services.workqueue.membership import free, present_agent
from pilotage.services.workqueue.moves import ElementMoves
from pilotage.services.workqueue.pull import AgentPull, offered_elements
from pilotage.services.workqueue.state import WorkQueue
from pilotage.store.tables import agents, elements, queued_requests
from pilotage.store.tables.agents import BY_ADMINISTRATOR, BY_ITSELF, AgentRow
from pilotage.store.tables.elements import ElementRow
from pilotage.store.tables.queued_requests import QueuedRequest, QueuedStep
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.agents import OfferedElement, SiteOfAgent, SyncRequest, SyncResponse


def sync(
    work_queue: WorkQueue,
    tx: Transaction,
    agent_id: int,
    user: AgentUser,
    message: SyncRequest,
    load: AgentLoad,
    now: float,
    rng: Random,
) -> SyncResponse:
    """Answer one turn. `load`: the unfinished jobs of the agent."""
    agent = present_agent(tx, agent_id, user, message.nonce)
    tx.on_rollback(work_queue.forget_location_sets)
    if message.number < agent.pull_number:
        raise Superseded(f"a later turn of agent {agent.name} was answered", hint="join again")
    settings = work_queue.pool.policy.requests
    draining = (agent.draining & BY_ADMINISTRATOR) | (BY_ITSELF if message.draining else 0)
    agent = agent.with_draining(draining, load.jobs, now)
    agents.renew(tx.connection, agent, now=now, lease_until=now + settings.agent_lease)
    turn = _AgentSync(work_queue, tx, agent, message, now)
    turn.settle()
    peers = set(agents.live_of_team(tx.connection, agent.team, now))
    if not draining:
        peers.add(agent.id)
    states = work_queue.site_states()
    slots = slots_of_sites(work_queue.pool.site_slots(), len(peers), work_queue.slot_rules)
    room = max(0, settings.owner_limit - load.in_pool)
    again = turn.repeated()
    if not again and not draining and room and message.want:
        normal = {site: count for site, count in slots.items() if states.get(site) is SiteState.NORMAL}
        pull = AgentPull(work_queue, tx, agent, lesser_slots(normal, message.slots), load, now, rng)
        again = pull.run(min(message.want, settings.elements_per_pull))
        if again:
            agents.save_pull(tx.connection, agent.id, message.number, [(row.id, row.epoch) for row in again])
    return SyncResponse(
        number=message.number,
        lease=settings.agent_lease,
        period=_period(work_queue, tx, agent, slots, draining),
        elements=_offered(work_queue, tx, again),
        stop=turn.stop,
        sites=_sites(tx, slots, states, load),
        agents=max(1, len(peers)),
        drain=bool(draining & BY_ADMINISTRATOR),
        room=room,
    )


SLOTS_PER_SECOND = 20
"""Slots that finish their jobs in one second, in a busy pool with short jobs."""
SHORTEST_PERIOD = 0.5


def _period(
    work_queue: WorkQueue, tx: Transaction, agent: AgentRow, slots: Mapping[str, int], draining: int
) -> float:
    """Seconds until the agent's next turn: fewer while work waits, and its few slots are soon free again."""
    period = work_queue.pool.policy.requests.agent_period
    if draining or not elements.any_available(tx.connection, agent.team):
        return period
    return min(period, max(SHORTEST_PERIOD, sum(slots.values()) / SLOTS_PER_SECOND))


def _offered(work_queue: WorkQueue, tx: Transaction, rows: list[ElementRow]) -> list[OfferedElement]:
    return offered_elements(tx.connection, rows) if rows else []


@dataclass(slots=True)
class _AgentSync:
    """The elements of one agent, compared with its message."""

    work_queue: WorkQueue
    tx: Transaction
    agent: AgentRow
    message: SyncRequest
    now: float
    stop: list[int] = field(default_factory=list)
    """Elements of the message that are not the agent's any more."""
    _rows: dict[int, ElementRow] = field(default_factory=dict)
    """The unsplit elements that the agent has after the turn."""
    _requests: dict[int, QueuedRequest] = field(default_factory=dict)
    _steps: dict[tuple[int, int], QueuedStep] = field(default_factory=dict)

    def settle(self) -> None:
        """Confirm, keep and take back elements."""
        connection = self.tx.connection
        self._rows = {row.id: row for row in elements.unsplit_of(connection, self.agent.id)}
        ids = sorted({row.request_id for row in self._rows.values()})
        self._requests = queued_requests.by_ids(connection, ids)
        self._steps = {
            (step.request_id, step.position): step for step in queued_requests.steps_of(connection, ids)
        }
        moves = ElementMoves(self.now, f"agent:{self.agent.name}")
        canceled: list[int] = []
        given_back = {(item.element, item.epoch): item.reason for item in self.message.releases}
        listed = {item.element: item.epoch for item in self.message.holding}
        for element, epoch in listed.items():
            if (element, epoch) not in given_back:
                self._keep(moves, element, epoch)
        answered = self._answered()
        for row in list(self._rows.values()):
            reason = given_back.get((row.id, row.epoch))
            if reason is not None:
                self._free(moves, row, reason or "given back by the agent", canceled)
            elif row.id in listed or (row.id, row.epoch) in answered:
                self._check_place(moves, row, canceled)
            else:
                self._free(moves, row, "the agent does not have it", canceled)
        elements.acknowledge_cancel(connection, canceled, self.now)
        moves.save(connection)

    def repeated(self) -> list[ElementRow]:
        """The elements of the answer that the agent has not received, if this turn is sent again."""
        listed = {item.element for item in self.message.holding}
        offers = [element for element, _ in sorted(self._answered()) if element not in listed]
        return [self._rows[element] for element in offers if element in self._rows]

    def _answered(self) -> set[tuple[int, int]]:
        same = self.message.number == self.agent.pull_number
        return set(self.agent.answered) if same and self.message.number else set()

    def _keep(self, moves: ElementMoves, element: int, epoch: int) -> None:
        """The agent believes to have an element: confirm it, keep it, or tell it to stop."""
        row = self._rows.get(element)
        if row is None:
            # Another agent has it, nobody has it, or it is split: in each case the answer is the same.
            self.stop.append(element)
            return
        said = Message.CONFIRM if custody_of(row.state) is Custody.OFFERED else Message.KEEP
        decision = decide_for(self.tx.connection, self.agent, row, epoch, said)
        if decision.answer is Answer.SUPERSEDED:
            self.stop.append(element)
        elif decision.effect is Effect.HOLD:
            moves.move(row, ElementState.ACQUIRED, agent=self.agent.id, site=row.site)
            self._rows[element] = row._replace(state=ElementState.ACQUIRED)

    def _free(self, moves: ElementMoves, row: ElementRow, reason: str, canceled: list[int]) -> None:
        decision = decide_for(self.tx.connection, self.agent, row, row.epoch, Message.RELEASE)
        if decision.effect is Effect.FREE or row.state is ElementState.CANCEL_REQUESTED:
            free(self.work_queue, moves, row, reason, canceled)
            del self._rows[row.id]

    def _check_place(self, moves: ElementMoves, row: ElementRow, canceled: list[int]) -> None:
        """Take back an element that no site may run any more: it would be stuck with the agent."""
        if row.state is ElementState.CANCEL_REQUESTED or not row.location_set:
            return
        if self._has_place(row):
            return
        self.stop.append(row.id)
        self._free(moves, row, "no site may run it any more", canceled)

    def _has_place(self, row: ElementRow) -> bool:
        connection = self.tx.connection
        request = self._requests.get(row.request_id)
        step = self._steps.get((row.request_id, row.step))
        if request is None or step is None:
            return True
        return bool(self.work_queue.eligible(connection, request, step, row.location_set, self.now))


def _sites(
    tx: Transaction, slots: dict[str, int], states: Mapping[str, SiteState], load: AgentLoad
) -> list[SiteOfAgent]:
    requests = queued_requests.by_ids(tx.connection, sorted({request for _, request in load.waiting}))
    waiting: dict[str, dict[int, int]] = {}
    for (site, request), jobs in load.waiting.items():
        priority = requests[request].priority if request in requests else 0
        levels = waiting.setdefault(site, {})
        levels[priority] = levels.get(priority, 0) + jobs
    return [
        SiteOfAgent(
            site,
            str(states.get(site, SiteState.DOWN)),
            count,
            load.running.get(site, 0),
            [list(level) for level in sorted(waiting.get(site, {}).items(), reverse=True)],
        )
        for site, count in sorted(slots.items())
    ]
