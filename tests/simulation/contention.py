"""People who meet each other at two servers: jobs that depend on others which are run again, and bans made longer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING, cast
from unittest.mock import patch

from pilotage.server.context import Context
from pilotage.server.duties import queues
from pilotage.server.duties.queues import QueueDuty
from pilotage.server.http.routes.bans import ban_user, lift_ban
from pilotage.server.http.routes.jobs import action
from pilotage.server.http.routes.submissions import submit
from pilotage.server.tokens import Caller
from pilotage.wire.bans import BanLift, BanRequest
from pilotage.wire.jobs import ActionRequest, Selection
from pilotage.wire.submissions import Parameters, SubmitRequest, SubmitResponse
from tests.simulation.broken import need
from tests.simulation.people import People
from tests.simulation.policy import CES, OWNERS
from tests.simulation.processes import SimulationLoop
from tests.simulation.server_host import ServerHosts
from tests.simulation.stores import Rows, Store

if TYPE_CHECKING:
    from tests.simulation.shared_server import SharedServer

ANNA, BERT, CORA = OWNERS
CHAINS = (3, 6)
"""The least and the most submissions with others that depend on them."""
CHILDREN = 2
"""Submissions that depend on one from the beginning, at most."""
BANS, ROUNDS = (1, 4), (1, 3)
"""People that are banned from a site, and how often each."""
RERUNS = 5
"""Times that she runs the failed jobs of one submission again, at most."""
LOOK_FOR_QUEUES = 20.0
LOOK = 2.0
"""Seconds between two looks at jobs."""
QUEUE_PERIOD, QUEUE_KEPT = 12.0, 6.0
"""Seconds between two cycles of the duty of queues, and until it deletes an empty one: a day is too long here."""
QUEUE_GONE = (8.0, 30.0)
"""Seconds after the end of its last job in which a queue is deleted."""
SAME = 0.01
"""Seconds by which instants of two servers may differ that are the same."""
PARTS, BANNED, QUEUES = frozenset({b"submission_chunks"}), frozenset({b"bans"}), frozenset({b"queues"})


@contextmanager
def short_lives_of_queues() -> Iterator[None]:
    """Queues without jobs are deleted soon, so that returning jobs meet that."""
    with patch.object(QueueDuty, "every", QUEUE_PERIOD), patch.object(queues, "QUEUE_KEPT", QUEUE_KEPT):
        yield


@dataclass(slots=True)
class ContentionBooks:
    """The answers that these people got."""

    after_ok: list[tuple[SubmitResponse, SubmitResponse]] = field(default_factory=list)
    """Submissions, and those that need all of their jobs to succeed."""


class Contention:
    def __init__(
        self,
        loop: SimulationLoop,
        hosts: ServerHosts,
        people: People,
        store: Store,
        rng: Random,
        until: float,
    ) -> None:
        self._hosts = hosts
        self._loop, self._people, self._store, self._rng, self._until = loop, people, store, rng, until
        self.books = ContentionBooks()

    async def live(self) -> None:
        rng = self._rng
        chains = [self._chain(number, Random(rng.random())) for number in range(rng.randint(*CHAINS))]
        banned = rng.sample(
            [(owner.name, ce.site) for owner in (BERT, CORA) for ce in CES], rng.randint(*BANS)
        )
        bans = [self._bans(*one, Random(rng.random())) for one in banned]
        await asyncio.gather(*chains, *bans, self._delete_queues())

    async def _chain(self, number: int, rng: Random) -> None:
        """Submit jobs, and others that depend on them, before and after they end; and run the failed ones again."""
        await asyncio.sleep(rng.uniform(0, self._until * 0.4))
        parent = await self._submit(f"chain {number}", rng, rng.choice(("0 1", "0 0 1", "1")), [])
        if parent is None:
            return
        until, reruns, children = self._loop.time() + self._until * 0.6, rng.randint(0, RERUNS), 0
        while self._loop.time() < until:
            if children < CHILDREN and rng.random() < 0.6:
                await self._depend(parent, f"chain {number} {children}", rng)
                children += 1
            failed = await self._failed(parent, until, of_all=rng.random() < 0.8)
            if not failed or not reruns:
                return
            reruns -= 1
            await self._rerun(failed, parent, children, rng)
            await asyncio.sleep(LOOK)

    async def _depend(self, parent: SubmitResponse, key: str, rng: Random) -> None:
        condition = rng.choice(("after_ok", "after_ok", "after", "after_fail"))
        child = await self._submit(key, rng, "0", [(condition, f"s:{parent.submission}")])
        if child is not None and condition == "after_ok":
            self.books.after_ok.append((parent, child))

    async def _failed(self, parent: SubmitResponse, until: float, *, of_all: bool) -> list[int]:
        """The failed jobs of a submission, as soon as there are some. `of_all`: all jobs must have ended."""
        while self._loop.time() < until:
            with self._store.reading() as rows:
                states = dict(
                    rows.execute(
                        "SELECT id, final_state FROM jobs WHERE submission_id = ?", (parent.submission,)
                    )
                )
            failed = sorted(job for job, state in states.items() if state == "Failed")
            if all(states.values()) or (failed and not of_all):
                return failed
            await asyncio.sleep(LOOK)
        return []

    async def _rerun(self, failed: list[int], parent: SubmitResponse, children: int, rng: Random) -> None:
        """Run failed jobs again: at once, when others come to depend on them, or when their queue is being deleted."""
        beside = None
        when = rng.choice(("at once", "with a child", "with a child", "late"))
        if when == "late":
            await asyncio.sleep(rng.uniform(*QUEUE_GONE))
        elif when == "with a child":
            child = self._loop.create_task(
                self._depend(parent, f"late {parent.submission} {children} {rng.random()}", rng)
            )
            beside = await self._store.chance(PARTS, rng.uniform(0.0, 6.0))
            await child
        body = ActionRequest(Selection(ids=failed))
        await self._people.ask(ANNA, lambda c, who: action("reschedule", body, c, who), beside=beside)

    async def _delete_queues(self) -> None:
        """Let a server look for empty queues while another one stands still with one of them."""
        until = self._loop.time() + self._until
        while self._loop.time() < until:
            beside = await self._store.chance(QUEUES, LOOK_FOR_QUEUES)
            for host in self._hosts.running:
                # One of several, that are tried only where PostgreSQL is installed.
                process, server = host.process, cast("SharedServer", host.server)
                if beside is not None and process is not None and server.connection is not beside:
                    with process.entered():
                        self._loop.create_task(server.run_at_once(QueueDuty(server.context)))

    async def _submit(
        self, key: str, rng: Random, codes: str, conditions: list[tuple[str, str]]
    ) -> SubmitResponse | None:
        rows = rng.choice((1, 2, 4))
        description = {
            "executable": "work",
            "arguments": [str(rng.choice((5, 15))), *codes.split()],
            "wall_time": 60,
            # Each has a queue of its own.
            "name": key.replace(" ", "-"),
            "job_type": key.replace(" ", "-"),
            **{condition: [parent] for condition, parent in conditions},
        }
        parameters = Parameters(["number"], [[place] for place in range(rows)])
        request = SubmitRequest(description=description, parameters=parameters, group=ANNA.group, key=key)
        answer: SubmitResponse | None = await self._people.ask(ANNA, partial(_submit, request))
        if answer is not None:
            self._people.books.submitted[key] = answer
        return answer

    async def _bans(self, user: str, site: str, rng: Random) -> None:
        """Ban somebody from a site for some seconds, and for good just when they are over; some times."""
        await asyncio.sleep(rng.uniform(0, self._until * 0.3))
        for _ in range(rng.randint(*ROUNDS)):
            over = self._loop.time() + rng.uniform(5, 20)
            await self._people.ask(ANNA, partial(_ban, BanRequest(user, site, until=over, reason="a test")))
            await asyncio.sleep(max(0.0, over - self._loop.time() - rng.uniform(0.0, 2.0)))
            beside = await self._store.chance(BANNED, rng.uniform(0.0, 15.0))
            await self._people.ask(
                ANNA, partial(_ban, BanRequest(user, site, reason="for good")), beside=beside
            )
            await asyncio.sleep(rng.uniform(5, 15))
            with self._store.reading() as rows:
                sql = "SELECT count(*) FROM bans WHERE owner = ? AND site = ? AND ended IS NULL AND until IS NULL"
                [banned] = rows.execute(sql, (user, site)).fetchone()
            need(banned == 1, f"{user} was banned for good, and the ban has ended by itself")
            await self._people.ask(ANNA, partial(_lift, BanLift(user, site, reason="a test")))

    def check_end(self, rows: Rows) -> None:
        """A job that needs others to succeed may start after all of them have, and none starts from a gone queue."""
        # Servers compare their clock with that of the database at times. Until then a jump makes their instants wrong.
        are_comparable = not any(host.has_jumped for host in self._hosts.all)
        freed = _freed(rows)
        for parent, child in self.books.after_ok:
            begun = min(
                (freed[job] for job in range(child.first, child.last + 1) if job in freed), default=None
            )
            if begun is None:
                continue
            ended, done = rows.execute(
                "SELECT max(a.ended), count(*) FROM attempts a WHERE a.job_id BETWEEN ? AND ?"
                " AND a.outcome = 'applied' AND a.exit_code = 0",
                (parent.first, parent.last),
            ).fetchone()
            need(
                done == parent.count and (ended <= begun + SAME or not are_comparable),
                f"jobs of submission {child.submission} could start at {begun:.1f}: of submission"
                f" {parent.submission} {done} of {parent.count} jobs had succeeded, at {ended}",
            )
        if not are_comparable:
            return
        astray = rows.execute(
            "SELECT j.id, g.id, a.started - g.at FROM gone_queues g JOIN (SELECT id, queue_id FROM jobs UNION ALL"
            " SELECT id, queue_id FROM history) j ON j.queue_id = g.id JOIN attempts a ON a.job_id = j.id"
            " WHERE a.started > g.at + ? LIMIT 5",
            (SAME,),
        ).fetchall()
        need(not astray, f"jobs started from queues that were gone (job, queue, seconds after): {astray}")


def _freed(rows: Rows) -> dict[int, float]:
    """By job that depends on others: when it could first start."""
    freed: dict[int, float] = {}
    for at, jobs in rows.execute(
        "SELECT at, jobs FROM events WHERE kind = 'unblocked' ORDER BY id"
    ).fetchall():
        for job, *_ in json.loads(jobs):
            freed.setdefault(job, at)
    return freed


async def _submit(request: SubmitRequest, context: Context, who: Caller) -> SubmitResponse:
    answer: SubmitResponse = await submit(request, context, who)
    return answer


async def _ban(request: BanRequest, context: Context, who: Caller) -> object:
    return await ban_user(request, context, who)


async def _lift(request: BanLift, context: Context, who: Caller) -> object:
    return await lift_ban(request, context, who)
