"""The network to the server: it loses, doubles, delays and reorders messages, and is cut."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from pilotage.twin.network import failure_of, serve
from pilotage.twin.pilots import CallFailed, Reply
from pilotage.twin.server import TwinServer
from pilotage.wire.pilot import EnrolResponse, ExchangeRequest, ExchangeResponse
from pilotage.wire.pilot_calls import ENROL, EXCHANGE
from tests.simulation.faults import ARRIVAL, MESSAGE, RESULT, Fault, FaultQueue
from tests.simulation.processes import Outside, Process, SimulationLoop

LATENCY = 0.05
TIMEOUT = 30.0
"""Seconds after which a pilot gives a message up."""

_ANSWERS: dict[str, msgspec.json.Decoder[Any]] = {
    ENROL.path: msgspec.json.Decoder(EnrolResponse),
    EXCHANGE.path: msgspec.json.Decoder(ExchangeResponse),
}
_REQUEST = msgspec.json.Decoder(ExchangeRequest)
_REPORTS = b'"finishes":[{', b'"confirms":[{', b'"take":{'
Answer = Callable[[Any, BaseException | None], None]
"""Called by a server with the answer, or with an error."""
_encode = msgspec.json.Encoder().encode


class Host(Protocol):
    """The machine of a server."""

    process: Process | None
    """None: the server is down."""
    server: TwinServer | None
    report_waits: bool
    cut_until: float
    """It reaches nobody until then."""

    def die(self, downtime: float) -> None: ...


class Network:
    """All ways from pilots and agents to servers."""

    def __init__(self, hosts: Sequence[Host], loop: SimulationLoop, faults: FaultQueue) -> None:
        self.hosts, self.loop, self.faults = hosts, loop, faults
        self.outside = Outside(loop)
        self.messages = 0
        self.on_answer: Callable[[ExchangeRequest, ExchangeResponse], None] = lambda request, answer: None
        """Called when a server has just answered a pilot."""


class Letter(Protocol):
    """A message of a pilot or an agent."""

    is_report: bool
    """It may change what its sender has."""
    has_result: bool

    def serve(self, server: TwinServer, loop: SimulationLoop, answer: Answer) -> None:
        """Give it to a server, in the process of the server."""

    def read(self, result: Any, error: BaseException | None) -> Any:
        """The answer as its sender sees it."""

    def failed(self, reason: str) -> Any:
        """The same if there is no answer."""


class _PilotLetter:
    """Implements `Letter` with the bytes of the wire."""

    def __init__(self, network: Network, exchanges: deque[float], path: str, token: str, body: bytes) -> None:
        """`exchanges`: takes the instants of answered exchanges."""
        self._network, self._exchanges = network, exchanges
        self._path, self._token, self._body = path, token, body
        self.is_report = any(part in body for part in _REPORTS)
        self.has_result = _REPORTS[0] in body

    def serve(self, server: TwinServer, loop: SimulationLoop, answer: Answer) -> None:
        serve(server, loop, self._path, self._token, self._body, answer)

    def read(self, result: Any, error: BaseException | None) -> Any:
        if error is not None:
            return failure_of(error)
        answer = _ANSWERS[self._path].decode(result)
        if isinstance(answer, ExchangeResponse):
            self._exchanges.append(self._network.loop.time())
            self._network.on_answer(_REQUEST.decode(self._body), answer)
        return answer

    def failed(self, reason: str) -> Any:
        return CallFailed(reason)


class Link:
    """The way of one pilot or agent to the server. Implements `Network` for pilots."""

    def __init__(
        self, network: Network, kill: Callable[[], None], deliver: Callable[..., object] | None = None
    ) -> None:
        """`kill`: ends the process of the sender. `deliver`: calls its function in the sender; None: at once."""
        self._network, self._kill = network, kill
        self.deliver = deliver or (lambda reply, given: reply(given))
        self.cut_until = 0.0
        self.cut_from: Host | None = None
        """Only this server is cut off from it; None: all are."""
        self.host: Host = network.hosts[network.messages % len(network.hosts)]
        """The server that it asks. When that does not answer, it asks the next one."""
        self.heard: deque[float] = deque(maxlen=40)
        """When the server has answered its messages."""
        self.exchanges: deque[float] = deque(maxlen=40)
        """When it has answered exchanges of a pilot. A late enrolment is no sign of life for the pilot's jobs."""

    def is_cut(self, host: Host) -> bool:
        own = self.cut_until if self.cut_from in (None, host) else 0.0
        return self._network.loop.time() < max(own, host.cut_until)

    @property
    def is_alone(self) -> bool:
        """Whether it reaches no server."""
        return all(self.is_cut(host) for host in self._network.hosts)

    def failed(self, host: Host) -> None:
        """A server has not answered."""
        hosts = self._network.hosts
        if self.host is host:
            self.host = hosts[(hosts.index(host) + 1) % len(hosts)]

    def post(self, path: str, token: str, message: Any, reply: Reply) -> None:
        self.send(_PilotLetter(self._network, self.exchanges, path, token, _encode(message)), reply)

    def send(self, letter: Letter, reply: Reply) -> None:
        """Send a letter. `reply` is called once, with the answer or the failure."""
        network = self._network
        network.messages += 1
        call = _Call(self, network, letter, reply)
        fault = network.faults.take(RESULT) if letter.has_result else None
        fault = fault or network.faults.take(MESSAGE)
        call.send(fault)
        if fault is not None and fault.kind == "sender dies after sending":
            self._kill()


class _Call:
    """One message, and its answer or its failure."""

    def __init__(self, link: Link, network: Network, letter: Letter, reply: Reply) -> None:
        self._link, self._network, self._letter, self._reply = link, network, letter, reply
        self._host = link.host
        self._answered = False
        self._back = LATENCY
        self._timer = network.outside.call_later(TIMEOUT, self._give_up)

    def send(self, fault: Fault | None) -> None:
        kind, there = "" if fault is None else fault.kind, LATENCY
        outside = self._network.outside
        if fault is not None:
            if kind == "request lost":
                return
            if kind in ("request doubled", "result doubled"):
                outside.call_later(there + fault.seconds, self._arrive)
            elif kind in ("request delayed", "result delayed"):
                there += fault.seconds
            elif kind == "answer delayed":
                self._back += fault.seconds
            elif kind in ("answer lost", "answer to a result lost"):
                self._back = 2 * TIMEOUT
        outside.call_later(there, self._arrive)

    def _arrive(self) -> None:
        host, network = self._host, self._network
        if self._link.is_cut(host):
            return
        if host.process is None:
            self._fail("connection refused")
            return
        fault = network.faults.take(ARRIVAL)
        if fault is not None and fault.kind == "server dies at a message":
            host.die(fault.seconds)
            self._fail("connection reset")
            return
        process, server = host.process, host.server
        assert server is not None
        process.at_death(self._reset)

        def answer(result: Any, error: BaseException | None) -> None:
            process.forget(self._reset)
            if not process.alive:
                return
            if fault is not None:
                host.die(fault.seconds)
                self._fail("connection reset")
                return
            if error is None:
                self._link.heard.append(network.loop.time())
            self._answer(self._letter.read(result, error))

        host.report_waits = self._letter.is_report
        with process.entered():
            process.run(self._letter.serve, server, network.loop, answer)

    def _reset(self) -> None:
        self._fail("connection reset")

    def _fail(self, reason: str) -> None:
        self._link.failed(self._host)
        self._answer(self._letter.failed(reason))

    def _answer(self, given: Any) -> None:
        if not self._link.is_cut(self._host):
            self._network.outside.call_later(self._back, self._settle, given)

    def _settle(self, given: Any) -> None:
        if not self._answered and not self._link.is_cut(self._host):
            self._answered = True
            self._timer.cancel()
            self._link.deliver(self._reply, given)

    def _give_up(self) -> None:
        if not self._answered:
            self._answered = True
            self._link.failed(self._host)
            self._link.deliver(self._reply, self._letter.failed("timed out"))
