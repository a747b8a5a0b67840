"""The ports of the tests' own servers: no other program can come first."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.ports import BLOCK, EPHEMERAL, PortBlock


@pytest.fixture
def block() -> Iterator[PortBlock]:
    made = PortBlock()
    yield made
    made.close()


def test_no_connection_is_given_such_a_port(block: PortBlock) -> None:
    low, high = map(int, EPHEMERAL.read_text().split())
    assert not any(low <= port <= high for port in block.ports)


def test_each_process_has_other_ports(block: PortBlock) -> None:
    program = "from tests.ports import free_port; print(free_port())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stdout) not in block.ports


def test_a_port_at_which_somebody_listens_is_passed_over(block: PortBlock) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", block.ports[1]))
        taken.listen()
        given = [block.take() for _ in range(BLOCK - 1)]
    assert given == [port for port in block.ports if port != block.ports[1]]
    assert block.take() == block.ports[0], "the next turn"
