"""The addresses of the servers of one pool. A pilot speaks to one of them, and leaves it when it does not answer."""

from __future__ import annotations

import threading
from typing import Iterable, Tuple

from pilotage.wire.server_address import check_address

from .log import log

MAX_SERVERS = 32


class Servers:
    """The addresses, and the one in use. Connections of several threads share it."""

    def __init__(self, addresses: Iterable[str], *, pinned: bool = False) -> None:
        """Raises ValueError for an address that no secret may be sent to. `pinned`: fingerprints are known."""
        self._addresses = tuple(dict.fromkeys(addresses))
        self._pinned = pinned
        for address in self._addresses:
            check_address(address, pinned=pinned)
        self._lock = threading.Lock()
        self.current = self._answered = self._addresses[0]

    def leave(self, address: str) -> None:
        """Use the next address, if `address` is still in use."""
        with self._lock:
            if address != self.current or len(self._addresses) == 1:
                return
            position = self._addresses.index(address) if address in self._addresses else -1
            self.current = self._addresses[(position + 1) % len(self._addresses)]

    def note_answer(self, address: str) -> None:
        """Log when another server answers than before."""
        if address != self._answered:
            self._answered = address
            log("another server answers", server=address)

    def learn(self, announced: str) -> None:
        """Take over the addresses that a server announces. The one in use stays in use.

        Addresses without TLS are not accepted from a server with TLS.
        """
        addresses = tuple(dict.fromkeys(text.strip() for text in announced.split(",")[:MAX_SERVERS]))
        if addresses == self._addresses:
            return
        scheme = self.current.partition("://")[0]
        try:
            for address in addresses:
                check_address(address, pinned=self._pinned)
                if address.partition("://")[0] != scheme:
                    return
        except ValueError:
            return
        with self._lock:
            self._addresses = addresses if self.current in addresses else (self.current, *addresses)

    @property
    def addresses(self) -> Tuple[str, ...]:
        return self._addresses
