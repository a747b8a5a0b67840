"""A process of pilots that ask a server over HTTP and do nothing else; as cheap as Python makes it.

Reads one JSON object from standard input: host, port, pins (of the server's certificates; none: no TLS), pilots
([token, node] ...), connections, ask, begin and end (time.monotonic, which all processes of a machine share). Writes
one: matched, empty, refused, latencies (seconds), cpu
(seconds of this process in that time).

Each connection asks for one pilot after the other, as soon as the last one is answered. A pilot whose owner has nothing
for it is not asked for again.
"""

from __future__ import annotations

import json
import select
import socket
import ssl
import sys
import time
from collections import deque
from typing import Any, Protocol

from pilotage.wire.server_trust import ServerTrust

FIRST_NUMBER = 1_000_000
"""Numbers of takes have all one length, so that requests have."""


class Caller(Protocol):
    def request(self) -> bytes:
        """The next request, whole."""


class _Pilot:
    __slots__ = ("head", "number", "tail")

    def __init__(self, host: str, token: str, node: dict[str, Any], ask: int) -> None:
        begins = b'{"incarnation":1,"take":{"number":'
        ends = b',"count":%d,"node":%s}}' % (ask, json.dumps(node, separators=(",", ":")).encode())
        length = len(begins) + len(str(FIRST_NUMBER)) + len(ends)
        head = (
            f"POST /v1/pilot/exchange HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        )
        self.head, self.tail, self.number = head.encode() + begins, ends, FIRST_NUMBER

    def request(self) -> bytes:
        self.number += 1
        return b"%s%d%s" % (self.head, self.number, self.tail)


class Connection:
    __slots__ = ("begun", "parts", "pilot", "socket", "wanted")

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        self.socket = socket.create_connection((host, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket)
            # The server also sends records without data, such as session tickets.
            self.socket.setblocking(False)
        self.parts, self.wanted, self.begun = b"", 0, 0.0
        self.pilot: Caller | None = None

    def ask(self, pilot: Caller) -> None:
        self.pilot, self.parts, self.wanted = pilot, b"", 0
        self.begun = time.monotonic()
        self.socket.sendall(pilot.request())

    def receive(self) -> bytes | None:
        """The whole answer, once it is there."""
        try:
            data = self.socket.recv(262144)
            while isinstance(self.socket, ssl.SSLSocket) and self.socket.pending():
                data += self.socket.recv(262144)
        except ssl.SSLWantReadError:
            return None
        if not data:
            raise ConnectionError("the server has closed a connection")
        self.parts = self.parts + data if self.parts else data
        if not self.wanted:
            end = self.parts.find(b"\r\n\r\n")
            if end < 0:
                return None
            place = self.parts.lower().find(b"content-length:", 0, end)
            self.wanted = end + 4 + int(self.parts[place + 15 : self.parts.find(b"\r\n", place)])
        return self.parts if len(self.parts) >= self.wanted else None


def main() -> None:
    told = json.loads(sys.stdin.read())
    host, port, begin, end = told["host"], told["port"], told["begin"], told["end"]
    pilots: deque[Caller] = deque(_Pilot(host, token, node, told["ask"]) for token, node in told["pilots"])
    poll, connections = select.epoll(), dict[int, Connection]()
    tls = ServerTrust(told["pins"]).make_context() if told["pins"] else None
    for _ in range(told["connections"]):
        connection = Connection(host, port, tls)
        connections[connection.socket.fileno()] = connection
        poll.register(connection.socket, select.EPOLLIN)
    for connection in connections.values():
        connection.ask(pilots.popleft())
    matched = empty = refused = 0
    latencies: list[float] = []
    cpu = None
    while (now := time.monotonic()) < end:
        if cpu is None and now >= begin:
            cpu = time.process_time()
        for handle, _ in poll.poll(0.1):
            connection = connections[handle]
            answer = connection.receive()
            if answer is None or connection.pilot is None:
                continue
            offers = answer.count(b'"payload":')
            now = time.monotonic()
            if begin <= now < end:
                latencies.append(now - connection.begun)
                matched += offers
                empty += not offers
                refused += answer[9:12] != b"200"
            if offers or len(pilots) < 2 or answer[9:12] != b"200":
                pilots.append(connection.pilot)
            connection.ask(pilots.popleft())
    used = time.process_time() - (cpu or 0.0)
    print(
        json.dumps(
            {"matched": matched, "empty": empty, "refused": refused, "cpu": used, "latencies": latencies}
        )
    )


if __name__ == "__main__":
    main()
