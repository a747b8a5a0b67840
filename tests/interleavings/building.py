"""Builds the common world: one of each thing that two transactions may meet at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from pilotage.server.http.routes.submissions import prepare
from pilotage.services.submission.accept import accept
from pilotage.store.cluster import servers
from pilotage.store.cluster.servers import ServerRow
from pilotage.store.postgresql.dsn import DatabaseAddress
from pilotage.store.tables import instance
from pilotage.wire.agents import DRAIN_AGENT, AgentAction
from pilotage.wire.bans import BAN_USER, BanRequest
from pilotage.wire.ces import DISABLE_CE, CeChange
from pilotage.wire.datasets import (
    CHANGE_REPLICAS,
    CLOSE_DATASET,
    CREATE_DATASET,
    DataSetChange,
    DataSetCreate,
    ReplicasChange,
)
from pilotage.wire.identity import CREATE_TOKEN, TokenRequest
from pilotage.wire.policy import CHANGE_POLICY, PolicyChange
from pilotage.wire.requests import (
    ABORT_REQUEST,
    PAUSE_REQUEST,
    SUBMIT_REQUEST,
    RequestChange,
)
from pilotage.wire.sites import SET_SITE_STATE, SiteStateRequest
from pilotage.wire.submissions import (
    OPEN_SUBMISSION,
    PUT_CHUNK,
    SUBMIT,
    OpenRequest,
)
from tests.interleavings import outside
from tests.interleavings.duties import cycle
from tests.interleavings.paper import PaperAgent, PaperPilot, finished, references
from tests.interleavings.server import SERVERS, PairServer, VirtualClock, Work, call
from tests.interleavings.settling import settle
from tests.interleavings.works import GENERATOR, POLICY, Body, acting, add_block, request, submission
from tests.interleavings.world import World
from tests.simulation.shared_server import SharedDatabase

NOW = 1_700_000_000.0


@contextmanager
def opened(folder: Path) -> Iterator[World]:
    """The world, made and saved."""
    database = SharedDatabase(NOW)
    with psycopg.connect(database.url, autocommit=True) as session:
        session.execute(f"ALTER DATABASE {database.name} SET deadlock_timeout = '100ms'".encode())
    clock = VirtualClock(NOW, database.set_clock)
    connection = DatabaseAddress.parse(database.url).open_writer()
    instance.create(connection, "pairs", NOW)
    instance.save_policy(connection, text=POLICY, now=NOW, by="alice", reason="")
    for name in SERVERS[:2]:
        servers.register(connection, ServerRow(name, "host", name, "1", NOW, NOW, 1))
    connection.close()
    made = [PairServer(number, folder / name, database.url, clock) for number, name in enumerate(SERVERS)]
    world = World(database, clock, made[:2], made[2])
    for server in world.servers:
        server.forget_all()
    build(world)
    world.save()
    yield world
    for server in made:
        server.end()
    world.session.close()
    database.close()


class _Builder:
    def __init__(self, world: World) -> None:
        self.world, self.server = world, world.first

    def submit(self, name: str, count: int = 1, user: str = "alice", **fields: Any) -> None:
        answer = self.server.do(call(SUBMIT, submission(count, **fields), user=user, group="physics"))
        self.world.submissions[name] = answer.submission
        self.world.jobs[name] = answer.first

    def pilot(self, name: str, ce: str = "a") -> PaperPilot:
        pilot = self.world.pilots[name] = PaperPilot(name, ce)
        pilot.intend(self.server)
        return pilot

    def take(self, pilot: str, job: str, *, confirm: bool = True, **fields: Any) -> None:
        """A new job is offered to a pilot, since no other one waits."""
        paper = self.world.pilots[pilot]
        self.submit(job, **fields)
        [offer] = paper.take(self.server, 1, len(paper.offers) + 1)
        assert offer.job == self.world.jobs[job]
        if confirm:
            self.server.do(paper.message(confirms=references(offer), holding=references(*paper.offers)))

    def finish(self, pilot: str, code: int) -> None:
        paper = self.world.pilots[pilot]
        self.server.do(paper.message(finishes=[finished(paper.offers[-1], code)]))

    def work_on(self, pilot: str, request: str) -> None:
        """A pilot takes the waiting jobs of a request. It ends the first of several, or lets the only one fail."""
        paper = self.world.pilots[pilot]
        sql = "SELECT j.id FROM jobs j JOIN submissions s ON s.id = j.submission_id WHERE s.request_id = %s"
        mine = {row[0] for row in self.world.rows(sql, self.world.requests[request])}
        server, others = (
            self.server,
            [row[0] for row in self.world.rows("SELECT id FROM jobs WHERE state = 'Waiting'")],
        )
        server.do(acting("hold", *(job for job in others if job not in mine)))
        offers = paper.take(server, len(mine), len(paper.offers) + 1)
        assert {offer.job for offer in offers} == mine
        server.do(acting("release", *(job for job in others if job not in mine)))
        server.do(paper.message(confirms=references(*offers), holding=references(*paper.offers)))
        if pilot == "ender":
            end = finished(offers[0], 0 if len(offers) > 1 else 1)
            server.do(paper.message(finishes=[end], holding=references(*offers[1:])))

    def request(self, name: str, user: str = "alice", group: str = "admin", **fields: Any) -> int:
        answer = self.server.do(call(SUBMIT_REQUEST, request(name=name, **fields), user=user, group=group))
        self.world.requests[name] = answer.request.id
        return int(answer.request.id)


def build(world: World) -> None:
    builder = _Builder(world)
    _make_data(builder)
    _make_jobs(builder)
    _make_requests(builder)
    _leave_work(builder)
    _make_due(world)


def _make_data(builder: _Builder) -> None:
    do = builder.server.do
    for name in ("/data", "/old"):
        do(call(CREATE_DATASET, DataSetCreate(name)))
    for number in range(5):
        do(add_block(f"b{number}"))
    do(add_block("open", complete=False))
    do(add_block("b0", dataset="/old"))
    do(call(CLOSE_DATASET, DataSetChange("/old")))
    outside.follow_data(builder.server)


def _make_jobs(builder: _Builder) -> None:
    world, server = builder.world, builder.server
    for name in ("sleeper", "lost", "silent", "worker", "idle", "ender", "reporter", "half"):
        builder.pilot(name).enrol(server)
    builder.pilot("intended")
    for pilot, job in (("silent", "stalled"), ("worker", "running")):
        builder.take(pilot, job)
    for job, code in (("done", 0), ("failed", 1)):
        builder.take("ender", job)
        builder.finish("ender", code)
    world.later(65)
    server.do(world.pilots["worker"].message(holding=references(*world.pilots["worker"].offers)))
    for name in ("idle", "ender"):
        server.do(world.pilots[name].message())
    # The lease of its pilot ends only when all is there.
    server.do(cycle("leases"))
    builder.take("worker", "offered", confirm=False)
    builder.take("sleeper", "lapsed", confirm=False)
    builder.take("lost", "lost")
    builder.take("ender", "again", retries=2)
    builder.finish("ender", 1)
    builder.submit("killed")
    server.do(acting("kill", world.jobs["killed"]))
    builder.submit("parent")
    parents = {name: world.jobs[name] for name in ("parent", "running")}
    builder.submit("child", after_ok=[str(job) for job in parents.values()])
    builder.submit("child of all", after_ok=[f"s:{world.submissions['parent']}"])
    builder.submit("limited", 3, parallel=1)
    builder.submit("limited too", 3, parallel=1)
    builder.submit("of bob", 2, user="bob")
    builder.submit("of a rare kind", user="bob", memory=9000)
    server.do(acting("kill", world.jobs["of a rare kind"]))
    builder.submit("mother")
    builder.submit("daughter", after=[str(world.jobs["mother"])])
    builder.submit("daughter of all", after_ok=[f"s:{world.submissions['mother']}"], parallel=2)
    builder.submit("held")
    server.do(acting("hold", world.jobs["held"], world.jobs["limited too"]))
    opened_one = server.do(
        call(OPEN_SUBMISSION, OpenRequest({"executable": "/bin/true"}, ["x"], "key"), group="physics")
    )
    world.submissions["open"] = opened_one.submission
    server.do(call(PUT_CHUNK, None, opened_one.submission, 0, Body([[0]])))
    settle(world)


def _make_requests(builder: _Builder) -> None:
    world, server = builder.world, builder.server
    for name in ("one", "two"):
        world.agents[name] = PaperAgent(name)
        world.agents[name].join(server)
    one = world.agents["one"]
    halves = {**GENERATOR, "events": 200}
    kinds = {
        "failed": GENERATOR,
        "last": GENERATOR,
        "half": halves,
        "doomed": halves,
        "work": {"open_for": "1 h"},
    }
    pilots = {"last": "reporter", "half": "half", "doomed": "half"}
    for name, fields in kinds.items():
        builder.request(name, **fields)
        settle(world)
        one.sync(server, 1)
        one.sync(server)
        one.split_all(server)
        settle(world)
        builder.work_on(pilots.get(name, "ender"), name)
        settle(world)
    one.sync(server, 2)
    one.sync(server, 1)
    two = world.agents["two"]
    two.sync(server, 1)
    two.sync(server)
    # The only element of a request is not split: whoever gives it back must not end the request.
    for name, agent in (("given", one), ("given-to-two", world.agents["two"])):
        builder.request(name, **GENERATOR, priority=9500)
        settle(world)
        agent.sync(server, 1)
        agent.sync(server)
    for name, agent in world.agents.items():
        world.masks[name] = agent.masks_of(server, agent.held[0])
    builder.request("new", user="bob", group="physics")
    builder.request("paused", **GENERATOR)
    server.do(call(PAUSE_REQUEST, RequestChange("test"), world.requests["paused"]))
    _make_rules(builder)
    settle(world)


def _make_rules(builder: _Builder) -> None:
    do = builder.server.do
    do(call(BAN_USER, BanRequest("bob", "B", reason="test")))
    do(call(SET_SITE_STATE, SiteStateRequest("B", "drain", reason="test")))
    do(call(DISABLE_CE, CeChange("b", "test")))
    builder.world.token = do(call(CREATE_TOKEN, TokenRequest("bob"))).id
    do(call(DRAIN_AGENT, AgentAction("two")))
    do(call(CHANGE_POLICY, PolicyChange(POLICY + "# second")))


def _leave_work(builder: _Builder) -> None:
    """What has just happened, and no duty has looked at."""
    world, server = builder.world, builder.server
    one = world.agents["one"]
    server.do(one.post(one.held[0], one.masks_of(server, one.held[0]), last=True))
    one.held = one.held[1:]
    world.masks["one"] = one.masks_of(server, one.held[0])
    builder.request("fresh", **GENERATOR)
    server.do(add_block("fresh"))
    remove = ReplicasChange("/data", "b4", remove=["B"])
    server.do(call(CHANGE_REPLICAS, remove))
    server.do(call(ABORT_REQUEST, RequestChange("test"), world.requests["doomed"]))
    server.do(acting("kill", world.jobs["mother"], world.jobs["limited too"] + 1))
    paper = world.pilots["half"]
    server.do(paper.message(finishes=[finished(paper.offers[-1])], holding=references(*paper.offers[:-1])))
    _leave_staged(builder)


def _leave_staged(builder: _Builder) -> None:
    """A submission whose server has ended before its jobs were made, and one that was not accepted yet."""
    server = builder.server
    body = submission(2)

    async def accept_only(server: PairServer) -> None:
        who = server.caller("alice", "physics")
        prepared = prepare(server.context, who, body, [])
        await server.context.writer.acall(
            lambda tx: accept(server.context.pool, tx, prepared, server.context.clock())
        )

    server.do(Work("POST /v1/submissions", accept_only))


def _make_due(world: World) -> None:
    """What duties have to do now: nobody has done it yet."""
    past = (world.clock.now - 100,)
    for sql in (
        "UPDATE pilots SET lease_until = %s WHERE stamp = 'lost/0'",
        "UPDATE pilots SET taken_at = %s WHERE stamp = 'sleeper/0'",
        "UPDATE jobs SET started = %s WHERE state = 'Matched' AND pilot_id ="
        " (SELECT id FROM pilots WHERE stamp = 'sleeper/0')",
        "UPDATE jobs SET not_before = %s WHERE state = 'Rescheduled'",
        "UPDATE agents SET lease_until = %s WHERE name = 'two'",
        "UPDATE submissions SET touched = %s WHERE id IN"
        " (SELECT submission_id FROM submission_chunks WHERE made < count)",
    ):
        world.session.execute(sql.encode(), past)
    long_ago = (world.clock.now - 10_000_000,)
    for sql in (
        "UPDATE queues SET empty_since = %s WHERE id NOT IN (SELECT queue_id FROM jobs WHERE final_state = '')",
        "UPDATE blocks SET created = %s WHERE open = 1 AND dataset_id IN"
        " (SELECT id FROM datasets WHERE request_id IS NOT NULL)",
        "UPDATE jobs SET ended = %s WHERE final_state <> '' AND submission_id NOT IN"
        " (SELECT id FROM submissions WHERE request_id IS NOT NULL)",
    ):
        world.session.execute(sql.encode(), long_ago)
