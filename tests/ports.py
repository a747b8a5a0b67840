"""Ports for servers that tests start, and start again, at an address that is known before.

The kernel gives ports of its ephemeral range to connections. A port of that range that was free a moment ago, or that
a stopped server had, may belong to another program now. So tests take ports outside of that range, and each process
of tests has a block of its own.
"""

from __future__ import annotations

import itertools
import socket
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
FIRST, LAST, BLOCK = 10_000, 65_000, 100
LOCK_NAME = "\0pilotage-tests-ports-{}"


def free_port() -> int:
    """A port that no program listens at and that no other process of tests takes."""
    return _own_block().take()


@cache
def _own_block() -> PortBlock:
    return PortBlock()


class PortBlock:
    """Ports that belong to this process until it ends, given out in turns.

    The lock is the name of an abstract socket: the kernel frees it with the process, and it is as local to the network
    namespace as the ports are.
    """

    def __init__(self) -> None:
        for first in _blocks():
            lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                lock.bind(LOCK_NAME.format(first))
            except OSError:
                lock.close()
                continue
            self._lock = lock
            self.ports = range(first, first + BLOCK)
            self._turns = itertools.cycle(self.ports)
            return
        raise RuntimeError("other processes of tests have all blocks of ports")

    def take(self) -> int:
        return next(port for port in itertools.islice(self._turns, BLOCK) if _is_free(port))

    def close(self) -> None:
        self._lock.close()


def _blocks() -> Iterable[int]:
    """The first port of each block; none of a block is ephemeral, unless all are."""
    low, high = _ephemeral_range()
    blocks = range(FIRST, LAST, BLOCK)
    return [first for first in blocks if first + BLOCK <= low or first > high] or blocks


def _ephemeral_range() -> Iterator[int]:
    return map(int, EPHEMERAL.read_text().split())


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # as servers do: ended connections don't count
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
