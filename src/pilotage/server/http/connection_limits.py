"""What one connection, and all connections together, may take of the server.

docs/reference/configuration.md lists the figures.
"""

from __future__ import annotations

import resource
from dataclasses import dataclass

RESERVED_FILES = 256
"""File descriptors that connections leave to the database, to sandboxes and to pilots' logs."""
BODY_WITHOUT_TOKEN = 65_536
MAX_CONNECTIONS = 16_384
MAX_PER_ADDRESS = 512
MIN_CONNECTIONS = 64


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Sizes in bytes, times in seconds, rates in bytes per second. Tests use smaller ones."""

    head: int = 32_768
    """Of the request line, all header fields, and all trailer fields after a chunked body."""
    request_line: int = 8_192
    fields: int = 100
    """Header fields of a request."""
    body_without_token: int = BODY_WITHOUT_TOKEN
    """Of a body whose sender is not known (yet)."""
    first_byte: float = 20.0
    """Until the first request of a connection begins, and between requests of a peer that has shown no token."""
    idle: float = 75.0
    """Between the requests of a peer that has shown a valid token."""
    head_time: float = 20.0
    """From the first byte of a request to the end of its header."""
    window: float = 30.0
    """A body must come, and an answer be read, at `rate` in every such period."""
    rate: float = 500.0
    linger: float = 5.0
    """For which the rest of a refused request is read and thrown away, so that its sender reads the answer."""

    @property
    def tick(self) -> float:
        """The longest time between two looks at the clock: limits of time hold within it."""
        return min(10.0, self.first_byte, self.idle, self.head_time, self.window, self.linger)


@dataclass(frozen=True, slots=True)
class Capacity:
    """How many connections the server keeps open."""

    max_connections: int = MAX_CONNECTIONS
    per_address: int = MAX_PER_ADDRESS
    """From one address without a valid token: more of them close the oldest idle one."""


def raise_file_limit(connections: int = MAX_CONNECTIONS) -> tuple[int, int]:
    """Raise this process's soft limit of open files for `wanted` connections, as far as the hard one allows.

    Returns (connections that there is room for, the soft limit before), so that children can be given the old one.
    """
    before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + RESERVED_FILES
    allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if before != resource.RLIM_INFINITY and before < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return max(MIN_CONNECTIONS, min(connections, allowed - RESERVED_FILES)), before
