"""The people of a history. They submit, kill and rerun jobs, close sites, change the policy, and repeat their calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from pilotage.core.errors import Overloaded, PilotageError, Unreachable
from pilotage.server.context import Context
from pilotage.server.http.routes.jobs import action
from pilotage.server.http.routes.policies import change_policy
from pilotage.server.http.routes.sites import set_site_state
from pilotage.server.http.routes.submissions import submit
from pilotage.server.tokens import Caller
from pilotage.twin.server import caller
from pilotage.wire.jobs import ActionRequest, Selection
from pilotage.wire.policy import PolicyChange
from pilotage.wire.sites import SiteStateRequest
from pilotage.wire.submissions import Parameters, SubmitRequest, SubmitResponse
from tests.simulation.extent import Extent
from tests.simulation.faults import PERSON
from tests.simulation.policy import CES, OWNERS, Owner, policy_text
from tests.simulation.processes import SimulationLoop
from tests.simulation.server_host import ServerHosts

AGAIN = 5.0
"""Seconds after which a person without an answer asks again."""

Ask = Callable[[Context, Caller], Any]
_Repeat = Callable[[], Awaitable[Any]]


class NoAnswer(Exception):
    """The server is down, or died before it answered."""


@dataclass(slots=True)
class PeopleBooks:
    """What people were told."""

    submitted: dict[str, SubmitResponse] = field(default_factory=dict)
    """By key."""
    refusals: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Deed:
    at: float
    owner: Owner
    request: SubmitRequest | None = None
    verb: str = ""
    pick: float = 0.0
    site: str = ""
    seconds: float = 0.0
    policy: int = 0


class People:
    def __init__(
        self, loop: SimulationLoop, hosts: ServerHosts, rng: Random, extent: Extent, *, budget: bool
    ) -> None:
        self._loop, self._hosts, self._budget = loop, hosts, budget
        self._asked = 0
        self.books = PeopleBooks()
        self._deeds = _draw_deeds(rng, extent)
        self._answered: list[tuple[float, _Repeat]] = []
        """What was answered when, and how it is asked again."""
        self._repeats: list[asyncio.Task[None]] = []

    async def live(self) -> None:
        begin = self._loop.time()
        running = [self._loop.create_task(self._do(deed, begin)) for deed in self._deeds]
        await asyncio.gather(*running)

    async def _do(self, deed: _Deed, begin: float) -> None:
        await asyncio.sleep(begin + deed.at - self._loop.time())
        request, books = deed.request, self.books
        if request is not None:
            await self._do_lasting(partial(self._submit, deed.owner, request))
        elif deed.verb:
            mine = [one for key, one in books.submitted.items() if key.startswith(deed.owner.name)]
            if mine:
                picked = mine[int(deed.pick * len(mine))]
                ids = list(range(picked.first, picked.last + 1))[: 1 + int(deed.pick * 50) % 4]
                body = ActionRequest(Selection(ids=ids))
                await self.ask(deed.owner, lambda c, who: action(deed.verb, body, c, who))
        elif deed.site:
            for state in ("drain" if deed.pick < 0.5 else "down", "normal"):
                change = SiteStateRequest(deed.site, state, reason="a test")
                ask = partial(self.ask, deed.owner, partial(_set_site_state, change))
                # Only that it is open again is repeated after a restore: else it could be closed for ever.
                await (self._do_lasting(ask) if state == "normal" else ask())
                await asyncio.sleep(deed.seconds)
        else:
            policy = PolicyChange(policy_text(deed.policy, budget=self._budget))
            await self._do_lasting(
                partial(self.ask, deed.owner, lambda c, who: change_policy(policy, c, who))
            )

    async def _submit(self, owner: Owner, request: SubmitRequest) -> None:
        answer = await self.ask(owner, lambda c, who: submit(request, c, who))
        self.books.submitted[request.key] = answer

    async def _do_lasting(self, repeat: _Repeat) -> None:
        """Do what is done again if the store forgets it."""
        await repeat()
        self._answered.append((self._loop.time(), repeat))

    def repeat(self, since: float) -> None:
        """Do again, one by one, what was answered since then: the store has gone back to that instant."""
        forgotten = [(at, repeat) for at, repeat in self._answered if at >= since]
        self._answered = [(at, repeat) for at, repeat in self._answered if at < since]

        async def do_all() -> None:
            for _, repeat in forgotten:
                await self._do_lasting(repeat)

        self.also(do_all())

    def also(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside the rest, which the end waits for."""
        self._repeats.append(self._loop.create_task(work))

    @property
    def is_repeating(self) -> bool:
        return not all(task.done() for task in self._repeats)

    def need_no_failure(self) -> None:
        for task in self._repeats:
            if task.done():
                task.result()

    async def ask(
        self,
        owner: Owner,
        call: Ask,
        is_given_up: Callable[[], bool] = lambda: False,
        *,
        beside: object = None,
    ) -> Any:
        """Ask until there is an answer. None: it is refused, or given up.

        `beside`: a session; the server of another one is asked.
        """
        while not is_given_up():
            try:
                return await self._once(owner, call, beside)
            except NoAnswer:
                await asyncio.sleep(AGAIN)
            except PilotageError as error:
                if not isinstance(error, Overloaded | Unreachable):
                    self.books.refusals.append(str(error))
                    return None
                await asyncio.sleep(AGAIN)
        return None

    async def _once(self, owner: Owner, call: Ask, beside: object) -> Any:
        self._asked += 1
        asked = self._hosts.all[self._asked % len(self._hosts.all)].server
        if beside is not None and asked is not None and asked.connection is beside:
            self._asked += 1
        host = self._hosts.all[self._asked % len(self._hosts.all)]
        process, server = host.process, host.server
        if process is None or server is None:
            raise NoAnswer
        context = server.context
        answer = self._loop.create_future()
        who = caller(owner.name, owner.group, context.pool.policy.properties(owner.name, owner.group))

        def died() -> None:
            if not answer.done():
                answer.set_exception(NoAnswer())

        def done(task: asyncio.Task[Any]) -> None:
            process.forget(died)
            error = task.exception()
            if answer.done():
                return
            if host.fault(PERSON) is not None:
                answer.set_exception(NoAnswer())
            elif error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(task.result())

        with process.entered():
            task = self._loop.create_task(call(context, who))
        task.add_done_callback(done, context=self._loop.outside)
        process.at_death(died)
        return await answer


async def _set_site_state(change: SiteStateRequest, context: Context, who: Caller) -> Any:
    return await set_site_state(change, context, who)


def _draw_deeds(rng: Random, extent: Extent) -> list[_Deed]:
    deeds: list[_Deed] = []
    left, until = extent.user_jobs, extent.storm
    while left > 0:
        rows = rng.choice((1, 1, 1, 3, 8, 20))
        owner = rng.choice(OWNERS)
        at = rng.uniform(0, until * 0.7)
        deeds.append(_Deed(at, owner, _draw_request(rng, owner, rows, f"{owner.name} {len(deeds)}", extent)))
        left -= rows
    for _ in range(rng.randrange(3, 9)):
        verb = rng.choice(("kill", "kill", "reschedule"))
        deeds.append(_Deed(rng.uniform(0, until), rng.choice(OWNERS), verb=verb, pick=rng.random()))
    if rng.random() < 0.5:
        site = rng.choice(CES).site
        deeds.append(
            _Deed(
                rng.uniform(0, until), OWNERS[0], site=site, pick=rng.random(), seconds=rng.uniform(20, 200)
            )
        )
    for version in range(1, rng.randrange(1, 4)):
        deeds.append(_Deed(rng.uniform(0, until), OWNERS[0], policy=version))
    return sorted(deeds, key=lambda deed: deed.at)


def _draw_request(rng: Random, owner: Owner, rows: int, key: str, extent: Extent) -> SubmitRequest:
    seconds = rng.choice((5, 15, 30, 45)) if rows > 3 else rng.choice((5, 15, 30, 150, 200))
    seconds = min(seconds, extent.longest_job)
    codes = rng.choice(("0", "0", "0", "0 0 1", "1"))
    description: dict[str, Any] = {
        "executable": "work",
        "arguments": [str(seconds), *codes.split()],
        "wall_time": min(250, 3 * seconds) if rng.random() < 0.9 else seconds,
        "processors": rng.choice((1, 1, 1, 1, 2, 4)),
    }
    if rng.random() < 0.2:
        description["job_type"] = "Merge"
    if rng.random() < 0.5:
        description["retries"] = 2
    if rng.random() < 0.2:
        description["sites"] = ["North"]
    parameters = None
    if rows > 1:
        parameters = Parameters(["number"], [[number] for number in range(rows)])
    return SubmitRequest(description=description, parameters=parameters, group=owner.group, key=key)
