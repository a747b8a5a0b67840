"""A small server in the test's own process: as much of the protocol as a pilot needs, and faults on demand."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

from tests.deadlines import PATIENCE
from tests.ports import free_port

T = TypeVar("T")
SRC = Path(__file__).parents[2] / "src"
SECRET = "a-secret-of-the-batch-script"
BEGUN = 4.0
"""Seconds in which a shell has printed its first line and set its traps, also on a loaded machine."""


class PilotServer:
    """Gives `jobs` to whoever asks. All attributes may be looked at under `changed`."""

    def __init__(self, **enrol: Any) -> None:
        self.changed = threading.Condition()
        self.queue: deque[dict[str, Any]] = deque()
        self.state: dict[int, str] = {}
        self.epochs: dict[int, int] = defaultdict(int)
        self.finishes: dict[int, dict[str, Any]] = {}
        self.releases: dict[int, str] = {}
        self.exchanges: list[dict[str, Any]] = []
        self.uploads: dict[tuple[int, int, str], bytes] = {}
        self.inputs: dict[str, bytes] = {}
        self.downloads: list[str] = []
        self.tails: dict[tuple[int, str], bytes] = defaultdict(bytes)
        self.tails_go_on = threading.Event()
        """Not set: a tail is not answered."""
        self.tails_go_on.set()
        self.follow: list[int] = []
        self.stop: set[int] = set()
        self.killed: set[int] = set()
        """Of `stop`: what they wrote is to be kept."""
        self.refused_uploads: dict[str, int] = {}
        """Status by the name of a file."""
        self.leave = ""
        self.left = ""
        self.lost_answers = 0
        self.refuse: tuple[int, str] | None = None
        self._takes: dict[int, list[dict[str, Any]]] = {}
        self.enrolments: list[dict[str, Any]] = []
        self.enrol = {
            "pilot": 7,
            "token": "a-token",
            "incarnation": 3,
            "site": "here",
            "ce": "local",
            "lease": 60.0,
            "heartbeat": 2.0,
            "idle": 0.5,
            "processors": 1,
            **enrol,
        }
        self._server: ThreadingHTTPServer | None = None
        self.port = free_port()
        self.start()

    # The jobs

    def add(self, executable: str, *arguments: str, **fields: Any) -> int:
        with self.changed:
            job = len(self.state) + 1
            self.state[job] = "waiting"
            self.queue.append(
                {"job": job, "payload": {"executable": executable, "arguments": list(arguments), **fields}}
            )
            return job

    def add_input(self, content: bytes) -> str:
        digest = hashlib.sha256(content).hexdigest()
        self.inputs[digest] = content
        return digest

    def wait_for(self, condition: Callable[[], object], seconds: float = PATIENCE) -> None:
        with self.changed:
            if not self.changed.wait_for(condition, seconds):
                raise AssertionError(
                    f"not so within {seconds} s; states {self.state}, finishes {self.finishes}"
                )

    def finish_of(self, job: int, seconds: float = PATIENCE) -> dict[str, Any]:
        self.wait_for(lambda: job in self.finishes, seconds)
        return self.finishes[job]

    # The protocol

    def exchange(self, request: dict[str, Any]) -> dict[str, Any]:
        with self.changed:
            self.exchanges.append(request)
            answer: dict[str, Any] = {"incarnation": 3, "lease": self.enrol["lease"], "heartbeat": 2.0}
            answer["finishes"] = [self._finish(message) for message in request["finishes"]]
            answer["releases"] = [self._release(message) for message in request["releases"]]
            answer["confirms"] = [self._confirm(message) for message in request["confirms"]]
            if request["take"] and not self.leave:
                answer["offers"] = self._take(request["take"])
                answer["take_number"] = request["take"]["number"] if answer["offers"] else 0
            answer["stop"] = [
                {**held, "verdict": "superseded", "keep_streams": held["job"] in self.killed}
                for held in request["holding"]
                if held["job"] in self.stop
            ]
            answer["follow"] = [job for job in self.follow if self.state[job] == "held"]
            answer["leave"] = self.leave
            self.left = request["leaving"] or self.left
            self.changed.notify_all()
            return answer

    def _current(self, message: dict[str, Any]) -> bool:
        return self.epochs[message["job"]] == message["epoch"] and message["job"] not in self.stop

    def _verdict(self, message: dict[str, Any], accepted: bool) -> dict[str, Any]:
        verdict = "accepted" if accepted else "superseded"
        return {"job": message["job"], "epoch": message["epoch"], "verdict": verdict}

    def _finish(self, message: dict[str, Any]) -> dict[str, Any]:
        ok = self._current(message)
        if ok:
            assert self.state[message["job"]] in ("held", "final")
            self.finishes[message["job"]] = message
            self.state[message["job"]] = "final"
        return self._verdict(message, ok)

    def _release(self, message: dict[str, Any]) -> dict[str, Any]:
        ok = self._current(message)
        if ok:
            self.releases[message["job"]] = message["reason"]
            self.state[message["job"]] = "released"
        return self._verdict(message, ok)

    def _confirm(self, message: dict[str, Any]) -> dict[str, Any]:
        ok = self._current(message) and self.state[message["job"]] in ("offered", "held")
        if ok:
            self.state[message["job"]] = "held"
        return self._verdict(message, ok)

    def _take(self, take: dict[str, Any]) -> list[dict[str, Any]]:
        if take["number"] in self._takes:
            return self._takes[take["number"]]
        offers: list[dict[str, Any]] = []
        free, ahead = take["node"]["processors"], take["ahead"]
        while self.queue and len(offers) < take["count"]:
            processors = self.queue[0]["payload"].get("processors", 1)
            if processors > free:
                if processors > take["node"]["processors"] or not ahead:
                    break
                ahead -= 1
            else:
                free -= processors
            offer = self.queue.popleft()
            self.epochs[offer["job"]] += 1
            self.state[offer["job"]] = "offered"
            offers.append({**offer, "epoch": self.epochs[offer["job"]]})
        if offers:
            self._takes = {take["number"]: offers}
        return offers

    # The network

    def start(self) -> None:
        owner = self

        class Handler(_Handler):
            server_of_jobs = owner

        server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        server.daemon_threads = True
        self._server = server
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()

    def away(self) -> None:
        """Stop listening; connections that are open are not answered any more."""
        if self._server is not None:
            server, self._server = self._server, None
            server.shutdown()
            server.server_close()

    @property
    def here(self) -> bool:
        return self._server is not None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server_of_jobs: PilotServer

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _answer(self, body: bytes, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _allowed(self, body: bytes) -> bool:
        owner = self.server_of_jobs
        if not owner.here:
            self.close_connection = True
            return False
        if owner.refuse is not None:
            status, code = owner.refuse
            self._answer(json.dumps({"code": code, "message": "no"}).encode(), status)
            return False
        if self.path != "/v1/pilot/enrol" and self.headers["Authorization"] != "Bearer a-token":
            self._answer(b"{}", 401)
            return False
        return True

    def do_POST(self) -> None:
        owner = self.server_of_jobs
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if not self._allowed(body):
            return
        if self.path == "/v1/pilot/enrol":
            owner.enrolments.append(json.loads(body))
            ok = owner.enrolments[-1]["secret"] == SECRET
            self._answer(json.dumps(owner.enrol if ok else {"code": "no"}).encode(), 200 if ok else 403)
        elif self.path == "/v1/pilot/exchange":
            answer = json.dumps(owner.exchange(json.loads(body))).encode()
            if owner.lost_answers:
                owner.lost_answers -= 1
                self.close_connection = True
                return
            self._answer(answer)
        elif match := re.fullmatch(r"/v1/pilot/jobs/(\d+)/tail", urlsplit(self.path).path):
            query = parse_qs(urlsplit(self.path).query)
            owner.tails_go_on.wait()
            with owner.changed:
                key = (int(match[1]), query["stream"][0])
                assert int(query["offset"][0]) == len(owner.tails[key])
                owner.tails[key] += body
                owner.changed.notify_all()
            self._answer(b"{}")
        else:
            self._answer(b"{}", 404)

    def do_GET(self) -> None:
        owner = self.server_of_jobs
        if not self._allowed(b""):
            return
        digest = self.path.rpartition("/")[2]
        with owner.changed:
            owner.downloads.append(digest)
        self._answer(owner.inputs.get(digest, b"{}"), 200 if digest in owner.inputs else 404)

    def do_PUT(self) -> None:
        owner = self.server_of_jobs
        status = owner.refused_uploads.get(unquote(self.path.rpartition("/outputs/")[2]))
        if status == 413:  # said before the body is read, and the connection is closed under it
            self.rfile.read(10)
            self.close_connection = True
            return self._answer(b'{"code": "too-large", "message": "too large for us"}', 413)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if not self._allowed(body):
            return None
        if status is not None:
            return self._answer(b'{"code": "invalid", "message": "no such name here"}', status)
        match = re.fullmatch(r"/v1/pilot/jobs/(\d+)/(\d+)/(?:outputs|streams)/(.+)", self.path)
        assert match
        with owner.changed:
            owner.uploads[(int(match[1]), int(match[2]), unquote(match[3]))] = body
            owner.changed.notify_all()
        return self._answer(b"{}")


class PilotProcess:
    """A real pilot; `stop` ends it, if it did not end itself."""

    def __init__(
        self,
        server: PilotServer,
        workdir: Path,
        *options: str,
        python: str = sys.executable,
        program: Path | None = None,
        only_these_servers: bool = False,
    ) -> None:
        """`only_these_servers`: the servers in `options` alone; otherwise `server` comes after them."""
        self.workdir = workdir
        start = [str(program)] if program else ["-m", "pilotage.pilot"]
        environment = {**os.environ, "PYTHONPATH": str(SRC)}
        if program:
            del environment["PYTHONPATH"]
        self.log = (workdir.parent / "pilot.log").open("w+")
        own = [] if only_these_servers else ["--server", server.url]
        self.process = subprocess.Popen(
            [python, *start, *options, *own, "--index", "0", "--workdir", str(workdir)],
            stdin=subprocess.PIPE,
            stderr=self.log,
            env=environment,
        )
        assert self.process.stdin
        self.process.stdin.write(SECRET.encode() + b"\n")
        self.process.stdin.close()

    @property
    def pilot_proper(self) -> int:
        """The pid of the guardian's child."""
        return until(lambda: next(iter(children(self.process.pid)), 0))

    def wait(self, seconds: float = PATIENCE) -> int:
        return self.process.wait(seconds)

    def said(self) -> str:
        self.log.flush()
        return Path(self.log.name).read_text()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()


def children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(") ")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] not in "ZX":
            found.append(int(stat.parent.name))
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


def until(condition: Callable[[], T], seconds: float = PATIENCE) -> T:
    """Poll for what no event tells; AssertionError after the deadline."""
    end = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < end, "not so in time"
        time.sleep(0.01)
    return result
