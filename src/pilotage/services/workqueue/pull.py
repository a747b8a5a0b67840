"""The pull of elements for one agent: which ones, at which sites, claimed in the same transaction."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from pilotage.core.workqueue.eligibility import Sites
from pilotage.core.workqueue.pull import Admission, CandidateGroup, SiteRoom, admit
from pilotage.core.workqueue.roll_up import is_working
from pilotage.core.workqueue.states import ElementState
from pilotage.services.workqueue.loads import AgentLoad
from pilotage.services.workqueue.moves import ElementMoves
from pilotage.services.workqueue.state import WorkQueue
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import element_masks, elements, queued_requests
from pilotage.store.tables.agents import AgentRow
from pilotage.store.tables.elements import ElementRow
from pilotage.store.tables.queued_requests import QueuedRequest, QueuedStep
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.agents import OfferedElement, Splitting

REQUESTS_AT_ONCE = 100
"""Requests whose groups are read together, at least; all of the lowest priority among them are."""


@dataclass(slots=True)
class AgentPull:
    """One pull. Requests are looked at in the order of priority, until no site has room or enough is admitted."""

    queue: WorkQueue
    tx: Transaction
    agent: AgentRow
    slots: dict[str, int]
    """The slots of each site that may be filled."""
    load: AgentLoad
    now: float
    rng: Random

    def run(self, limit: int) -> list[ElementRow]:
        """Claim at most `limit` elements; returns them with their new epoch."""
        connection = self.tx.connection
        requests = queued_requests.pullable(connection, self.agent.team) if self.slots else []
        room = room_of_agent(connection, self.agent.id, self.slots, self.load, requests)
        admitted: list[Admission] = []
        for part in _by_priority(requests):
            if not room.open_sites(part[0].priority):
                break
            admitted += admit(self._groups(part, room), room, limit - len(admitted), self.rng)
            if len(admitted) >= limit:
                break
        if not admitted:
            return []
        offers = [(admission.element, admission.site) for admission in admitted]
        epochs = elements.offer(connection, self.agent.id, offers, self.now)
        rows = elements.by_ids(connection, sorted(epochs))
        moves = ElementMoves(self.now, f"agent:{self.agent.name}")
        for row in rows.values():
            moves.record(row._replace(state=ElementState.AVAILABLE), ElementState.NEGOTIATING)
        moves.save(connection)
        return [rows[admission.element] for admission in admitted if admission.element in rows]

    def _groups(self, requests: Sequence[QueuedRequest], room: SiteRoom) -> list[CandidateGroup]:
        """The groups of elements of some requests that may run at a site with room."""
        connection = self.tx.connection
        by_id = {request.id: request for request in requests if self._may_run(request, room)}
        steps = {
            (step.request_id, step.position): step
            for step in queued_requests.steps_of(connection, sorted(by_id))
            if is_working(by_id[step.request_id].state, step.type)
        }
        open_groups = elements.open_groups(connection, list(steps))
        self.queue.load_location_sets(connection, [group.location_set for group in open_groups])
        groups: list[CandidateGroup] = []
        for group in open_groups:
            request, step = by_id[group.request_id], steps[group.request_id, group.step]
            sites = self.queue.eligible(connection, request, step, group.location_set, self.now)
            if sites:
                candidates = elements.heads(connection, group)
                groups.append(CandidateGroup(request.priority, sites, group.first, candidates))
        return groups

    def _may_run(self, request: QueuedRequest, room: SiteRoom) -> bool:
        """Whether the lists of a request have a site with room."""
        rules = self.queue.rules(request)
        open_sites: Sites = room.open_sites(request.priority) - rules.banned
        return bool(open_sites if rules.listed is None else open_sites & rules.listed)


def room_of_agent(
    connection: Connection,
    agent: int,
    slots: Mapping[str, int],
    load: AgentLoad,
    requests: Sequence[QueuedRequest] = (),
) -> SiteRoom:
    """The jobs of an agent that do not run, against the slots. `requests`: rows that the caller has read."""
    held = elements.held_jobs(connection, agent)
    priorities = {request.id: request.priority for request in requests}
    others = {request for request, _, _ in held} | {request for _, request in load.waiting}
    missing = queued_requests.by_ids(connection, sorted(others - priorities.keys()))
    priorities.update({request.id: request.priority for request in missing.values()})
    room = SiteRoom(slots)
    for request, site, jobs in held:
        room.add(site, priorities.get(request, 0), jobs)
    for (site, request), jobs in load.waiting.items():
        room.add(site, priorities.get(request, 0), jobs)
    return room


def _by_priority(requests: Sequence[QueuedRequest]) -> Iterator[Sequence[QueuedRequest]]:
    """Parts of the requests, in order; requests of one priority are in the same part."""
    begin = 0
    while begin < len(requests):
        end = min(begin + REQUESTS_AT_ONCE, len(requests))
        while end < len(requests) and requests[end].priority == requests[end - 1].priority:
            end += 1
        yield requests[begin:end]
        begin = end


def offered_elements(connection: Connection, rows: Sequence[ElementRow]) -> list[OfferedElement]:
    """The offers as the agent reads them."""
    ids = sorted({row.request_id for row in rows})
    requests = queued_requests.by_ids(connection, ids)
    steps = {(step.request_id, step.position): step for step in queued_requests.steps_of(connection, ids)}
    again = [row.id for row in rows if row.epoch > 1]
    existing = element_masks.counts_of(connection, again)
    return [
        _offered(row, requests[row.request_id], steps[row.request_id, row.step], existing.get(row.id, 0))
        for row in rows
    ]


def _offered(row: ElementRow, request: QueuedRequest, step: QueuedStep, existing: int) -> OfferedElement:
    splitting = json.loads(step.splitting)
    return OfferedElement(
        id=row.id,
        epoch=row.epoch,
        request=row.request_id,
        step=step.name,
        type=step.type,
        priority=request.priority,
        site=row.site,
        jobs=row.jobs,
        splitting=Splitting(splitting["algorithm"], splitting.get("parameters", {})),
        mask=json.loads(row.mask) if row.mask else None,
        existing=existing,
    )
