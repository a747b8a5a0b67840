"""The pilot as a pure machine: events in, actions out; no clock, no chance, no input or output of its own.

What always holds, whatever the order of the events:
- a payload is started only after the server accepted its confirm, while the lease is not over, and only if the
  processors (and memory, where known) of all that runs stay within the node;
- a try that is held leaves only by a verdict of the server, by `stop`, by being superseded, or, unreported, with
  the end of the pilot's own time;
- one exchange is under way at a time, and a take is sent again with its number until it is answered.
"""

from __future__ import annotations

import dataclasses
import math
import random
from typing import Callable, Dict, List, Optional, Tuple

from pilotage.wire.pilot import ExchangeRequest, ExchangeResponse, Payload

from .assignments import ACTIVE, OCCUPYING, WAITING, Assignment, Assignments, Stage
from .events import (
    Action,
    Answered,
    AttemptSuperseded,
    Event,
    Follow,
    Key,
    Kill,
    Leave,
    Note,
    PayloadEnded,
    ProcessesGone,
    Send,
    Signal,
    Start,
    Tick,
    Unanswered,
)
from .exchange_timing import ExchangeTiming
from .job_rate import JobRate
from .pilot_config import PilotConfig
from .take_request import next_take

LEFT = 0
SUPERSEDED = 3
SERVER_AWAY = 5
RESULTS_LOST = 6

COALESCE = 0.03
"""While payloads are very short, exchanges start at least so many seconds apart: each has its price on both sides."""
STUCK = 2.0
"""Jobs ahead that could not be started for so long are given back."""
FAREWELL = 5.0
"""A pilot that holds nothing tries for so long to tell the server that it leaves."""
GRACE = 25.0
"""After a signal the pilot is gone after so many seconds, come what may: batch systems kill after about 30."""


class Machine:
    """One mutator, `handle`; `next_at` says when a Tick is due at the latest."""

    def __init__(self, terms: PilotConfig, now: float, rng: random.Random) -> None:
        self.terms = terms
        self.holdings = Assignments()
        self.contact = ExchangeTiming(terms, now, rng)
        self.leaving = ""
        self._pace = JobRate()
        self._quitting = False
        self._superseded = False
        self._left = False
        self._farewell = False
        """The server has heard that this pilot leaves."""
        self._leave_by = math.inf
        self._busy_at = now
        self._followed: Tuple[int, ...] = ()
        self._hear: Dict[type, Callable[[Event, float, List[Action]], None]] = {
            Answered: self._answered,
            Unanswered: self._unanswered,
            AttemptSuperseded: self._was_superseded,
            ProcessesGone: self._processes_gone,
            PayloadEnded: self._payload_ended,
            Signal: self._signalled,
            Tick: lambda event, now, actions: None,
        }

    def handle(self, now: float, *events: Event) -> List[Action]:
        """Take in the events, in order, then decide. Total: any event is good in any state."""
        actions: List[Action] = []
        if self._left:
            return actions
        if len(self.holdings):
            self._busy_at = now
        for event in events:
            self._hear[type(event)](event, now, actions)
        self._heed_clocks(now, actions)
        if self._quitting:
            self._give_up_all(now, actions)
        self._start_ready(now, actions)
        if len(self.holdings):
            self._busy_at = now
        self._send(now, actions)
        self._leave(now, actions)
        return actions

    def next_at(self, now: float) -> float:
        """The instant at which a Tick is due though nothing else happens."""
        contact, terms = self.contact, self.terms
        instants = [terms.end - terms.margin, terms.end - terms.least, self._leave_by]
        if not contact.flying:
            instants += [contact.retry_at, contact.due_at, contact.take_at, contact.sent_at + COALESCE]
        if self.holdings.count(*ACTIVE):
            instants.append(contact.lease_until)
        if len(self.holdings):
            waiting = self._longest_waiting()
            if waiting is not None:
                instants.append(waiting.since + STUCK)
        else:
            instants += [self._busy_at + terms.idle, (contact.away_since or now) + self._patience()]
        return min((instant for instant in instants if instant > now), default=now + terms.heartbeat)

    # What the events mean

    def _answered(self, event: Event, now: float, actions: List[Action]) -> None:
        assert isinstance(event, Answered)
        response = event.response
        request = self.contact.answered(response, now)
        if request is None:
            return
        self._farewell = bool(request.leaving)
        self._take_verdicts(response, now, actions)
        for offer in response.offers:
            if (offer.job, offer.epoch) not in self.holdings:
                self.holdings.add(Assignment(offer, now))
        followed = tuple(sorted(response.follow))
        if followed != self._followed:
            self._followed = followed
            actions.append(Follow(followed))
        if response.leave == "cancel":
            self._quit("told to leave", now + GRACE)
        elif response.leave and not self.leaving:
            self.leaving = "told to leave"

    def _take_verdicts(self, response: ExchangeResponse, now: float, actions: List[Action]) -> None:
        for verdict in response.finishes:
            self._settle((verdict.job, verdict.epoch), Stage.FINISHED)
        for verdict in response.releases:
            self._settle((verdict.job, verdict.epoch), Stage.RELEASED)
        for verdict in response.confirms:
            held = self.holdings.get((verdict.job, verdict.epoch))
            if held is None or held.stage is not Stage.CONFIRMING:
                continue
            if verdict.verdict == "accepted":
                self.holdings.move(held, Stage.READY, now)
            else:
                self.holdings.forget(held)
        for held in self.holdings.of(Stage.CONFIRMING):  # no verdict: ask again
            self.holdings.move(held, Stage.OFFERED, now)
        for verdict in response.stop:
            held = self.holdings.get((verdict.job, verdict.epoch))
            if held is not None:
                reason = verdict.reason or verdict.verdict
                self._drop(held, reason, now, actions, keep_streams=verdict.keep_streams)

    def _settle(self, key: Key, stage: Stage) -> None:
        held = self.holdings.get(key)
        if held is not None and held.stage is stage:
            self.holdings.forget(held)

    def _unanswered(self, event: Event, now: float, actions: List[Action]) -> None:
        assert isinstance(event, Unanswered)
        for held in self.holdings.of(Stage.CONFIRMING):
            self.holdings.move(held, Stage.OFFERED, now)
        if self.contact.unanswered(now, event.retry_after):
            actions.append(Note(f"no answer from the server: {event.why}"))

    def _was_superseded(self, event: Event, now: float, actions: List[Action]) -> None:
        assert isinstance(event, AttemptSuperseded)
        self.contact.ended()
        self._superseded = True
        self.leaving = "superseded"
        actions.append(Note(f"superseded: {event.why}"))
        for held in self.holdings.of(*Stage):
            self._drop(held, "superseded", now, actions)
        self._leave_by = min(self._leave_by, now + GRACE)

    def _processes_gone(self, event: Event, now: float, actions: List[Action]) -> None:
        assert isinstance(event, ProcessesGone)
        held = self.holdings.get(event.key)
        if held is not None and held.stage is Stage.RUNNING:
            self._pace.add(now - held.since)
            self.holdings.move(held, Stage.STORING, now)

    def _payload_ended(self, event: Event, now: float, actions: List[Action]) -> None:
        assert isinstance(event, PayloadEnded)
        finish = event.finish
        held = self.holdings.get((finish.job, finish.epoch))
        if held is None or held.stage not in ACTIVE:
            return
        if held.stage is Stage.RUNNING:
            self._pace.add(now - held.since)
        if held.stage is Stage.DROPPED:
            self.holdings.forget(held)
        elif held.stage is Stage.STOPPING and finish.failure == "killed" and held.reason != "cut-off":
            self.holdings.move(held, Stage.RELEASED, now)
        else:
            if held.stage is Stage.STOPPING and finish.failure == "killed":
                finish = dataclasses.replace(finish, failure="cut-off", message="the lease was over")
            held.finish = finish
            self.holdings.move(held, Stage.FINISHED, now)

    def _signalled(self, event: Event, now: float, actions: List[Action]) -> None:
        assert isinstance(event, Signal)
        actions.append(Note(f"signal {event.name}"))
        self._quit("signal", now + GRACE)

    # What the clocks mean

    def _heed_clocks(self, now: float, actions: List[Action]) -> None:
        if now >= self.contact.lease_until:
            for held in self.holdings.of(Stage.RUNNING):
                if held.offer.payload.on_cutoff == "stop":
                    self._stop(held, "cut-off", now, actions)
        if now >= self.terms.end - self.terms.margin and not self._quitting:
            self._quit("out of time", self.terms.end - self.terms.margin / 3)
        self._give_stuck_back(now)
        if not len(self.holdings) and not self.leaving and not self.contact.flying:
            if now >= self.terms.end - self.terms.least:
                self.leaving = "out of time"
            elif (
                now - self._busy_at >= self.terms.idle and self.contact.empty_takes and not self.contact.take
            ):
                self.leaving = "idle"

    def _quit(self, reason: str, by: float) -> None:
        """Give back or end everything, and leave."""
        self.leaving = self.leaving or reason
        self._quitting = True
        self._leave_by = min(self._leave_by, by)

    def _give_up_all(self, now: float, actions: List[Action]) -> None:
        for held in self.holdings.of(Stage.OFFERED, Stage.READY):
            self._release(held, self.leaving, now)
        for held in self.holdings.of(Stage.RUNNING, Stage.STORING):
            self._stop(held, self.leaving, now, actions)

    # Moves of one try

    def _release(self, held: Assignment, reason: str, now: float) -> None:
        held.reason = reason
        self.holdings.move(held, Stage.RELEASED, now)

    def _stop(self, held: Assignment, reason: str, now: float, actions: List[Action]) -> None:
        held.reason = reason
        self.holdings.move(held, Stage.STOPPING, now)
        actions.append(Kill(held.key, reason))

    def _drop(
        self, held: Assignment, reason: str, now: float, actions: List[Action], *, keep_streams: bool = False
    ) -> None:
        """Ours no more: end it if it runs, and report nothing of it."""
        if held.stage in ACTIVE:
            if held.stage is not Stage.DROPPED:
                self.holdings.move(held, Stage.DROPPED, now)
                actions.append(Kill(held.key, reason, keep_streams))
        else:
            self.holdings.forget(held)

    def _start_ready(self, now: float, actions: List[Action]) -> None:
        if not self.holdings.count(Stage.READY) or now >= self.contact.lease_until:
            return
        node = self.terms.node
        processors, memory = self.holdings.use(*OCCUPYING)
        late = now >= self.terms.end - self.terms.least
        if processors >= node.processors and not late:
            return
        for held in self.holdings.of(Stage.READY):
            payload = held.offer.payload
            if late or not _fits(payload, node.processors, node.memory, node.memory):
                self._release(held, "out of time" if late else "does not fit this node", now)
            elif _fits(payload, node.processors - processors, node.memory - memory, node.memory):
                processors += payload.processors
                memory += payload.memory
                self.holdings.move(held, Stage.RUNNING, now)
                actions.append(Start(held.offer))
            if processors >= node.processors and not late:
                return

    def _give_stuck_back(self, now: float) -> None:
        """What waits too long for room, because of a payload that turned out long, is somebody else's to run."""
        if self.contact.flying or not self.holdings.count(*OCCUPYING):
            return
        waiting = self._longest_waiting()
        if waiting is None or now - waiting.since <= STUCK:
            return
        stuck = [held for held in self.holdings.of(Stage.OFFERED, Stage.READY) if now - held.since > STUCK]
        node = self.terms.node
        processors, memory = self.holdings.use(*OCCUPYING)
        for held in stuck:
            if not _fits(held.offer.payload, node.processors - processors, node.memory - memory, node.memory):
                self._pace.forget()
                self._release(held, "could not be started soon", now)

    def _longest_waiting(self) -> Optional[Assignment]:
        """For room, or to be confirmed."""
        firsts = (self.holdings.first(Stage.OFFERED), self.holdings.first(Stage.READY))
        return min((held for held in firsts if held), key=lambda held: held.since, default=None)

    # The exchange

    def _send(self, now: float, actions: List[Action]) -> None:
        contact, holdings = self.contact, self.holdings
        if contact.flying or self._superseded or now < contact.retry_at or self._farewell_said():
            return
        busy = self._pace.short() and holdings.count(Stage.RUNNING, Stage.READY)
        if busy and now < contact.sent_at + COALESCE:
            return
        take = contact.take
        if take is None and not self.leaving and now < self.terms.end - self.terms.least:
            take = next_take(contact.take_number, holdings, self._pace, self.terms, now)
        farewell = self.leaving if self._may_go() else ""
        pending = holdings.count(Stage.FINISHED, Stage.RELEASED, Stage.OFFERED)
        if not (pending or farewell or now >= contact.due_at or (take and now >= contact.take_at)):
            return
        request = ExchangeRequest(
            incarnation=self.terms.incarnation,
            finishes=holdings.finishes(),
            releases=holdings.releases(),
            confirms=holdings.references(Stage.OFFERED),
            take=take,
            leaving=farewell,
        )
        for held in holdings.of(Stage.OFFERED):
            holdings.move(held, Stage.CONFIRMING, now)
        request.holding = holdings.references(*WAITING, Stage.RUNNING, Stage.STORING, Stage.STOPPING)
        contact.sent(request, now)
        actions.append(Send(request))

    def _may_go(self) -> bool:
        """Leaving, and nothing is left to be done but to report."""
        return bool(self.leaving) and not self.holdings.count(*WAITING, *ACTIVE) and not self.contact.take

    def _farewell_said(self) -> bool:
        return self._farewell and not len(self.holdings)

    def _leave(self, now: float, actions: List[Action]) -> None:
        unreported = self.holdings.count(Stage.FINISHED)
        if self._superseded:
            gone, code = not len(self.holdings), SUPERSEDED
        else:
            gone, code = bool(self.leaving) and self._farewell_said(), RESULTS_LOST if unreported else LEFT
        away = now - self.contact.away_since if self.contact.away_since is not None else -1.0
        if away >= self._patience() and not self.contact.flying and not len(self.holdings):
            gone, code = True, SERVER_AWAY
        if gone or now >= min(self._leave_by, self.terms.end - self.terms.margin / 3):
            self._left = True
            actions.append(Leave(self.leaving or "no server", code))

    def _patience(self) -> float:
        """How long a server that is away is waited for while nothing is held."""
        return min(FAREWELL, self.terms.patience) if self.leaving else self.terms.patience


def _fits(payload: Payload, processors: int, memory: int, known: int) -> bool:
    """`known`: the memory of the node; 0 if that is not known, and then nothing is refused for it."""
    return payload.processors <= processors and (not known or payload.memory <= memory)
