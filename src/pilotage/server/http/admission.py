"""Which connections stay open when there are too many: a newcomer is never locked out by those who only wait.

A connection is *trusted* once a request with a valid token came over it. Others are closed, the longest idle first,
when their address has too many or when the server is full. Many pilots may share one address behind a NAT: trusted
connections do not count there, and a connection whose request is being answered is not closed.
"""

from __future__ import annotations

from typing import Protocol

from pilotage.server.http.connection_limits import Capacity


class Peer(Protocol):
    """A connection, as far as admission is concerned."""

    address: str

    @property
    def waits(self) -> bool:
        """Whether nothing of a request has come that is not answered."""
        ...

    def evict(self) -> None:
        """End it at once."""
        ...


class Admission:
    """All open connections of a server. Of one thread, the event loop's."""

    def __init__(self, capacity: Capacity) -> None:
        self._capacity = capacity
        self._open: dict[Peer, bool] = {}
        """All, the oldest first, and whether it is trusted."""
        self._idle: dict[Peer, None] = {}
        """Those without trust that wait for a request or its rest; idle for the longest first."""
        self._by_address: dict[str, dict[Peer, None]] = {}
        """The same by address."""
        self.evicted = 0
        self.refused = 0

    @property
    def total(self) -> int:
        return len(self._open)

    def join(self, peer: Peer) -> bool:
        """Admit a new connection, in the place of an idle one where necessary; False if there is no place."""
        if len(self._open) >= self._capacity.most and not self._make_room():
            self.refused += 1
            return False
        self._open[peer] = False
        self.idle(peer)
        same = self._by_address[peer.address]
        if len(same) > self._capacity.per_address:
            self._evict(next(iter(same)))
        return True

    def _make_room(self) -> bool:
        oldest = next(iter(self._idle), None)
        if oldest is None:
            oldest = next((peer for peer in self._open if peer.waits), None)
        if oldest is None:
            return False
        self._evict(oldest)
        return True

    def _evict(self, peer: Peer) -> None:
        self.evicted += 1
        self.leave(peer)
        peer.evict()

    def trust(self, peer: Peer) -> None:
        """A valid token came over it."""
        if peer in self._open:
            self.busy(peer)
            self._open[peer] = True

    def idle(self, peer: Peer) -> None:
        """It waits for its peer. To be told of connections without trust only."""
        if self._open.get(peer) is False:
            self._idle[peer] = None
            self._by_address.setdefault(peer.address, {})[peer] = None

    def busy(self, peer: Peer) -> None:
        """Its request is being answered. To be told of connections without trust only."""
        if peer in self._idle:
            del self._idle[peer]
            same = self._by_address[peer.address]
            del same[peer]
            if not same:
                del self._by_address[peer.address]

    def leave(self, peer: Peer) -> None:
        """It has ended."""
        self.busy(peer)
        self._open.pop(peer, None)
