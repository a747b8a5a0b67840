"""Decides which connections stay open when there are too many. Idle connections never lock out new ones.

A connection is *trusted* once it has carried a request with a valid token. When an address has too many connections,
or the server is full, connections without trust are closed, the longest idle first. Trusted connections do not count
against their address, since many pilots may share one behind a NAT. A connection whose request is being answered is
never closed. In a server that is full of trusted connections, some without trust have room of their own: the one that
was just accepted is a person's, a probe's or a pilot's that has not yet sent its first request. A trusted one that
waits is closed in its place.
"""

from __future__ import annotations

import logging
from typing import Protocol

from pilotage.server.context import ConnectionCounts
from pilotage.server.http.connection_limits import ConnectionCapacity

log = logging.getLogger(__name__)


TOLD_EVERY = 1_000


class Peer(Protocol):
    """The part of a connection that admission uses."""

    address: str

    @property
    def is_idle(self) -> bool:
        """Whether all received requests are answered, and no part of a new one has arrived."""
        ...

    def evict(self) -> None:
        """Close the connection at once."""
        ...


class Admission:
    """All open connections of a server. Used by the event loop's thread only."""

    def __init__(self, capacity: ConnectionCapacity, counts: ConnectionCounts) -> None:
        self._capacity = capacity
        self.counts = counts
        self._open: dict[Peer, bool] = {}
        """All connections, the oldest first, with whether each is trusted."""
        self._idle: dict[Peer, None] = {}
        """Connections without trust that wait for a request or the rest of one, the longest idle first."""
        self._by_address: dict[str, dict[Peer, None]] = {}
        """The idle connections by address."""

    @property
    def total(self) -> int:
        return len(self._open)

    def join(self, peer: Peer) -> bool:
        """Admit a new connection, evicting an idle one if necessary; False if there is no room."""
        if len(self._open) >= self._capacity.max_connections and not self._evict_one():
            self.counts.refused += 1
            self._tell()
            return False
        self._open[peer] = False
        self.mark_idle(peer)
        neighbours = self._by_address[peer.address]
        if len(neighbours) > self._capacity.per_address:
            self._evict(next(iter(neighbours)))
        return True

    def _evict_one(self) -> bool:
        stranger = next(iter(self._idle), None)
        oldest = stranger if len(self._idle) > self._capacity.strangers else None
        oldest = oldest or next(
            (peer for peer, trusted in self._open.items() if trusted and peer.is_idle), stranger
        )
        if oldest is None:
            return False
        self._evict(oldest)
        self._tell()
        return True

    def _tell(self) -> None:
        """Log the first connection that is closed or refused for want of room, and later some of many."""
        if (self.counts.evicted + self.counts.refused) % TOLD_EVERY == 1:
            log.warning(
                "the server has all of its %d connections: %d idle ones were closed for others, %d were refused;"
                " raise --connections",
                *(self._capacity.max_connections, self.counts.evicted, self.counts.refused),
            )

    def _evict(self, peer: Peer) -> None:
        self.counts.evicted += 1
        self.leave(peer)
        peer.evict()

    def mark_trusted(self, peer: Peer) -> None:
        """Record that the connection has carried a valid token."""
        if peer in self._open:
            self.mark_busy(peer)
            self._open[peer] = True

    def mark_idle(self, peer: Peer) -> None:
        """Record that the connection waits for its peer. Call for connections without trust only."""
        if self._open.get(peer) is False:
            self._idle[peer] = None
            self._by_address.setdefault(peer.address, {})[peer] = None

    def mark_busy(self, peer: Peer) -> None:
        """Record that a request is being answered. Call for connections without trust only."""
        if peer in self._idle:
            del self._idle[peer]
            neighbours = self._by_address[peer.address]
            del neighbours[peer]
            if not neighbours:
                del self._by_address[peer.address]

    def leave(self, peer: Peer) -> None:
        """Remove a closed connection."""
        self.mark_busy(peer)
        self._open.pop(peer, None)
