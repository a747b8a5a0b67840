"""People who meet each other at two servers: jobs that depend on others which are run again, and bans made longer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from random import Random
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
from tests.simulation.policy import OWNERS
from tests.simulation.processes import SimulationLoop
from tests.simulation.stores import Rows, Store

ANNA, BERT, CORA = OWNERS
CHAINS = (3, 6)
"""The least and the most submissions with others that depend on them."""
BANS = (1, 3)
RERUNS = 5
"""Times that she runs the failed jobs of one submission again, at most."""
QUEUE_PERIOD, QUEUE_KEPT = 15.0, 20.0
"""Seconds between two cycles of the duty of queues, and until it deletes an empty one: a day is too long here."""


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
    def __init__(self, loop: SimulationLoop, people: People, store: Store, rng: Random, until: float) -> None:
        self._loop, self._people, self._store, self._rng, self._until = loop, people, store, rng, until
        self.books = ContentionBooks()

    async def live(self) -> None:
        rng = self._rng
        chains = [self._chain(number, Random(rng.random())) for number in range(rng.randint(*CHAINS))]
        owners = rng.sample((BERT, CORA), 2)
        bans = [self._ban(owner.name, Random(rng.random())) for owner in owners[: rng.randint(*BANS) - 1]]
        await asyncio.gather(*chains, *bans)

    async def _chain(self, number: int, rng: Random) -> None:
        await asyncio.sleep(rng.uniform(0, self._until * 0.5))
        parent = await self._submit(f"chain {number}", rng, rng.choice(("0 1", "0 0 1", "1")), [])
        if parent is None:
            return
        reruns = self._loop.create_task(self._rerun(parent, rng))
        for place, condition in enumerate(rng.choices(("after_ok", "after_ok", "after", "after_fail"), k=3)):
            await asyncio.sleep(rng.uniform(0, 15))
            key = f"chain {number} {place}"
            child = await self._submit(key, rng, "0", [(condition, f"s:{parent.submission}")])
            if child is not None and condition == "after_ok":
                self.books.after_ok.append((parent, child))
        await reruns

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

    async def _rerun(self, parent: SubmitResponse, rng: Random) -> None:
        """Run the failed jobs of a submission again, as soon as she sees some."""
        left = rng.randint(0, RERUNS)
        sql = "SELECT id FROM jobs WHERE submission_id = ? AND state = 'Failed' ORDER BY id"
        until = self._loop.time() + self._until
        while left and self._loop.time() < until:
            await asyncio.sleep(rng.choice((0.5, 0.5, 2.0, 40.0)))
            with self._store.reading() as rows:
                failed = [job for (job,) in rows.execute(sql, (parent.submission,)).fetchall()]
            if failed:
                left -= 1
                body = ActionRequest(Selection(ids=failed))
                await self._people.ask(ANNA, lambda c, who, body=body: action("reschedule", body, c, who))

    async def _ban(self, user: str, rng: Random) -> None:
        """Ban somebody for some seconds, and for good just before they are over."""
        await asyncio.sleep(rng.uniform(0, self._until * 0.5))
        over = self._loop.time() + rng.uniform(10, 40)
        await self._people.ask(ANNA, partial(_ban, BanRequest(user, until=over, reason="a test")))
        await asyncio.sleep(max(0.0, over - self._loop.time() - rng.uniform(0.0, 3.0)))
        await self._people.ask(ANNA, partial(_ban, BanRequest(user, reason="for good")))
        await asyncio.sleep(rng.uniform(5, 30))
        with self._store.reading() as rows:
            sql = "SELECT count(*) FROM bans WHERE owner = ? AND ended IS NULL AND until IS NULL"
            [banned] = rows.execute(sql, (user,)).fetchone()
        need(banned == 1, f"{user} was banned for good, and the ban has ended by itself")
        await self._people.ask(ANNA, partial(_lift, BanLift(user, reason="a test")))

    def check_end(self, rows: Rows) -> None:
        """A job that needs others to succeed starts after all of them have."""
        for parent, child in self.books.after_ok:
            [begun] = rows.execute(
                "SELECT min(started) FROM attempts WHERE job_id BETWEEN ? AND ?", (child.first, child.last)
            ).fetchone()
            if begun is None:
                continue
            ended, done = rows.execute(
                "SELECT max(a.ended), count(*) FROM attempts a WHERE a.job_id BETWEEN ? AND ?"
                " AND a.outcome = 'applied' AND a.exit_code = 0",
                (parent.first, parent.last),
            ).fetchone()
            need(
                done == parent.count and ended <= begun,
                f"jobs of submission {child.submission} started at {begun:.1f}: of submission {parent.submission}"
                f" {done} of {parent.count} jobs had succeeded, at {ended}",
            )


async def _submit(request: SubmitRequest, context: Context, who: Caller) -> SubmitResponse:
    answer: SubmitResponse = await submit(request, context, who)
    return answer


async def _ban(request: BanRequest, context: Context, who: Caller) -> object:
    return await ban_user(request, context, who)


async def _lift(request: BanLift, context: Context, who: Caller) -> object:
    return await lift_ban(request, context, who)
