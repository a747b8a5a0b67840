"""The relay on a login node, in the process of the test."""

from __future__ import annotations

import asyncio

import pytest

from pilotage.outside.batch.ssh.relay_program import Relay, listen


@pytest.mark.parametrize("host", ["", "localhost", "no-such-host.invalid"])
def test_all_addresses_have_the_one_port_that_nodes_are_told(host: str) -> None:
    async def ports() -> set[int]:
        server = await listen(Relay("/nowhere"), host, 0)
        assert isinstance(server, asyncio.Server)
        try:
            return {socket.getsockname()[1] for socket in server.sockets}
        finally:
            server.close()

    assert len(asyncio.run(ports())) == 1
