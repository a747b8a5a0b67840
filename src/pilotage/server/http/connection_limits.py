"""Limits for one connection and for all connections together.

docs/reference/configuration.md lists the figures.
"""

from __future__ import annotations

import resource
from dataclasses import dataclass

from pilotage.core.errors import InvalidInput

RESERVED_FILES = 256
"""File descriptors reserved for the database, sandboxes and pilots' logs."""
BODY_WITHOUT_TOKEN = 65_536
"""Bytes of a body whose sender is not, or not yet, authenticated."""
LARGEST_FORM = 4_000_000
"""Bytes of a form of a signed-in browser: the longest policy with all of its characters escaped, and more."""
MAX_CONNECTIONS = 16_384
MAX_PER_ADDRESS = 512
MIN_CONNECTIONS = 64


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Sizes in bytes, times in seconds, rates in bytes per second. Tests use smaller ones."""

    head: int = 32_768
    """The request line with all header fields, or all trailer fields after a chunked body."""
    request_line: int = 8_192
    fields: int = 100
    """Header fields of a request."""
    handshake: float = 10.0
    """From the start of a connection to the end of its TLS handshake."""
    first_byte: float = 20.0
    """From the start of a connection to its first request, and between requests of a peer without a valid token."""
    idle: float = 75.0
    """Between the requests of a peer with a valid token."""
    head_time: float = 20.0
    """From the first byte of a request to the end of its header."""
    window: float = 30.0
    """The period in which a body must arrive, and an answer be read, at `rate` or faster."""
    rate: float = 500.0
    linger: float = 5.0
    """How long the rest of a refused request is read and discarded, so that its sender receives the answer."""

    @property
    def tick(self) -> float:
        """The longest time between checks of the clock, and so the accuracy of the time limits."""
        return min(10.0, self.first_byte, self.idle, self.head_time, self.window, self.linger)


@dataclass(frozen=True, slots=True)
class ConnectionCapacity:
    """The number of connections that the server keeps open."""

    max_connections: int = MAX_CONNECTIONS
    per_address: int = MAX_PER_ADDRESS
    """Connections without a valid token from one address; a further one closes the oldest idle one."""

    @property
    def strangers(self) -> int:
        """Connections without a valid token that a server full of others keeps, so that the newest is never closed."""
        return self.max_connections // 8


def raise_file_limit(connections: int = MAX_CONNECTIONS) -> tuple[int, int]:
    """Raise this process's soft limit of open files for `connections` connections, up to the hard limit.

    Returns (possible number of connections, previous soft limit). Child processes get the previous limit.
    Raises InvalidInput if the hard limit is below the files that are reserved.
    """
    before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    least = MIN_CONNECTIONS + RESERVED_FILES
    if hard != resource.RLIM_INFINITY and hard < least:
        raise InvalidInput(
            f"a process may open {hard} files here, and the server reserves {least}",
            hint=f"raise the limit: `ulimit -n {least}`, or nofile in /etc/security/limits.conf",
        )
    needed = connections + RESERVED_FILES
    allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if before != resource.RLIM_INFINITY and before < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return min(connections, allowed - RESERVED_FILES), before
