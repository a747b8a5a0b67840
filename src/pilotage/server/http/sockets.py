"""The listening socket of a server."""

from __future__ import annotations

import socket
from pathlib import Path

from pilotage.core.errors import Conflict, InvalidInput

ACCEPTS_PER_TURN = 32
"""Connections accepted per turn of the event loop."""

BACKLOG = 1024


def listen(host: str, port: int, hint: str) -> socket.socket:
    """Listen at this address. Raises `Conflict` with `hint` if the port cannot be used."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise InvalidInput(
            f"{host} is not an address of this machine: {error}", hint="--listen 0.0.0.0"
        ) from None
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Connections inherit this: header and body of an answer are two writes and must not wait for each other.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise Conflict(f"port {port} of {host} cannot be used: {error.strerror}", hint=hint) from None
    listener.listen(BACKLOG)
    return listener


def ephemeral_ports(file: Path = Path("/proc/sys/net/ipv4/ip_local_port_range")) -> range:
    """The ports from which the kernel takes one for a program that asks for any."""
    try:
        first, last = file.read_text().split()
    except (OSError, ValueError):
        first, last = "32768", "60999"
    return range(int(first), int(last) + 1)


def listen_again(host: str, port: int, hint: str) -> socket.socket:
    """Listen at the port of the last server, or at any port if it was ephemeral and is taken.

    The kernel may have given an ephemeral port to another program meanwhile. Nobody has chosen it.
    """
    try:
        return listen(host, port, hint)
    except Conflict:
        if port not in ephemeral_ports():
            raise
        return listen(host, 0, hint)


def accept_handles(listener: socket.socket) -> list[socket.socket]:
    """Duplicates of the socket, one for each connection that may be accepted per turn of the loop.

    libuv accepts one connection from each handle and turn. After a restart or a delay all pilots connect at once. With
    one handle the last pilot would wait hundreds of turns, each as long as a group of requests.
    """
    return [listener, *(listener.dup() for _ in range(1, ACCEPTS_PER_TURN))]
