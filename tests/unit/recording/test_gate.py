"""The connections of a recorded server check a message, and leave each change to its decisions, which are replayed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from pilotage.server.context import Context
from pilotage.server.issuers import TrustedIssuers
from pilotage.server.outside_calls import DirectCalls
from pilotage.server.recording.front import MessageGate
from pilotage.server.recording.lines import ReceivedMessage
from pilotage.server.recording.tape import WholeAnswer
from pilotage.wire.call import ApiCall, all_calls
from tests.unit.server.test_grants import HOST, NOW, POLICY, Server
from tests.unit.services.bench import Bench


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    bench = Bench(tmp_path, POLICY, NOW)
    yield Server(bench, tmp_path)
    bench.end()


def _address(call: ApiCall[Any, Any]) -> str:
    return call.path.replace("{", "").replace("}", "")


def test_checks_of_connections_change_nothing(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """All addresses meet all kinds of tokens. Each effect would be one that a replay does not have."""
    played, effects = server.played, list[str]()
    now = server.bench.now
    tokens = [server.root, played.token(now), played.token(now, kid="ec"), "no token", ""]
    posted: list[ReceivedMessage] = []

    def post(message: ReceivedMessage) -> None:
        posted.append(message)
        gate.answered(message, WholeAnswer(400, [], b""))

    gate = MessageGate(server.context, cast(Any, SimpleNamespace(post=post)))
    monkeypatch.setattr(gate._checks, "_issuers", TrustedIssuers(DirectCalls(), played.read_documents))

    def noted(name: str) -> Any:
        async def note(*_: Any, **__: Any) -> Any:
            effects.append(name)
            raise AssertionError(name)

        return note

    monkeypatch.setattr(Context, "follow_rules", noted("follows another server"))
    monkeypatch.setattr(server.context.writer, "acall", noted("writes"))
    monkeypatch.setattr(server.context.tokens.trusted, "claims", noted("asks an issuer over the tape"))

    async def send_all(application: Any) -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(application), base_url=HOST) as client:
            for call in all_calls().values():
                for token in tokens:
                    await client.request(
                        call.method,
                        _address(call),
                        headers={"authorization": f"Bearer {token}"} if token else {},
                        content=b"{}" if call.method in ("POST", "PUT") else None,
                    )

    asyncio.run(send_all(gate))
    assert effects == []
    given = {(message.method, message.path) for message in posted}
    assert given == {(call.method, _address(call)) for call in all_calls().values()} - {("GET", "/live")}
    with pytest.raises(AssertionError, match="follows another server"):
        asyncio.run(send_all(server.application))
