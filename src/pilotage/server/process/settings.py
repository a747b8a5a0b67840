"""The settings of a server process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pilotage.server.disk_space import MIN_FREE
from pilotage.server.http.connection_limits import MAX_CONNECTIONS, MAX_PER_ADDRESS
from pilotage.server.process.home import Home
from pilotage.wire.pilot import Node


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one server, from the command line."""

    home: Home
    host: str
    port: int
    """0: the port of the last start, or any free port."""
    pilot_server: str
    """The server's address for pilots; empty: the server's own."""
    owner: str
    node: Node
    """The node of a pilot on this machine."""
    announce: Callable[[str], None]
    """Called with the server's address when the server is ready."""
    policy: str = ""
    """The text of a policy that replaces the stored one; empty: the stored one stays."""
    sandboxes: Path | None = None
    """The folder of sandboxes; None: the one in the home."""
    least_free: int = MIN_FREE
    """MB. New work is refused when a disk has less free space."""
    connections: int = MAX_CONNECTIONS
    """Maximum open connections, as far as the limit of open files allows."""
    connections_per_address: int = MAX_PER_ADDRESS
    """Maximum open connections from one address without a valid token."""
    proxies: str = ""
    """Addresses and networks of reverse proxies, whose `X-Forwarded-For` counts."""
    collector: str = ""
    """The address of the collector that gets spans; empty: none are made."""
    record: Path | None = None
    """The file for the record of this run; None: it is not recorded."""
    record_limit: int = 1_000_000_000
    """Bytes at which the recording ends."""
