"""Any order of events, by a server that answers as it likes."""

from __future__ import annotations

import math
import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pilotage.pilot.events import (
    DiskMeasured,
    Event,
    ExchangeAnswered,
    ExchangeFailed,
    Key,
    Kill,
    Leave,
    NodeUnfit,
    PayloadEnded,
    PilotSuperseded,
    ProcessesEnded,
    Send,
    Signal,
    Start,
    Tick,
)
from pilotage.pilot.machine import Machine
from pilotage.pilot.pilot_config import PilotConfig
from pilotage.wire.pilot import (
    ExchangeRequest,
    ExchangeResponse,
    Finish,
    Node,
    OfferedJob,
    Payload,
    Reference,
    Release,
    Take,
    Verdict,
)

PROCESSORS, MEMORY, DISK = 4, 4000, 9000


class AnyOrder(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        node = Node(hostname="n", processors=PROCESSORS, memory=MEMORY)
        self.config = PilotConfig(
            3, node, lease=100, heartbeat=10, idle=50, ahead=8, end=self.now + 5000, disk=DISK
        )
        self.free_disk = math.inf
        self.written: dict[Key, int] = {}
        self.machine = Machine(self.config, self.now, random.Random(1))
        self.sent: ExchangeRequest | None = None
        self.sent_at = self.now
        self.lease_until = self.now + 100
        self.next_job = 1
        self.offers: dict[Key, OfferedJob] = {}
        self.accepted: set[Key] = set()
        self.running: dict[Key, OfferedJob] = {}
        self.storing: set[Key] = set()
        self.owed: set[Key] = set()  # keys that the pilot must still answer for
        self.left: Leave | None = None
        self.superseded = False
        self.takes: list[Take] = []
        self.lost_take = False
        self.unfit = False
        self.hurried = False  # a signal or the server gives it only a grace

    def tell(self, *events: Event) -> None:
        for action in self.machine.handle(self.now, *events):
            assert self.left is None
            if isinstance(action, Send):
                self.on_send(action.request)
            elif isinstance(action, Start):
                self.on_start(action.offer)
            elif isinstance(action, Kill):
                assert action.key in self.running
            elif isinstance(action, Leave):
                self.left = action

    def on_send(self, request: ExchangeRequest) -> None:
        assert self.sent is None
        self.sent, self.sent_at = request, self.now
        if request.take:
            assert 0 < request.take.node.processors <= PROCESSORS
            assert 0 < request.take.node.disk <= DISK
            if self.takes and self.takes[-1].number == request.take.number and self.lost_take:
                assert request.take == self.takes[-1]
            self.takes.append(request.take)
        self.lost_take = False
        items: list[Finish | Release | Reference] = [*request.finishes, *request.releases, *request.holding]
        said = {(item.job, item.epoch) for item in items}
        assert self.owed <= said
        if request.leaving:
            assert not request.holding

    def on_start(self, offer: OfferedJob) -> None:
        key = (offer.job, offer.epoch)
        assert not self.unfit
        assert key in self.accepted
        assert self.now < self.lease_until
        self.accepted.discard(key)
        self.running[key] = offer
        working = [offer.payload for key, offer in self.running.items() if key not in self.storing]
        assert sum(payload.processors for payload in working) <= PROCESSORS
        assert sum(payload.memory for payload in working) <= MEMORY
        assert sum(payload.disk for payload in working) <= DISK
        if offer.payload.disk:
            held = [key for key in self.running if key not in self.storing]
            unwritten = (self.running[key].payload.disk - self.written.get(key, 0) for key in held)
            assert sum(max(0, rest) for rest in unwritten) <= self.free_disk

    @precondition(lambda self: self.sent is not None)
    @rule(data=st.data(), leave=st.sampled_from(["", "", "", "", "drain", "cancel"]))
    def answer(self, data: st.DataObject, leave: str) -> None:
        request, self.sent = self.sent, None
        assert request is not None
        verdicts = st.sampled_from(["accepted", "accepted", "accepted", "superseded", "unknown"])
        response = ExchangeResponse(3, lease=100, heartbeat=10, leave=leave)
        for said, answers in (
            (request.finishes, response.finishes),
            (request.releases, response.releases),
            (request.confirms, response.confirms),
        ):
            for item in said:
                answers.append(Verdict(item.job, item.epoch, data.draw(verdicts)))
                key = (item.job, item.epoch)
                if answers is not response.confirms or answers[-1].verdict != "accepted":
                    self.owed.discard(key)
                else:
                    self.accepted.add(key)
        for item in request.holding:
            if data.draw(st.integers(0, 9)) == 0:
                response.stop.append(Verdict(item.job, item.epoch, "superseded"))
                self.owed.discard((item.job, item.epoch))
                self.accepted.discard((item.job, item.epoch))
        if request.take:
            for _ in range(data.draw(st.integers(0, request.take.count))):
                payload = Payload(
                    "x",
                    processors=data.draw(st.integers(1, PROCESSORS + 1)),
                    memory=data.draw(st.sampled_from([0, 500, 3000, 5000])),
                    disk=data.draw(st.sampled_from([0, 0, 500, 5000, 20000])),
                    on_cutoff=data.draw(st.sampled_from(["stop", "continue"])),
                )
                response.offers.append(OfferedJob(self.next_job, 1, payload))
                self.owed.add((self.next_job, 1))
                self.next_job += 1
            response.take_number = request.take.number if response.offers else 0
        self.lease_until = self.sent_at + 100
        self.hurried |= leave == "cancel"
        self.tell(ExchangeAnswered(response))

    @precondition(lambda self: self.sent is not None)
    @rule(retry_after=st.sampled_from([0.0, 5.0]))
    def lose(self, retry_after: float) -> None:
        assert self.sent is not None
        self.lost_take = self.sent.take is not None
        self.sent = None
        self.tell(ExchangeFailed("lost", retry_after))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), failure=st.sampled_from(["", "killed", "limit-wall"]))
    def end_payload(self, data: st.DataObject, failure: str) -> None:
        key = data.draw(st.sampled_from(sorted(self.running)))
        del self.running[key]
        self.storing.discard(key)
        self.tell(PayloadEnded(Finish(*key, exit_code=0, failure=failure)))

    @precondition(lambda self: set(self.running) - self.storing)
    @rule(data=st.data())
    def processes_go(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(set(self.running) - self.storing)))
        self.storing.add(key)
        self.tell(ProcessesEnded(key))

    @rule(free=st.sampled_from([0.0, 600.0, 7000.0, 50000.0, math.inf]), data=st.data())
    def disk_is_measured(self, free: float, data: st.DataObject) -> None:
        self.free_disk = free
        now = {key: data.draw(st.sampled_from([0, 100, 4000])) for key in self.running}
        self.written |= now
        self.tell(DiskMeasured(free, now))

    @rule(seconds=st.sampled_from([0.0, 0.01, 0.5, 3.0, 30.0, 95.0, 4000.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.tell(Tick())
        assert self.machine.next_at(self.now) > self.now

    @rule()
    def strange_events(self) -> None:
        self.tell(PayloadEnded(Finish(99999, 1)), ProcessesEnded((99999, 1)))

    @precondition(lambda self: random.Random(self.now).random() < 0.2)
    @rule()
    def signal(self) -> None:
        self.hurried = True
        self.tell(Signal("SIGTERM"))

    @precondition(lambda self: random.Random(self.now).random() < 0.1)
    @rule()
    def node_becomes_unfit(self) -> None:
        self.unfit = True
        self.tell(NodeUnfit("cannot isolate payloads"))

    @precondition(lambda self: self.sent is not None and random.Random(self.now).random() < 0.2)
    @rule()
    def be_superseded(self) -> None:
        self.sent, self.superseded = None, True
        self.owed.clear()
        self.tell(PilotSuperseded("other nonce"))

    @invariant()
    def nothing_is_forgotten(self) -> None:
        if self.left is None:
            for key in self.owed:
                assert key in self.machine.assignments
        elif not self.superseded and self.owed:
            # Only its own time, or that of its grace, lets a pilot go with something unsaid.
            assert self.hurried or self.now >= self.config.end - self.config.margin


AnyOrder.TestCase.settings = settings(
    max_examples=3 * settings().max_examples, stateful_step_count=60, deadline=None
)
TestAnyOrder = AnyOrder.TestCase
