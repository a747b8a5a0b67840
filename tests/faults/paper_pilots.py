"""Pilots that run nothing: they ask, and say of jobs whatever they like, over HTTP, as fast as they are answered."""

from __future__ import annotations

import http.client
import json
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any, NamedTuple

from pilotage.wire.pilot import EnrolRequest, ExchangeRequest, Finish, Node, Reference, Release, Take
from tests.deadlines import PATIENCE

PROCESSORS = 32
MOST_HELD = 48
TWICE = 0.1
"""So often a message comes on two connections at once."""

MOVES = 0.03
"""So often a pilot goes from one server to another between two messages."""
PLURALS = {"finish": "finishes", "confirm": "confirms", "release": "releases"}

NODE = Node(hostname="paper", platform="el9", processors=PROCESSORS, memory=0, cpu_left=1e6, wall_left=1e6)


class Stopped(Exception):
    """The test has ended."""


class Said(NamedTuple):
    """What a pilot was told of one job: an offer, or the verdict on what it had said."""

    pilot: int
    what: str
    verdict: str
    job: int
    epoch: int
    reason: str = ""


@dataclass
class PaperPilot:
    """One thread's pilot; when it leaves, the next secret makes another one."""

    ports: Sequence[int]
    """Of the servers. It speaks to one of them, and to the next when that does not answer, or for no reason."""
    secrets: list[str]
    seed: int
    stop: threading.Event
    drain: threading.Event
    """Set: no more nonsense, work until there is nothing left."""
    met: Counter[str] = field(default_factory=Counter)
    heard: list[Said] = field(default_factory=list)
    """All that servers have answered."""
    error: BaseException | None = None

    def __post_init__(self) -> None:
        self.rng = Random(self.seed)
        self.lines: dict[tuple[int, int], http.client.HTTPConnection] = {}
        self.server = self.seed % len(self.ports)
        self.empty = 0
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        try:
            self.enrol()
            while not self.stop.is_set():
                if self.drain.is_set():
                    self.work()
                else:
                    self.act()
        except Stopped:
            pass
        except BaseException as error:
            self.error = error
        finally:
            for line in self.lines.values():
                line.close()

    def left(self) -> str:
        return f"{self.id} has {len(self.offers)} and {len(self.holding)}, {len(self.secrets)} to come"

    # --- the wire

    def post(self, path: str, body: dict[str, Any], twice: bool = False) -> tuple[int, dict[str, Any]]:
        """Send until it is answered, as a pilot does. If `twice`, on two connections, which may be to two servers."""
        text = json.dumps(body)
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.token}"}
        while True:
            if self.rng.random() < MOVES:
                self.move()
            other = self.rng.randrange(len(self.ports))
            lines = [self.line(self.server, 0), *([self.line(other, 1)] if twice else [])]
            said = []
            try:
                for line in lines:
                    line.request("POST", path, text, headers)
                for line in lines:
                    answer = line.getresponse()
                    said.append((answer.status, json.loads(answer.read())))
            except (OSError, http.client.HTTPException):
                self.met["unanswered"] += 1
                for line in lines:
                    line.close()
                if not said:
                    self.move()
                    self.pause(0.05 if len(self.ports) > 1 else 0.2)
                    continue
            if said[0][0] == 503:
                self.met["overloaded"] += 1
                self.pause(0.05)
                continue
            return said[0]

    def line(self, server: int, number: int) -> http.client.HTTPConnection:
        if (server, number) not in self.lines:
            port = self.ports[server]
            self.lines[server, number] = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        return self.lines[server, number]

    def move(self) -> None:
        """Speak to the next server."""
        self.met["moved"] += len(self.ports) > 1
        self.server = (self.server + 1) % len(self.ports)

    def pause(self, seconds: float) -> None:
        if self.stop.wait(seconds):
            raise Stopped

    def enrol(self) -> None:
        """As the next pilot; the last one has left or was given up."""
        self.secret = self.secrets.pop()
        self.number = 1
        self.come()

    def come(self) -> None:
        self.token = ""
        self.empty, self.leave = 0, ""
        self.offers: dict[int, int] = {}
        """Epochs of what it was offered and has not ended."""
        self.holding: dict[int, int] = {}
        self.past: list[tuple[int, int]] = []
        nonce = str(self.rng.getrandbits(64))
        request = EnrolRequest(self.secret, 0, nonce, hostname="paper")
        status, answer = self.post("/v1/pilot/enrol", asdict(request))
        assert status == 200, answer
        self.token, self.incarnation, self.id = answer["token"], answer["incarnation"], answer["pilot"]

    def say(self, **parts: Any) -> dict[str, Any] | None:
        twice = not self.drain.is_set() and self.rng.random() < TWICE
        self.met["twice"] += twice
        request = asdict(ExchangeRequest(self.incarnation, **parts))
        status, answer = self.post("/v1/pilot/exchange", request, twice)
        if status != 200:
            # Its token was superseded in a doubled enrolment, or it was given up while silent.
            self.met[f"refused {status}"] += 1
            assert status in (401, 403, 409), answer
            self.enrol()
            return None
        if answer.get("take_number"):
            self.number = max(self.number, answer["take_number"] + 1)
        for offer in answer.get("offers", ()):
            self.offers[offer["job"]] = offer["epoch"]
            self.heard.append(Said(self.id, "offer", "", offer["job"], offer["epoch"]))
        self.empty = 0 if answer.get("offers") else self.empty + 1
        self.leave = answer.get("leave", "")
        for what in ("finish", "confirm", "release"):
            for one in answer.get(PLURALS[what], ()):
                self.met[f"{what} {one['verdict']}"] += 1
                said = Said(self.id, what, one["verdict"], one["job"], one["epoch"], one.get("reason", ""))
                self.heard.append(said)
        for verdict in answer.get("stop", ()):
            self.met["stopped"] += 1
            self.offers.pop(verdict["job"], None)
            self.holding.pop(verdict["job"], None)
        return answer

    # --- what it does

    def act(self) -> None:
        """Several things in one message, as likely wrong as right."""
        if self.leave and len(self.secrets) > 1:
            self.met[f"told to {self.leave}"] += 1
            self.say(leaving="told to leave")
            self.enrol()
            return
        rng = self.rng
        parts: dict[str, Any] = {}
        have = len(self.offers) + len(self.holding)
        if have < MOST_HELD and rng.random() < 0.7:
            parts["take"] = Take(self.number, rng.choice([1, 16]), NODE, ahead=rng.choice([0, 0, 4]))
        confirms = self.some(self.offers, 0.6)
        ended = self.some(self.holding, 0.5) + self.some(self.offers, 0.05)
        released = self.some(self.holding, 0.03) + self.some(self.offers, 0.05)
        finishes = [self.finish(job, epoch) for job, epoch in ended]
        if self.past and rng.random() < 0.3:
            job, epoch = rng.choice(self.past)
            finishes.append(self.finish(job, epoch + rng.choice([-1, 0, 0, 1])))
        if finishes and rng.random() < 0.1:
            finishes.append(rng.choice(finishes))
        parts["confirms"] = [Reference(*one) for one in confirms]
        parts["finishes"] = finishes
        parts["releases"] = [Release(*one, "load") for one in released]
        for job, epoch in confirms:
            self.holding[job] = epoch
            self.offers.pop(job, None)
        for job, epoch in (*ended, *released):
            self.offers.pop(job, None)
            self.holding.pop(job, None)
            self.past = [*self.past[-50:], (job, epoch)]
        if rng.random() < 0.2:
            parts["holding"] = [Reference(*one) for one in (*self.offers.items(), *self.holding.items())]
        chance = rng.random()
        if chance < 0.01 and len(self.secrets) > 1:
            self.say(**parts, leaving="load")
            self.enrol()
            return
        if chance < 0.015:
            self.come()  # its batch job was started again
            self.number = 1
            return
        if chance < 0.02:
            self.stop.wait(2.5)  # silent for longer than its lease
        self.say(**parts)
        if self.empty > 3:
            self.stop.wait(0.02)

    def finish(self, job: int, epoch: int) -> Finish:
        how: dict[str, Any] = self.rng.choice(
            [{"exit_code": 0}] * 3 + [{"exit_code": 1}, {"failure": "node"}]
        )
        return Finish(job, epoch, stdout=self.rng.choice([None, "b3V0"]), **how)

    def some(self, of: dict[int, int], part: float) -> list[tuple[int, int]]:
        return [one for one in of.items() if self.rng.random() < part]

    def work(self) -> None:
        """All that it has, done and well."""
        held = [Reference(*one) for one in self.offers.items()]
        finishes = [Finish(*one, exit_code=0) for one in self.holding.items()]
        self.holding, self.offers = dict(self.offers), {}
        self.say(finishes=finishes, confirms=held, take=Take(self.number, 16, NODE))
        if self.empty > 20 and not self.offers and len(self.secrets) > 1:
            # It serves one owner only, who has nothing left.
            self.say(leaving="load")
            self.enrol()
        elif self.empty > 1:
            self.stop.wait(0.1)
