"""Everything that gives a person rights falls with a revocation that comes after it, and stands if it comes later.

All kinds of grants meet all kinds of revocation, by the calls and pages of a real server in virtual time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import httpx
import pytest

from pilotage.outside.batch.ssh.connections import SshConnections
from pilotage.server.context import Context, Disk, PilotService, Tokens
from pilotage.server.http.app import Application
from pilotage.server.issuers import TrustedIssuers
from pilotage.server.outside_calls import DirectCalls
from pilotage.server.process.parts import make_duty_state
from pilotage.server.server_address import ServerAddress
from pilotage.server.tokens import LIFETIME, Issuer
from pilotage.server.web.site import build_with_pages
from pilotage.store.tables import instance
from pilotage.store.writer.change_watch import ChangeWatch
from tests.issuer import AUDIENCE, CLIENT, URL, PlayedIssuer
from tests.unit.services.bench import Bench

NOW = 1_800_000_000.0
HOST = "http://127.0.0.1"
ROOT = """
[groups.root]
properties = ["ADMINISTRATOR"]
[users.root]
groups = ["root"]
[groups.analysis]
[groups.other]
"""
ALICE = '[users.alice]\ngroups = ["analysis"]\n'
ISSUER = f"""
[issuers.iam]
url = "{URL}"
client = "{CLIENT}"
audience = ["{AUDIENCE}"]
[issuers.iam.groups]
"/exp/analysis" = "analysis"
"""
POLICY = ROOT + ALICE + ISSUER


class Base(NamedTuple):
    """A token of alice."""

    kind: str
    text: str
    number: int = 0


Use = Callable[[], Awaitable[bool]]
"""Uses a grant; returns whether it stands."""


class Server:
    """A server without duties. Its clock is the bench's."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        self.bench, pool, readers = bench, bench.pool, bench.readers()
        self.played = PlayedIssuer()
        issuer = Issuer("k" * 48, "here", lambda: pool.server.token_state)
        unused = cast(Any, None)

        async def acall(request: Any) -> Any:
            return bench.do(request)

        self.context = Context(
            pool=pool,
            writer=cast(Any, SimpleNamespace(acall=acall, in_loop=True, changes=ChangeWatch(None))),
            readers=readers,
            clock=lambda: bench.now,
            monotonic=time.monotonic,
            disk=Disk(unused, cast(Any, SimpleNamespace(low=""))),
            address=ServerAddress("here", "127.0.0.1", HOST, HOST),
            tokens=Tokens(issuer, unused, TrustedIssuers(DirectCalls(), self.played.read_documents)),
            pilots=PilotService(folder, unused, SshConnections(folder, {})),
            work=cast(Any, SimpleNamespace(telemetry=None)),
            duties=make_duty_state(pool, lambda: bench.now),
        )
        self.application = Application(self.context, build_with_pages)
        self.apply(POLICY)

    def apply(self, text: str) -> None:
        from pilotage.core.policy import parse
        from pilotage.services.policy.apply import apply_policy

        policy = parse(text)
        self.bench.do(lambda tx: instance.save_policy(tx.connection, text=text, now=1.0, by="r", reason=""))
        self.bench.do(
            lambda tx: apply_policy(
                self.bench.pool, tx, policy=policy, text=text, by="root", reason="", now=self.bench.now
            )
        )

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            transport=httpx.ASGITransport(self.application), base_url=HOST, follow_redirects=False
        )

    async def ask(self, token: str, method: str, path: str, body: Any = None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"}
        async with self.client() as client:
            return await client.request(method, path, json=body, headers=headers)

    async def do(self, token: str, path: str, **body: Any) -> Any:
        answer = await self.ask(token, "POST", path, body)
        assert answer.status_code in (200, 201), answer.text
        return answer.json()

    @property
    def root(self) -> str:
        return self.context.tokens.issuer.issue("root", "root", self.bench.now)[0]


# The kinds of tokens


async def recorded(server: Server) -> Base:
    made = await server.do(server.root, "/v1/tokens", user="alice")
    return Base("recorded", made["token"], made["id"])


async def unrecorded(server: Server) -> Base:
    return Base("unrecorded", server.context.tokens.issuer.issue("alice", "analysis", server.bench.now)[0])


async def home(server: Server) -> Base:
    issuer = server.context.tokens.issuer
    return Base("home", issuer.issue("alice", "analysis", server.bench.now, home=True)[0])


async def foreign(server: Server) -> Base:
    return Base("foreign", server.played.token(server.bench.now))


async def undated(server: Server) -> Base:
    """An issuer need not tell when it has issued a token."""
    return Base(
        "undated",
        server.played.token(server.bench.now, iat=None, exp=int(server.bench.now) + 2 * int(LIFETIME)),
    )


async def exchanged(server: Server) -> Base:
    text = server.played.token(server.bench.now)
    async with server.client() as client:
        answer = await client.post("/v1/tokens/exchange", json={"token": text})
    assert answer.status_code == 200, answer.text
    made = answer.json()
    return Base("exchanged", made["token"], made["id"])


TOKENS = (undated, recorded, unrecorded, home, foreign, exchanged)
OF_ISSUER = {"foreign", "undated"}
"""Kinds of tokens that our keys have not signed."""


# The kinds of grants that are made of a token


async def itself(server: Server, base: Base) -> Use:
    async def use() -> bool:
        return (await server.ask(base.text, "GET", "/v1/whoami")).status_code == 200

    return use


async def renewed(server: Server, base: Base) -> Use:
    made = await server.do(base.text, "/v1/tokens/refresh")
    return await itself(server, base._replace(text=made["token"]))


async def session_is_there(client: httpx.AsyncClient) -> bool:
    """A page that needs a session answers about the page, and not with the way to the sign-in."""
    return "give 1 to" in (await client.get("/changes")).text


async def code(server: Server, base: Base) -> Use:
    made = await server.do(base.text, "/v1/web/codes")

    async def use() -> bool:
        async with server.client() as client:
            answer = await client.get(made["address"], headers={"sec-fetch-site": "none"})
            assert bool(client.cookies) == (answer.status_code == 303)
            return await session_is_there(client)

    return use


async def session_by_code(server: Server, base: Base) -> Use:
    client = server.client()
    made = await server.do(base.text, "/v1/web/codes")
    await client.get(made["address"], headers={"sec-fetch-site": "none"})
    assert await session_is_there(client)
    return lambda: session_is_there(client)


async def session_by_token(server: Server, base: Base) -> Use:
    client = server.client()
    await client.post("/signin", data={"token": base.text})
    assert await session_is_there(client)
    return lambda: session_is_there(client)


async def listener(server: Server, base: Base) -> Use:
    """A client that waits for changes with its cursor."""
    feed = server.context.duties.feed
    cursor = (await server.ask(base.text, "GET", "/v1/changes")).json()["cursor"]
    asked = server.ask(base.text, "GET", f"/v1/changes?after={cursor}&wait=500")
    task = asyncio.create_task(asked)
    while not feed._waiting and not task.done():
        await asyncio.sleep(0)
    assert not task.done(), task.result().text

    async def use() -> bool:
        waiting = dict(feed._waiting)
        feed.wake()
        while not task.done() and all(feed._waiting.get(key) is value for key, value in waiting.items()):
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        stands = not task.done()
        task.cancel()
        await asyncio.wait((task,))
        return stands

    return use


async def half_sent_request(server: Server, base: Base) -> Use:
    """A request whose header has come, and whose body is on its way."""
    rest, begun = asyncio.Event(), asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield b"{"
        begun.set()
        await rest.wait()
        yield b"}"

    headers = {
        "Authorization": f"Bearer {base.text}",
        "Content-Length": "2",
        "Content-Type": "application/json",
    }

    async def send() -> int:
        async with server.client() as client:
            return (await client.post("/v1/tokens/revoke", content=body(), headers=headers)).status_code

    task = asyncio.create_task(send())
    await begun.wait()

    async def use() -> bool:
        rest.set()
        return await task not in (401, 403)

    return use


Form = Callable[[Server, Base], Awaitable[Use]]
# The code comes last: a further one of a user replaces it.
FORMS: dict[str, Form] = {
    form.__name__: form
    for form in (itself, renewed, session_by_code, session_by_token, listener, half_sent_request, code)
}
IMPOSSIBLE = {(token, form) for token in OF_ISSUER for form in ("renewed", "session_by_token")} | {
    ("exchanged", "renewed")
}
OUR_TOKENS = {"session_by_code", "session_by_token", "renewed"}
"""Forms that have a token of their own, which our key has signed."""


# The kinds of revocation


async def of_one_token(server: Server, numbers: list[int]) -> None:
    for number in filter(None, numbers):
        await server.do(server.root, "/v1/tokens/revoke", id=number)


async def of_the_user(server: Server, numbers: list[int]) -> None:
    await server.do(server.root, "/v1/tokens/revoke", user="alice")


async def of_the_user_twice_with_a_clock_set_back(server: Server, numbers: list[int]) -> None:
    await server.do(server.root, "/v1/tokens/revoke", user="alice")
    server.bench.now -= 50
    await server.do(server.root, "/v1/tokens/revoke", user="alice")
    server.bench.now += 50


async def of_the_key(server: Server, numbers: list[int]) -> None:
    await server.do(server.root, "/v1/tokens/rotate-key", grace=0)


async def by_removal_of_the_user(server: Server, numbers: list[int]) -> None:
    server.apply(ROOT + ISSUER)


async def by_removal_from_the_group(server: Server, numbers: list[int]) -> None:
    server.apply(ROOT + ALICE.replace("analysis", "other") + ISSUER)


async def by_removal_of_the_issuer(server: Server, numbers: list[int]) -> None:
    server.apply(ROOT + ALICE)


async def by_time(server: Server, numbers: list[int]) -> None:
    server.bench.now += 3 * LIFETIME


Revocation = Callable[[Server, list[int]], Awaitable[None]]
REVOCATIONS: dict[Revocation, Callable[[str, str], bool]] = {
    of_one_token: lambda kind, form: kind in ("recorded", "exchanged"),
    of_the_user: lambda kind, form: True,
    of_the_user_twice_with_a_clock_set_back: lambda kind, form: True,
    of_the_key: lambda kind, form: kind not in OF_ISSUER or form in OUR_TOKENS,
    by_removal_of_the_user: lambda kind, form: kind != "home",
    by_removal_from_the_group: lambda kind, form: kind != "home",
    by_removal_of_the_issuer: lambda kind, form: kind in {*OF_ISSUER, "exchanged"},
    by_time: lambda kind, form: True,
}
"""With the grants that each ends, by the kind of token and the form."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    bench = Bench(tmp_path, POLICY, NOW)
    yield Server(bench, tmp_path)
    bench.end()


async def made_now(
    server: Server, token: Callable[[Server], Awaitable[Base]]
) -> tuple[dict[tuple[str, str], Use], list[int]]:
    """All grants that come from tokens of one kind, by this kind and the form; the numbers of the tokens."""
    grants, numbers = dict[tuple[str, str], Use](), list[int]()
    for name, form in FORMS.items():
        if (token.__name__, name) not in IMPOSSIBLE:
            server.bench.now += 1
            base = await token(server)
            numbers.append(base.number)
            grants[base.kind, name] = await form(server, base)
    return grants, numbers


@pytest.mark.parametrize("revoke", REVOCATIONS, ids=lambda revoke: revoke.__name__)
def test_each_grant_falls_with_a_later_revocation_only(server: Server, revoke: Revocation) -> None:
    falls = REVOCATIONS[revoke]

    async def run() -> None:
        for token in TOKENS:
            before, numbers = await made_now(server, token)
            await revoke(server, numbers)
            server.bench.now += 1
            stand = {grant: await use() for grant, use in before.items()}
            assert stand == {grant: not falls(*grant) for grant in before}
            server.apply(POLICY)
            if token is undated and revoke in (of_the_user, of_the_user_twice_with_a_clock_set_back):
                continue  # it may be older than the revocation
            after, _ = await made_now(server, token)
            assert [grant for grant, use in after.items() if not await use()] == []

    asyncio.run(run())
