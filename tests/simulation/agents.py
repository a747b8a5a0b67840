"""The agents of a history: the real loop of the agent, in virtual time, on a network that fails."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from email.message import Message
from functools import partial
from random import Random
from typing import Any

import msgspec

from pilotage.agent.calls import AgentCalls
from pilotage.agent.loop import AgentLoop
from pilotage.client.answers import decode, error_of
from pilotage.client.connections import HttpAnswer
from pilotage.core.errors import Conflict, Overloaded, PilotageError, Unreachable
from pilotage.server.errors import error_answer
from pilotage.twin.chance import Streams
from pilotage.twin.server import TwinServer, caller
from pilotage.wire.agents import JoinRequest, OfferedElement, SyncResponse
from tests.simulation.broken import need
from tests.simulation.endpoints import carry_out
from tests.simulation.faults import OFFER, Fault
from tests.simulation.lockstep import LockstepProgram
from tests.simulation.network import Answer, Link, Network
from tests.simulation.policy import AGENTS, OWNERS, TEAM
from tests.simulation.processes import Outside, SimulationLoop

Chance = Callable[[frozenset[bytes], float], Awaitable[object]] | None
ELEMENTS = frozenset({b"elements"})
PATIENCE = 60.0
"""Seconds that a starting agent waits for its server."""
AGAIN = 5.0


class _AgentLetter:
    """Implements `Letter`. Its content, and that of the answer, are the JSON of the wire."""

    is_report = True
    has_result = False

    def __init__(self, call: Any, request: object, parts: dict[str, int]) -> None:
        self._call, self._parts = call, parts
        self._body = msgspec.json.encode(request)

    def serve(self, server: TwinServer, loop: SimulationLoop, answer: Answer) -> None:
        loop.create_task(self._serve(server, answer))

    async def _serve(self, server: TwinServer, answer: Answer) -> None:
        context, owner = server.context, OWNERS[0]
        who = caller(owner.name, owner.group, context.pool.policy.properties(owner.name, owner.group))
        body = msgspec.json.decode(self._body, type=self._call.request)
        try:
            result = await carry_out(self._call, body, context, who, **self._parts)
        except Exception as error:
            answer(None, error)
        else:
            answer(msgspec.json.encode(result), None)

    def read(self, result: Any, error: BaseException | None) -> Any:
        if error is None:
            return decode(result, self._call.answer)
        content, status, _ = error_answer(error)
        return error_of(HttpAnswer(status, "", Message(), content))

    def failed(self, reason: str) -> Any:
        return Unreachable(reason)


class _Calls(AgentCalls):
    """The real calls, over a network of the simulation."""

    def __init__(self, agent: AgentProcess) -> None:
        self._agent = agent

    def call(self, call: Any, request: Any = None, /, *, timeout: float | None = None, **parts: Any) -> Any:
        answer = self._agent.ask(_AgentLetter(call, request, parts))
        if isinstance(answer, PilotageError):
            raise answer
        return answer


class _Stop:
    """The order to end; implements what the loop needs of `StopFlag`."""

    def __init__(self, agent: AgentProcess) -> None:
        self._agent, self.is_set = agent, False

    def wait(self, seconds: float) -> bool:
        self._agent.sleep(seconds)
        return self.is_set


class AgentBooks:
    """What agents were given."""

    def __init__(self) -> None:
        self.offers: dict[tuple[int, int], str] = {}
        """By element and epoch: the process that got it."""
        self.restores = 0
        """How often the store was restored."""

    def forget(self) -> None:
        """The store has gone back, and may give the same epochs again."""
        self.restores += 1
        self.offers.clear()

    def note(self, process: str, offers: list[OfferedElement]) -> None:
        for offer in offers:
            first = self.offers.setdefault((offer.id, offer.epoch), process)
            need(
                first == process, f"element {offer.id} epoch {offer.epoch} was given to {first} and {process}"
            )


class AgentProcess:
    """One process of an agent, from its start to its end."""

    def __init__(
        self,
        name: str,
        network: Network,
        books: AgentBooks,
        rng: Random,
        ended: Callable[[BaseException | None], None],
    ) -> None:
        self._loop, self._outside, self._books = network.loop, network.outside, books
        self._faults = network.faults
        self.chance: Chance = None
        self._name = f"{rng.getrandbits(64):016x}"
        self.link = Link(network, self.die)
        self.stop_flag = _Stop(self)
        self.frozen_until = 0.0
        self._waiting: Callable[[], None] | None = None
        who = JoinRequest(name, TEAM, self._name, host=name)
        loop = AgentLoop(
            _Calls(self),
            who,
            self.stop_flag,  # type: ignore[arg-type]
            monotonic=self._loop.time,
            rng=rng,
            first_patience=PATIENCE,
        )
        self._program = LockstepProgram(loop.run, ended)
        self._died: Callable[[float], None] = lambda downtime: None
        self._outside.call_soon(self._program.start)

    def at_death(self, call: Callable[[float], None]) -> None:
        """Call with the seconds until it is to start again."""
        self._died = call

    def ask(self, letter: _AgentLetter) -> Any:
        """Send a letter, and wait for the answer. For the thread of the agent."""
        restores = self._books.restores
        answer = self._program.wait_for(lambda: self.link.send(letter, self._go_on))
        if isinstance(answer, SyncResponse) and restores == self._books.restores:
            self._books.note(self._name, answer.elements)
            fault = self._faults.take(OFFER) if answer.elements else None
            if fault is not None:
                return self._lose_elements(fault, answer)
        return answer

    def _lose_elements(self, fault: Fault, answer: SyncResponse) -> SyncResponse:
        """Die, or forget them after a while and tell the server so at once. For the thread of the agent."""
        if fault.kind == "agent dies with elements":
            self._program.wait_for(partial(self._outside.call_soon, self.die, fault.seconds))
        loop = self._loop
        self._program.wait_for(
            lambda: loop.create_task(self._await_chance(fault.seconds), context=loop.outside)
        )
        return dataclasses.replace(answer, elements=[], period=0.0)

    async def _await_chance(self, seconds: float) -> None:
        assert self.chance is not None
        self.turn_from(await self.chance(ELEMENTS, seconds))
        self._go_on()

    def turn_from(self, session: object) -> None:
        """Turn to another server than that with this session."""
        server = self.link.host.server
        if session is not None and server is not None and server.connection is session:
            self.link.failed(self.link.host)

    def sleep(self, seconds: float) -> None:
        """Wait, until it is told to stop at most. For the thread of the agent."""

        def begin() -> None:
            timer = self._outside.call_later(max(0.0, seconds), self._go_on)

            def wake() -> None:
                timer.cancel()
                self._go_on()

            self._waiting = wake

        self._program.wait_for(begin)

    def _go_on(self, given: Any = None) -> None:
        self._waiting = None
        frozen = self.frozen_until - self._loop.time()
        if frozen > 0:
            self._outside.call_later(frozen, self._program.go_on, given)
        else:
            self._program.go_on(given)

    def stop(self) -> None:
        """Tell it to end in good order."""
        self.stop_flag.is_set = True
        if self._waiting is not None:
            self._waiting()

    def die(self, downtime: float = AGAIN) -> None:
        self._program.kill()
        self._died(downtime)


class Agents:
    """The machines of the agents: each starts its agent again when that has ended."""

    def __init__(self, network: Network, streams: Streams) -> None:
        self._network, self._streams = network, streams
        self._outside: Outside = network.outside
        self.books = AgentBooks()
        self.starts = 0
        self.running: dict[str, AgentProcess | None] = dict.fromkeys(AGENTS)
        self.failures: list[BaseException] = []
        self._over = False
        self.chance: Chance = None
        """When an agent that has died starts again: at an instant that matters, or after some seconds."""

    def start_all(self) -> None:
        for name in self.running:
            self._start(name)

    def _start(self, name: str, beside: object = None) -> None:
        """`beside`: a session of a server; it turns to another one."""
        if self._over or self.running[name] is not None:
            return
        self.starts += 1
        rng = self._streams.stream(f"agent {self.starts}")
        self.running[name] = process = AgentProcess(
            name, self._network, self.books, rng, lambda error: self._ended(name, AGAIN, error)
        )
        process.chance = self.chance
        process.turn_from(beside)
        process.at_death(lambda downtime: self._ended(name, downtime, None))

    def _ended(self, name: str, downtime: float, error: BaseException | None) -> None:
        self.running[name] = None
        # A late message of an earlier process may end the present one (Conflict).
        if error is not None and not isinstance(error, Unreachable | Overloaded | Conflict):
            self.failures.append(error)
        if self.chance is None:
            self._outside.call_later(downtime, self._start, name)
        else:
            loop = self._network.loop
            loop.create_task(self._start_at_chance(self.chance, name, downtime), context=loop.outside)

    async def _start_at_chance(self, chance: Chance, name: str, seconds: float) -> None:
        assert chance is not None
        self._start(name, await chance(ELEMENTS, seconds))

    def happen(self, fault: Fault) -> None:
        """Let a fault of an agent happen."""
        live = [process for process in self.running.values() if process is not None]
        if not live:
            return
        process = live[int(fault.pick * len(live))]
        if fault.kind == "agent dies":
            process.die(fault.seconds)
        elif fault.kind == "agent stops":
            process.stop()
        elif fault.kind == "agent freezes":
            process.frozen_until = self._network.loop.time() + fault.seconds
        else:
            process.link.cut_until = self._network.loop.time() + fault.seconds

    def calm(self) -> None:
        """Faults cease."""
        for process in self.running.values():
            if process is not None:
                process.link.cut_until = 0.0

    def close(self) -> None:
        self._over = True
        for process in self.running.values():
            if process is not None:
                process.die()
