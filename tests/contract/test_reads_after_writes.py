"""Two servers on one database: what one has acknowledged, the other one knows at the next call, without a wait.

The servers have no duties here, so each learns of the other's changes only by the calls that it answers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from pilotage.outside.batch.ssh.connections import SshConnections
from pilotage.server.context import Context, Disk, PilotService, Tokens
from pilotage.server.http.app import Application
from pilotage.server.process.parts import make_duty_state
from pilotage.server.server_address import ServerAddress
from pilotage.server.tokens import Issuer
from pilotage.store.tables import instance
from tests.contract import one_of_several
from tests.contract.one_of_several import One
from tests.contract.stores import postgresql_store
from tests.deadlines import PATIENCE

pytestmark = pytest.mark.slow

POLICY = """
[groups.physics]
share = 100
properties = ["ADMINISTRATOR", "NORMAL_USER"]
[users.alice]
groups = ["physics"]
[users.bob]
groups = ["physics"]
[sites.here]
[ces.one]
site = "here"
type = "slurm"
"""
MORE = """
[groups.medicine]
share = 300
[users.carol]
groups = ["medicine"]
[sites.there]
administrators = ["carol"]
[ces.two]
site = "there"
type = "slurm"
"""


class Server:
    """A server without duties, and its API."""

    def __init__(self, one: One, folder: Path) -> None:
        self.pool = one.pool
        self._issuer = Issuer("k" * 32, "i", lambda: one.pool.server.token_state)
        unused = cast(Any, None)
        context = Context(
            pool=one.pool,
            writer=one.writer,
            readers=one.store.readers,
            clock=time.time,
            monotonic=time.monotonic,
            disk=Disk(unused, cast(Any, SimpleNamespace(low=""))),
            address=ServerAddress("i", "host", "http://host", "http://host"),
            tokens=Tokens(self._issuer, unused, unused),
            pilots=PilotService(folder, unused, SshConnections(folder, {})),
            work=cast(Any, SimpleNamespace(telemetry=None)),
            duties=make_duty_state(one.pool, time.time),
        )
        self._api = Application(context)
        self.alice = self._issuer.issue("alice", "physics", time.time())[0]

    def ask(self, method: str, path: str, body: Any = None, *, token: str = "") -> httpx.Response:
        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(self._api)
            async with httpx.AsyncClient(
                transport=transport, base_url="http://host", timeout=PATIENCE
            ) as client:
                headers = {"Authorization": f"Bearer {token or self.alice}"}
                return await client.request(method, path, json=body, headers=headers)

        return asyncio.run(send())

    def get(self, path: str) -> Any:
        answer = self.ask("GET", path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def do(self, method: str, path: str, **body: Any) -> Any:
        answer = self.ask(method, path, body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def knows(self, token: str) -> int:
        """The status of a call with this token."""
        return self.ask("GET", "/v1/whoami", token=token).status_code


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Server, Server]]:
    monkeypatch.setattr(one_of_several, "POLICY", POLICY)
    store = postgresql_store(tmp_path, migrated=True)
    connection = store.open_writer()
    instance.create(connection, "i", 1.0)
    instance.save_policy(connection, text=POLICY, now=1.0, by="alice", reason="")
    ones = One(store, "a"), One(store, "b")
    yield Server(ones[0], tmp_path), Server(ones[1], tmp_path)
    for one in ones:
        one.end()
    connection.close()
    store.readers.close()
    store.engine.dispose()
    store.drop()


def test_users_groups_sites_and_ces_of_a_new_policy(servers: tuple[Server, Server]) -> None:
    a, b = servers
    a.do("PUT", "/v1/policy", text=POLICY + MORE)
    assert [site["name"] for site in b.get("/v1/sites")] == ["here", "there"]
    a.do("PUT", "/v1/policy", text=POLICY)
    assert [site["name"] for site in b.get("/v1/sites")] == ["here"]
    a.do("PUT", "/v1/policy", text=POLICY + MORE)
    assert b.do("POST", "/v1/sites/state", site="there", state="drain", reason="r")["state"] == "drain"
    a.do("PUT", "/v1/policy", text=POLICY)
    a.do("PUT", "/v1/policy", text=POLICY + MORE)
    b.do("POST", "/v1/bans", user="bob", site="there", reason="r")
    a.do("PUT", "/v1/policy", text=POLICY)
    a.do("PUT", "/v1/policy", text=POLICY + MORE)
    carol = b.do("POST", "/v1/tokens", user="carol")["token"]
    b.do("PUT", "/v1/policy", text=POLICY)
    assert a.knows(carol) == 403
    b.do("PUT", "/v1/policy", text=POLICY + MORE)
    assert a.knows(carol) == 200
    assert [ce["name"] for ce in a.get("/v1/ces")] == ["one", "two"]


def test_shares(servers: tuple[Server, Server]) -> None:
    a, b = servers
    for share in (200.0, 50.0):
        a.do("PUT", "/v1/policy", text=POLICY.replace("share = 100", f"share = {share:.0f}"))
        [group] = [row for row in b.get("/v1/shares")["rows"] if not row["owner"]]
        assert group["share"] == share


def test_states_of_sites(servers: tuple[Server, Server]) -> None:
    a, b = servers
    for state in ("down", "drain", "normal"):
        a.do("POST", "/v1/sites/state", site="here", state=state, reason="r")
        [site] = b.get("/v1/sites")
        assert site["state"] == state
        a, b = b, a


def test_bans(servers: tuple[Server, Server]) -> None:
    a, b = servers
    for _ in range(2):
        a.do("POST", "/v1/bans", user="bob", site="here", reason="r")
        assert len(b.get("/v1/bans")["bans"]) == 1
        assert b.pool.offers.cache.banned_at("here") == frozenset({"bob"})
        b.do("POST", "/v1/bans/lift", user="bob", site="here", reason="r")
        assert not a.get("/v1/bans")["bans"]
        assert a.pool.offers.cache.banned_at("here") == frozenset()
        a, b = b, a


def test_tokens(servers: tuple[Server, Server]) -> None:
    a, b = servers
    for _ in range(2):
        one, other = (a.do("POST", "/v1/tokens", user="bob") for _ in range(2))
        assert (b.knows(one["token"]), b.knows(other["token"])) == (200, 200)
        a.do("POST", "/v1/tokens/revoke", id=one["id"])
        assert (b.knows(one["token"]), b.knows(other["token"])) == (401, 200)
        a.do("POST", "/v1/tokens/revoke", user="bob")
        assert b.knows(other["token"]) == 401
        a.do("POST", "/v1/tokens/rotate-key", grace=60)
        assert b.knows(a.do("POST", "/v1/tokens", user="alice")["token"]) == 200
        a, b = b, a


def test_ces(servers: tuple[Server, Server]) -> None:
    a, b = servers
    for verb in ("disable", "enable"):
        a.do("POST", f"/v1/ces/{verb}", name="one", reason="r")
        [ce] = b.get("/v1/ces")
        assert (ce["state"] == "disabled") == (verb == "disable")


def test_a_call_without_news_reads_one_number(servers: tuple[Server, Server]) -> None:
    a, b = servers
    a.do("POST", "/v1/sites/state", site="here", state="down", reason="r")
    b.get("/v1/whoami")
    before = b.pool.server.token_state
    b.get("/v1/whoami")
    assert b.pool.server.token_state is before
