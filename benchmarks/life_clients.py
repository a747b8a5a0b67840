"""A process of pilots that live, or of people who submit, at one server or several; as cheap as Python makes it.

Reads one JSON object from standard input: servers ([host, port] ...), pilots and people (see below), begin and end
(time.monotonic). Writes one: answers, done, empty, refused, latencies (seconds), cpu.

Each message of a pilot asks for a job, confirms the last offer, and ends the job before it. A person submits one job
after another. Each has a connection of its own, to one of the servers in turn.
"""

from __future__ import annotations

import json
import select
import sys
import time
from typing import Any

import msgspec

from benchmarks.clients import Connection


def posted(host: str, path: str, token: str, body: dict[str, Any]) -> bytes:
    text = msgspec.json.encode(body)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
    )
    return head.encode() + text


class LivingPilot:
    """One of `pilots`: token, node, and the number of its first take."""

    def __init__(self, host: str, told: dict[str, Any]) -> None:
        self._host, self._told, self._number = host, told, told["number"]
        self._offered: list[dict[str, int]] = []
        self._held: list[dict[str, int]] = []

    def request(self) -> bytes:
        body = {
            "incarnation": 1,
            "take": {"number": self._number, "count": 1, "node": self._told["node"]},
            "confirms": self._offered,
            "finishes": [{**one, "exit_code": 0, "wall": 1.0} for one in self._held],
        }
        return posted(self._host, "/v1/pilot/exchange", self._told["token"], body)

    def heard(self, answer: dict[str, Any]) -> tuple[int, bool]:
        """Jobs that ended, and whether there was nothing to do."""
        self._held = self._offered
        self._offered = [{"job": one["job"], "epoch": one["epoch"]} for one in answer.get("offers", ())]
        self._number = max(self._number, answer.get("take_number", 0)) + 1
        ended = sum(one["verdict"] == "accepted" for one in answer.get("finishes", ()))
        return ended, not self._offered


class Submitter:
    """One of `people`: token, and the descriptions of the jobs that are submitted in turn."""

    def __init__(self, host: str, told: dict[str, Any]) -> None:
        self._host, self._told, self._sent = host, told, 0

    def request(self) -> bytes:
        descriptions = self._told["descriptions"]
        body = {
            "description": descriptions[self._sent % len(descriptions)],
            "key": f"{self._told['key']} {self._sent}",
        }
        return posted(self._host, "/v1/submissions", self._told["token"], body)

    def heard(self, answer: dict[str, Any]) -> tuple[int, bool]:
        self._sent += 1
        return answer.get("count", 0), False


class Counted:
    """What came between `begin` and `end`."""

    def __init__(self, begin: float, end: float) -> None:
        self._begin, self._end = begin, end
        self.answers = self.done = self.empty = self.refused = 0
        self.latencies: list[float] = []

    def add(self, connection: Connection, whole: bytes) -> None:
        caller = connection.pilot
        assert isinstance(caller, LivingPilot | Submitter)
        accepted = whole[9:12] in (b"200", b"201")
        done, empty = (
            caller.heard(msgspec.json.decode(whole.partition(b"\r\n\r\n")[2])) if accepted else (0, False)
        )
        now = time.monotonic()
        if self._begin <= now < self._end:
            self.answers += 1
            self.done += done
            self.empty += empty
            self.refused += not accepted
            self.latencies.append(now - connection.begun)


def main() -> None:
    told = json.loads(sys.stdin.read())
    begin, end, servers = told["begin"], told["end"], told["servers"]
    callers = [(LivingPilot, one) for one in told["pilots"]] + [(Submitter, one) for one in told["people"]]
    poll, connections = select.epoll(), dict[int, Connection]()
    for place, (kind, one) in enumerate(callers):
        host, port = servers[place % len(servers)]
        connection = Connection(host, port, None)
        connections[connection.socket.fileno()] = connection
        poll.register(connection.socket, select.EPOLLIN)
        connection.ask(kind(host, one))
    counted, cpu = Counted(begin, end), None
    while (now := time.monotonic()) < end:
        if cpu is None and now >= begin:
            cpu = time.process_time()
        for handle, _ in poll.poll(0.1):
            connection = connections[handle]
            whole = connection.receive()
            if whole is not None and connection.pilot is not None:
                counted.add(connection, whole)
                connection.ask(connection.pilot)
    found = {name: getattr(counted, name) for name in ("answers", "done", "empty", "refused", "latencies")}
    print(json.dumps({**found, "cpu": time.process_time() - (cpu or 0.0)}))


if __name__ == "__main__":
    main()
