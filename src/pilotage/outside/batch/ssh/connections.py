"""The connections of one server to login nodes, and the relays that it has there."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from pathlib import Path

from pilotage.core.policy.reach import SshReach, parse_reach
from pilotage.outside.batch.ssh.connection import SshConnection
from pilotage.outside.batch.ssh.relay import RelayAddress, SshRelay

CONNECTIONS = "ssh"
"""The folder of the control sockets in the server's home."""

RelayName = tuple[SshReach, RelayAddress]


class SshConnections:
    """The connections by reach, and the relays by reach and address. CEs with equal values share them."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        """`environment`: that of the command ssh."""
        self._folder = folder
        self._environment = environment
        self._lock = threading.Lock()
        self._known: dict[SshReach, SshConnection] = {}
        self._relays: dict[RelayName, SshRelay] = {}

    def of(self, reach: SshReach) -> SshConnection:
        with self._lock:
            if reach not in self._known:
                self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._folder.chmod(0o700)
                self._known[reach] = SshConnection(reach, self._folder, self._environment)
            return self._known[reach]

    def relay(self, reach: str, relay: str) -> SshRelay:
        """The relay of a CE with these values of the policy, whether it runs or not."""
        name = parse_reach(reach), RelayAddress.of(relay)
        connection = self.of(name[0])
        with self._lock:
            if name not in self._relays:
                state = self._folder / f"{connection.socket}.port{name[1].port or ''}"
                self._relays[name] = SshRelay(connection, name[1], state)
            return self._relays[name]

    def close_relays(self, needed: Collection[tuple[str, str]]) -> None:
        """End the relays that no CE needs any more. `needed`: values of `reach` and `relay`."""
        kept = {(parse_reach(reach), RelayAddress.of(relay)) for reach, relay in needed}
        with self._lock:
            gone = [self._relays.pop(name) for name in list(self._relays) if name not in kept]
        for relay in gone:
            relay.close()

    def close(self) -> None:
        """End the relays and the sessions that wait. The connections stay open for the next server."""
        self.close_relays(())
        with self._lock:
            for connection in self._known.values():
                connection.close()
