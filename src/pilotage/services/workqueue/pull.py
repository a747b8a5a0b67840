"""The pull of elements for one agent: which ones, at which sites, claimed in the same transaction."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from pilotage.core.splitting.algorithms import ALGORITHMS
from pilotage.core.workqueue.eligibility import Sites
from pilotage.core.workqueue.pull import AdmittedElement, CandidateGroup, SiteRoom, admit
from pilotage.core.workqueue.roll_up import is_working
from pilotage.core.workqueue.states import ElementState
from pilotage.services.workqueue.loads import AgentLoad
from pilotage.services.workqueue.moves import ElementMoves
from pilotage.services.workqueue.programs import TIME_PER_EVENT
from pilotage.services.workqueue.state import WorkQueue
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import element_masks, elements, event_times, location_sets, queued_requests
from pilotage.store.tables.agents import AgentRow
from pilotage.store.tables.elements import ElementRow, OpenGroup
from pilotage.store.tables.queued_requests import QueuedRequest, QueuedStep
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.agents import OfferedElement, Splitting

MEASURED_JOBS = 100
"""Done jobs by which the time per event of a step is measured, at most."""

FIRST_REQUESTS, MOST_REQUESTS = 4, 64
"""Requests whose groups are read together, at first and at most."""
MOST_ROUNDS = 4
"""Rounds of one pull. Another one follows if other servers have claimed some of the elements meanwhile."""
JUMP_COST = 2.0
"""The cost of finding a group of elements by jumps in the index, against that of a probe for one given group."""


@dataclass(slots=True)
class AgentPull:
    """One pull. Requests are looked at in the order of priority, until no site has room or enough is admitted."""

    work_queue: WorkQueue
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
        claimed: list[ElementRow] = []
        for _ in range(MOST_ROUNDS):
            admitted = self._admit(requests, limit - len(claimed))
            rows = self._claim(admitted) if admitted else []
            claimed += rows
            if len(rows) == len(admitted):
                break
        return claimed

    def _admit(self, requests: Sequence[QueuedRequest], limit: int) -> list[AdmittedElement]:
        room = room_of_agent(self.tx.connection, self.agent.id, self.slots, self.load, requests)
        admitted: list[AdmittedElement] = []
        for part in _parts(requests):
            if len(admitted) >= limit or not room.open_sites(part[0].priority):
                break
            admitted += admit(self._groups(part, room), room, limit - len(admitted), self.rng)
        return admitted

    def _claim(self, admitted: Sequence[AdmittedElement]) -> list[ElementRow]:
        connection = self.tx.connection
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
        groups: list[CandidateGroup] = []
        for group in self._open_groups(by_id, steps, room):
            request, step = by_id[group.request_id], steps[group.request_id, group.step]
            sites = self.work_queue.eligible(connection, request, step, group.location_set, self.now)
            if sites:
                candidates = elements.heads(connection, group)
                groups.append(CandidateGroup(request.priority, sites, group.first, candidates, request.id))
        return groups

    def _open_groups(
        self,
        requests: Mapping[int, QueuedRequest],
        steps: Mapping[tuple[int, int], QueuedStep],
        room: SiteRoom,
    ) -> list[OpenGroup]:
        """The groups with available elements; maybe without groups that have no site with room.

        Where few sets of locations have room, each is probed. Else the groups that exist are found one by one.
        """
        connection, counts = self.tx.connection, self.work_queue.group_counts
        jumps: list[tuple[int, int]] = []
        probes: list[tuple[int, int, int]] = []
        open_sets: dict[tuple[object, ...], list[int]] = {}
        for (number, position), step in steps.items():
            request = requests[number]
            lists = (request.sites, request.banned_sites, request.trust_input, request.trust_pileup)
            key = (*lists, request.priority, step.further_inputs, step.pileup)
            sets = open_sets.get(key)
            if sets is None:
                sets = open_sets[key] = self._sets_with_room(request, step, room)
            if len(sets) < JUMP_COST * counts.get(number, 0):
                probes += [(number, position, location_set) for location_set in sets]
            else:
                jumps.append((number, position))
        groups = elements.open_groups(connection, jumps)
        counts.update(dict.fromkeys((number for number, _ in jumps), 0))
        for group in groups:
            counts[group.request_id] += 1
        return groups + elements.probe_groups(connection, probes)

    def _sets_with_room(self, request: QueuedRequest, step: QueuedStep, room: SiteRoom) -> list[int]:
        """The sets of locations with which an element of a step may run at a site with room."""
        connection, priority = self.tx.connection, request.priority
        open_sites = room.open_sites(priority)
        return [
            number
            for number in (location_sets.UNKNOWN, *self.work_queue.known_location_sets(connection))
            if not open_sites.isdisjoint(
                self.work_queue.eligible(connection, request, step, number, self.now)
            )
        ]

    def _may_run(self, request: QueuedRequest, room: SiteRoom) -> bool:
        """Whether the lists of a request have a site with room."""
        rules = self.work_queue.rules(request)
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


def _parts(requests: Sequence[QueuedRequest]) -> Iterator[Sequence[QueuedRequest]]:
    """Parts of the requests, in order, each twice as large as the one before."""
    begin, size = 0, FIRST_REQUESTS
    while begin < len(requests):
        yield requests[begin : begin + size]
        begin, size = begin + size, min(2 * size, MOST_REQUESTS)


def offered_elements(connection: Connection, rows: Sequence[ElementRow]) -> list[OfferedElement]:
    """The offers as the agent reads them."""
    ids = sorted({row.request_id for row in rows})
    requests = queued_requests.by_ids(connection, ids)
    steps = {(step.request_id, step.position): step for step in queued_requests.steps_of(connection, ids)}
    splittings = {
        place: _splitting(connection, steps[place]) for place in {(r.request_id, r.step) for r in rows}
    }
    again = [row.id for row in rows if row.epoch > 1]
    existing = element_masks.counts_of(connection, again)
    return [
        _offered(
            row,
            requests[row.request_id],
            steps[row.request_id, row.step],
            splittings[row.request_id, row.step],
            existing.get(row.id, 0),
        )
        for row in rows
    ]


def _splitting(connection: Connection, step: QueuedStep) -> Splitting:
    """The splitting of a step, with the measured time per event where the request gives none and it is used."""
    stored = json.loads(step.splitting)
    name, parameters = stored["algorithm"], stored.get("parameters", {})
    kind = ALGORITHMS.get(name)
    if kind is not None and kind.uses_time_per_event and TIME_PER_EVENT not in parameters:
        seconds = event_times.time_per_event(connection, step.request_id, step.position, MEASURED_JOBS)
        if seconds is not None:
            parameters = {**parameters, TIME_PER_EVENT: seconds}
    return Splitting(name, parameters)


def _offered(
    row: ElementRow, request: QueuedRequest, step: QueuedStep, splitting: Splitting, existing: int
) -> OfferedElement:
    return OfferedElement(
        id=row.id,
        epoch=row.epoch,
        request=row.request_id,
        step=step.name,
        type=step.type,
        priority=request.priority,
        site=row.site,
        jobs=row.jobs,
        splitting=splitting,
        mask=json.loads(row.mask) if row.mask else None,
        existing=existing,
    )
