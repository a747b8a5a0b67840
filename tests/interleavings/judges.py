"""What must hold after two transactions, in whatever order their statements have run."""

from __future__ import annotations

from collections.abc import Iterator

from pilotage.core.requests.states import ENDED, RequestState
from pilotage.store.admin.integrity_check import find_damage
from pilotage.store.admin.revisions import head_revision
from pilotage.store.tables import counts
from pilotage.wire.bans import LIFT_BAN, BanLift
from pilotage.wire.ces import ENABLE_CE, CeChange
from pilotage.wire.datasets import (
    CHANGE_REPLICAS,
    CLOSE_DATASET,
    DataSetChange,
    ReplicaLocation,
    ReplicasChange,
)
from pilotage.wire.jobs import ACT_ON_JOBS, ActionRequest, Selection
from pilotage.wire.policy import CHANGE_POLICY, PolicyChange
from pilotage.wire.requests import (
    ASSIGN_REQUEST,
    RESUME_REQUEST,
    SET_REQUEST_SITES,
    RequestAssignment,
    RequestChange,
    RequestSites,
)
from pilotage.wire.sites import SET_SITE_STATE, SiteStateRequest
from tests.faults.mask_audit import audit_request
from tests.interleavings.paper import PaperAgent, PaperPilot, finished, references
from tests.interleavings.server import PairServer, Work, call
from tests.interleavings.settling import settle
from tests.interleavings.works import UNLIMITED
from tests.interleavings.world import World

BOB_AT_ONCE = 3
"""Jobs of bob that may run: the limit of the policy."""
MOST_ROUNDS = 12
_OVER = ", ".join(f"'{state}'" for state in sorted(ENDED))


def complaints(world: World) -> Iterator[str]:
    """What is wrong now. The duties have settled."""
    yield from map(str, find_damage(world.first.context.readers.connection(), head_revision()))
    held = "SELECT count(*) FROM jobs WHERE owner = 'bob' AND state IN ('Matched', 'Running', 'Stalled')"
    [[running]] = world.rows(held)
    if running > BOB_AT_ONCE:
        yield f"{running} jobs of bob run, and the limit is {BOB_AT_ONCE}"
    for server in world.servers:
        yield from _wrong_memory(server)
    for (request,) in world.rows("SELECT id FROM requests"):
        try:
            audit_request(world.session, request)
        except AssertionError as error:
            yield f"request {request}: {error}"
    yield from _unprocessed(world)


def _wrong_memory(server: PairServer) -> Iterator[str]:
    stored = counts.waiting_counts(server.context.readers.connection())
    known = {
        queue: levels
        for queue, entry in server.context.pool.queues.index.entries.items()
        if (levels := {weight: part.count for weight, part in entry.levels.items() if part.count})
    }
    if known != stored:
        yield f"the {server.name} server counts {known} waiting jobs, and {stored} wait"


def _unprocessed(world: World) -> Iterator[str]:
    """A completed request has each event in an accepted result, or in a piece that it names as failed."""
    completed = f"r.state = '{RequestState.COMPLETED}'"
    for what, sql in {
        "elements under way": "SELECT r.name, e.id, e.state FROM elements e JOIN requests r ON r.id = e.request_id"
        f" WHERE {completed} AND e.state NOT IN ('Done', 'Failed', 'Canceled')",
        "jobs under way": "SELECT r.name, j.id, j.state FROM element_jobs j JOIN requests r ON r.id = j.request_id"
        f" WHERE {completed} AND j.state NOT IN ('done', 'exhausted', 'canceled')",
        "blocks without an element": "SELECT r.name, s.name, b.id FROM requests r JOIN request_steps s"
        " ON s.request_id = r.id JOIN blocks b ON b.dataset_id = s.input_dataset AND b.files > 0"
        f" WHERE {completed} AND NOT EXISTS (SELECT 1 FROM elements e WHERE e.request_id = r.id"
        " AND e.step = s.position AND e.blocks::jsonb @> to_jsonb(b.id))",
        "open outputs": "SELECT r.name, d.name FROM requests r JOIN datasets d ON d.request_id = r.id"
        f" WHERE {completed} AND d.open = 1 AND d.removed IS NULL AND NOT EXISTS"
        " (SELECT 1 FROM requests o WHERE o.root_id = r.id AND o.state <> 'completed')",
    }.items():
        if rows := world.rows(sql):
            yield f"{what} of a completed request: {rows[:4]}"


def finish_all(world: World) -> Iterator[str]:
    """Let all work go on, with agents and pilots that do it; what then never ends."""
    for work in _permissions(world):
        world.first.do(work)
    agent = PaperAgent("driver")
    agent.join(world.second)
    for number in range(MOST_ROUNDS):
        settle(world)
        if not _unfinished(world):
            return
        agent.sync(world.second, 50)
        agent.sync(world.second)
        agent.split_all(world.second)
        settle(world)
        for ce in "ab":
            pilot = PaperPilot(f"driver {number} at {ce}", ce)
            pilot.intend(world.first)
            pilot.enrol(world.second)
            _run_all(world.second, pilot)
        world.later(200)
    yield from _unfinished(world)


def _permissions(world: World) -> Iterator[Work]:
    yield call(CHANGE_POLICY, PolicyChange(UNLIMITED))
    for site in "AB":
        yield call(SET_SITE_STATE, SiteStateRequest(site, "normal", reason="test"))
    for owner, site in world.rows("SELECT owner, site FROM bans WHERE ended IS NULL"):
        yield call(LIFT_BAN, BanLift(owner, site, reason="test"))
    for (ce,) in world.rows("SELECT ce FROM ces WHERE state <> ''"):
        yield call(ENABLE_CE, CeChange(ce))
    yield call(ACT_ON_JOBS, ActionRequest(Selection(states=["Held"])), "release")
    if world.rows("SELECT 1 FROM datasets WHERE name = '/data' AND removed IS NULL"):
        places = [ReplicaLocation(site, f"/data/{site}") for site in "AB"]
        yield call(CHANGE_REPLICAS, ReplicasChange("/data", add=places))
        yield call(CLOSE_DATASET, DataSetChange("/data"))
    yield from _permissions_of_requests(world)


def _permissions_of_requests(world: World) -> Iterator[Work]:
    for number, state, paused in world.rows(
        f"SELECT id, state, paused FROM requests WHERE state NOT IN ({_OVER})"
    ):
        if paused:
            yield call(RESUME_REQUEST, RequestChange("test"), number)
        if state in (RequestState.NEW, RequestState.ASSIGNMENT_APPROVED):
            yield call(ASSIGN_REQUEST, RequestAssignment("home", reason="test"), number)
        elif state not in (RequestState.ABORTED, RequestState.FORCE_COMPLETE):
            yield call(SET_REQUEST_SITES, RequestSites([], [], reason="test"), number)


def _run_all(server: PairServer, pilot: PaperPilot) -> None:
    """Take all jobs that the pilot can get, end them, and leave."""
    offers = pilot.take(server, 100)
    if offers:
        server.do(pilot.message(confirms=references(*offers), holding=references(*offers)))
    server.do(pilot.message(finishes=[finished(offer) for offer in offers], leaving="test"))


def _unfinished(world: World) -> list[str]:
    left = []
    for what, sql in {
        "jobs": "SELECT id, state, reason FROM jobs WHERE final_state = ''",
        "requests": f"SELECT name, state, propagating FROM requests WHERE state NOT IN ({_OVER}) OR propagating <> 0",
        "jobs of requests": "SELECT id, state FROM element_jobs WHERE state NOT IN ('done', 'exhausted', 'canceled')",
    }.items():
        if rows := world.rows(sql):
            left.append(f"{what} that never end: {rows[:4]}")
    return left
