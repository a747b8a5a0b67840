"""New connections are taken quickly, also by a loop whose turns are long."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest
import uvloop

from pilotage.core.errors import Conflict
from pilotage.server.http import sockets
from pilotage.server.http.sockets import (
    ACCEPTS_PER_TURN,
    BACKLOG,
    accept_handles,
    ephemeral_ports,
    listen,
    listen_again,
)


class _Counted(asyncio.Protocol):
    def __init__(self, made: list[int]) -> None:
        made.append(1)


async def _turns_for(connections: int) -> int:
    """Turns of the loop until so many connections, which all wait, are accepted."""
    loop, made = asyncio.get_running_loop(), list[int]()
    listener = listen("127.0.0.1", 0, "")
    address = listener.getsockname()
    servers = [
        await loop.create_server(lambda: _Counted(made), sock=one, backlog=BACKLOG)
        for one in accept_handles(listener)
    ]
    clients = [socket.create_connection(address) for _ in range(connections)]
    turns = 0
    while len(made) < connections:
        await asyncio.sleep(0)
        turns += 1
    for client in clients:
        client.close()
    for server in servers:
        server.close()
    return turns


def test_connections_that_come_at_once_are_accepted_in_few_turns() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(_turns_for(8 * ACCEPTS_PER_TURN)) <= 2 * 8


def test_a_port_in_use_is_told_with_what_to_do() -> None:
    with listen("127.0.0.1", 0, "") as taken, pytest.raises(Conflict, match="cannot be used") as told:
        listen("127.0.0.1", taken.getsockname()[1], "choose another")
    assert told.value.hint == "choose another"


def test_an_ephemeral_port_that_is_taken_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    with listen("127.0.0.1", 0, "") as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(sockets, "ephemeral_ports", lambda: range(port, port + 1))
        with listen_again("127.0.0.1", port, "choose another") as listener:
            assert listener.getsockname()[1] != port
        monkeypatch.setattr(sockets, "ephemeral_ports", lambda: range(0))
        with pytest.raises(Conflict, match="cannot be used") as told:
            listen_again("127.0.0.1", port, "choose another")
        assert told.value.hint == "choose another"


def test_ephemeral_ports_are_those_of_the_kernel(tmp_path: Path) -> None:
    (tmp_path / "range").write_text("20000\t20999\n")
    assert ephemeral_ports(tmp_path / "range") == range(20000, 21000)
    assert 50000 in ephemeral_ports(tmp_path / "nothing")
