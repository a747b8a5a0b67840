"""Pilots and agents made of paper: they send what they are told to, by any of the two servers."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from pilotage.core.pilots.handover import SubmissionPhase
from pilotage.core.splitting.mask import Mask
from pilotage.core.splitting.parser import parse_splitting
from pilotage.core.splitting.split import split
from pilotage.services.workqueue.splitting import files_page, held_element
from pilotage.store.tables import agents, element_masks, pilot_submissions, pilots
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.agents import (
    JOIN,
    POST_MASKS,
    SYNC,
    ElementReference,
    JoinRequest,
    OfferedElement,
    PostMasks,
    SyncRequest,
    SyncResponse,
)
from pilotage.wire.data import DataOrder, StoredFile
from pilotage.wire.pilot import (
    EnrolRequest,
    ExchangeRequest,
    ExchangeResponse,
    Finish,
    Node,
    OfferedJob,
    Reference,
    Take,
)
from pilotage.wire.pilot_calls import ENROL, EXCHANGE
from tests.interleavings.server import PairServer, Work, call, pilot_call
from tests.pilot_intent import pilot_intent

NODE = Node("n1", "el9", 64, 1_000_000, 1e6, wall_left=1e6)
_ID = "SELECT id FROM pilots WHERE stamp = ?"
SLOTS = {"A": 1000, "B": 1000}


@dataclass
class PaperPilot:
    """What a pilot knows."""

    stamp: str
    ce: str = "a"
    token: str = ""
    id: int = 0
    incarnation: int = 0
    offers: list[OfferedJob] = field(default_factory=list)

    def intend(self, server: PairServer) -> None:
        """The director stores its intent."""
        site = server.context.pool.policy.ces[self.ce].site
        now = server.context.clock()
        intent = pilot_intent(self.stamp, site=site, ce=self.ce, submitted=now)
        intent = intent._replace(stamp=f"{self.stamp}/0", processors=64, memory=1_000_000)

        def store(tx: Transaction) -> None:
            phase = SubmissionPhase.RELEASED
            pilot_submissions.insert(
                tx.connection, stamp=self.stamp, ce=self.ce, phase=phase, pilots=1, now=now
            )
            pilots.insert(tx.connection, intent)

        server.write(store)
        [self.id] = server.write(lambda tx: tx.connection.execute(_ID, (intent.stamp,)).fetchone())

    def enrolment(self, nonce: str = "first") -> Work:
        return pilot_call(ENROL, EnrolRequest(self.stamp, 0, nonce, hostname="n1"))

    def enrol(self, server: PairServer) -> None:
        answer = server.do(self.enrolment())
        self.token, self.id, self.incarnation = answer.token, answer.pilot, answer.incarnation

    def message(self, **parts: Any) -> Work:
        return pilot_call(EXCHANGE, ExchangeRequest(self.incarnation, **parts), self.token)

    def taking(self, count: int, number: int = 1) -> Work:
        return self.message(take=Take(number, count, NODE))

    def take(self, server: PairServer, count: int, number: int = 1) -> list[OfferedJob]:
        answer: ExchangeResponse = server.do(self.taking(count, number))
        self.offers += answer.offers
        return answer.offers


def references(*offers: OfferedJob) -> list[Reference]:
    return [Reference(offer.job, offer.epoch) for offer in offers]


def finished(offer: OfferedJob, exit_code: int = 0) -> Finish:
    """The end of a payload, with the files that it has written."""
    order = offer.payload.data
    files = [] if order is None or exit_code else _outputs(order, offer)
    return Finish(offer.job, offer.epoch, exit_code, files=files)


def _outputs(order: DataOrder, offer: OfferedJob) -> list[StoredFile]:
    """All its events, in one file for each pattern."""
    events = sum(file.event_count for file in order.files) if order.files else order.events
    place, folder = order.places[0], f"{order.element}/{offer.job}-{offer.epoch}"
    return [
        StoredFile(
            f"{folder}/{pattern}",
            pattern,
            place.name,
            f"{place.path}/{order.folder}",
            1000 * events,
            "adler32:00000001",
            events,
        )
        for pattern in order.outputs
    ]


@dataclass
class PaperAgent:
    """An agent that sends what it is told to."""

    name: str
    team: str = "home"
    nonce: str = "first"
    id: int = 0
    number: int = 1
    held: list[OfferedElement] = field(default_factory=list)

    def joining(self) -> Work:
        return call(JOIN, JoinRequest(self.name, self.team, self.nonce))

    def join(self, server: PairServer) -> None:
        self.id = server.do(self.joining()).agent

    def turn(self, want: int = 0, **more: Any) -> Work:
        """`more`: fields of the message."""
        holding = more.pop("holding", [ElementReference(one.id, one.epoch) for one in self.held])
        message = SyncRequest(self.nonce, self.number, want, SLOTS, holding, **more)
        return call(SYNC, message, self.id)

    def sync(self, server: PairServer, want: int = 0, **more: Any) -> SyncResponse:
        answer: SyncResponse = server.do(self.turn(want, **more))
        self.number += 1
        gone = set(answer.stop)
        self.held = [one for one in [*self.held, *answer.elements] if one.id not in gone]
        return answer

    def post(self, element: OfferedElement, masks: list[Mask], *, last: bool) -> Work:
        body = PostMasks(element.epoch, [mask.to_json() for mask in masks], last)
        return call(POST_MASKS, body, self.id, element.id)

    def masks_of(self, server: PairServer, element: OfferedElement) -> list[Mask]:
        """The masks that the element lacks; none if it is not the agent's any more."""

        def read(tx: Transaction) -> list[Mask]:
            row = agents.by_id(tx.connection, self.id)
            assert row is not None
            held = held_element(tx.connection, row, element.id, element.epoch)
            if held is None:
                return []
            files, after = files_page(tx.connection, held, 0, 1000)
            assert not after
            existing = [
                Mask.from_json(json.loads(mask)) for mask in element_masks.masks_of(tx.connection, element.id)
            ]
            algorithm = parse_splitting(element.splitting.algorithm, element.splitting.parameters)
            restriction = None if element.mask is None else Mask.from_json(element.mask)
            return list(split(files, algorithm, restriction, existing=existing))

        return server.write(read)

    def split_all(self, server: PairServer) -> None:
        for element in self.held:
            server.do(self.post(element, self.masks_of(server, element), last=True))
        self.held = []
