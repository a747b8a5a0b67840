"""The socket on which a server listens."""

from __future__ import annotations

import socket

from pilotage.core.errors import Conflict

ACCEPTS_PER_TURN = 32
"""So many connections are accepted in one turn of the loop."""

BACKLOG = 1024


def listen(host: str, port: int, hint: str) -> socket.socket:
    """A listening socket at this address. Raises `Conflict`, with `hint` for what to do, if it cannot be had."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Inherited by its connections: head and body of an answer are two writes, and must not wait for each other.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise Conflict(f"port {port} of {host} cannot be used: {error.strerror}", hint=hint) from None
    listener.listen(BACKLOG)
    return listener


def accept_handles(listener: socket.socket) -> list[socket.socket]:
    """The socket as often as connections are to be accepted in one turn of the loop.

    libuv accepts one from each handle. The pilots of a server that starts again, or was held up, come all at once: one
    in each turn would be answered after some hundred turns, each of them as long as a group of requests takes.
    """
    return [listener, *(listener.dup() for _ in range(1, ACCEPTS_PER_TURN))]
