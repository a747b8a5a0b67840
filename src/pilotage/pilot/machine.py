"""Decides everything the pilot does. Pure: events come in, actions go out, and time and chance are arguments.

These rules hold for every order of events:
- A payload starts only after the server has accepted its confirm, and only before the lease ends.
- The processors of all running payloads never exceed the node's; nor do their memory and disk, where they are known.
- An assignment ends by a verdict of the server, by `stop`, or when the pilot is superseded. Only at the end of the
  pilot's own time, or of its lease with `leaves_cut_off`, is an assignment dropped without a report.
- At most one exchange is in flight. A take is sent again with the same number until the server answers it.
"""

from __future__ import annotations

import dataclasses
import math
import random
from typing import Callable, Dict, List, Tuple

from pilotage.wire.pilot import ExchangeRequest, ExchangeResponse

from .assignments import ACTIVE, OCCUPYING, WAITING, Assignment, Assignments, Stage
from .events import (
    LEFT,
    RESULTS_LOST,
    SERVER_UNAVAILABLE,
    SUPERSEDED,
    UNFIT,
    Action,
    DiskMeasured,
    Event,
    ExchangeAnswered,
    ExchangeFailed,
    FolderDiffers,
    Follow,
    Kill,
    Leave,
    LogMessage,
    NodeUnfit,
    PayloadEnded,
    PilotSuperseded,
    ProcessesEnded,
    Send,
    Signal,
    Start,
    Tick,
)
from .exchange_timing import ExchangeTiming
from .job_rate import SHORT_PAYLOAD, JobRate
from .pilot_config import PilotConfig
from .room import may_ever_hold, offers_ahead, present_room
from .take_request import next_take

STUCK_AFTER = 2.0
"""Seconds after which jobs held ahead are released if they could not be started."""
LEAVE_PATIENCE = 5.0
"""Seconds for which a pilot without jobs tries to report to the server that it leaves."""
SIGNAL_GRACE = 25.0
"""Seconds from a signal to the exit of the pilot at the latest: batch systems kill after about 30."""


class Machine:
    """The state of the pilot. Only `handle` changes it; `next_at` returns when the next Tick is due."""

    def __init__(self, config: PilotConfig, now: float, rng: random.Random) -> None:
        self.config = config
        self.assignments = Assignments()
        self.timing = ExchangeTiming(config, now, rng)
        self.leaving = config.unfit
        self._job_rate = JobRate()
        self._stopping_all = False
        self._starts_no_more = False
        self._superseded = self._has_left = False
        self._leave_reported = False
        """The server has received the report that this pilot leaves."""
        self._leave_by = math.inf
        self._last_busy_at = now
        self._followed: Tuple[int, ...] = ()
        self._handlers: Dict[type, Callable[[Event, float, List[Action]], None]] = {
            ExchangeAnswered: self._on_exchange_answered,
            ExchangeFailed: self._on_exchange_failed,
            PilotSuperseded: self._on_superseded,
            ProcessesEnded: self._on_processes_ended,
            PayloadEnded: self._on_payload_ended,
            Signal: self._on_signal,
            FolderDiffers: self._on_folder_differs,
            NodeUnfit: self._on_node_unfit,
            DiskMeasured: self._on_disk_measured,
            Tick: lambda event, now, actions: None,
        }

    def handle(self, now: float, *events: Event) -> List[Action]:
        """Apply the events in order, then return the actions that follow. Every event is valid in every state."""
        actions: List[Action] = []
        if self._has_left:
            return actions
        if len(self.assignments):
            self._last_busy_at = now
        for event in events:
            self._handlers[type(event)](event, now, actions)
        self._apply_clock(now, actions)
        if self._stopping_all or self._starts_no_more:
            self._release_waiting(now)
        if self._stopping_all:
            self._stop_all(now, actions)
        self._start_ready(now, actions)
        if len(self.assignments):
            self._last_busy_at = now
        self._send_exchange(now, actions)
        self._leave(now, actions)
        return actions

    def next_at(self, now: float) -> float:
        """The instant at which a Tick is due if no other event happens before."""
        timing, config = self.timing, self.config
        instants = [config.end - config.margin, config.end - config.min_remaining, self._leave_by]
        if not timing.in_flight:
            instants += (timing.retry_at, timing.due_at, timing.take_at, self._coalesced_at())
            instants.append(self.assignments.first_untold() + SHORT_PAYLOAD)
        if self.assignments.count(*ACTIVE) or config.leaves_cut_off:
            instants.append(timing.lease_until)
        if len(self.assignments):
            instants.append(self.assignments.waiting_since() + STUCK_AFTER)
        else:
            instants += (self._last_busy_at + config.idle, (timing.away_since or now) + self._patience())
        return min((instant for instant in instants if instant > now), default=now + config.heartbeat)

    # Handlers of events

    def _on_exchange_answered(self, event: Event, now: float, actions: List[Action]) -> None:
        assert isinstance(event, ExchangeAnswered)
        response = event.response
        request = self.timing.on_answer(response, now)
        if request is None:
            return
        self._leave_reported = bool(request.leaving)
        self.assignments.note_told(request.starts)
        self._apply_verdicts(response, now, actions)
        for offer in response.offers:
            if (offer.job, offer.epoch) not in self.assignments:
                self.assignments.add(Assignment(offer, now))
        followed = tuple(sorted(response.follow))
        if followed != self._followed:
            self._followed = followed
            actions.append(Follow(followed))
        if response.leave == "cancel":
            self._begin_leaving("told to leave", now + SIGNAL_GRACE)
        elif response.leave and not self.leaving:
            self.leaving = "told to leave"

    def _apply_verdicts(self, response: ExchangeResponse, now: float, actions: List[Action]) -> None:
        for verdict in response.finishes:
            self.assignments.remove_reported((verdict.job, verdict.epoch), Stage.FINISHED)
        for verdict in response.releases:
            self.assignments.remove_reported((verdict.job, verdict.epoch), Stage.RELEASED)
        for verdict in response.confirms:
            assignment = self.assignments.get((verdict.job, verdict.epoch))
            if assignment is None or assignment.stage is not Stage.CONFIRMING:
                continue
            if verdict.verdict == "accepted":
                self.assignments.move(assignment, Stage.READY, now)
            else:
                self.assignments.remove(assignment)
        for assignment in self.assignments.in_stages(Stage.CONFIRMING):  # without a verdict, confirm again
            self.assignments.move(assignment, Stage.OFFERED, now)
        for verdict in response.stop:
            assignment = self.assignments.get((verdict.job, verdict.epoch))
            if assignment is not None:
                reason = verdict.reason or verdict.verdict
                self._drop(assignment, reason, now, actions, keep_streams=verdict.keep_streams)

    def _on_exchange_failed(self, event: Event, now: float, actions: List[Action]) -> None:
        assert isinstance(event, ExchangeFailed)
        for assignment in self.assignments.in_stages(Stage.CONFIRMING):
            self.assignments.move(assignment, Stage.OFFERED, now)
        if self.timing.on_failure(now, event.retry_after):
            actions.append(LogMessage(f"server unavailable: {event.why}"))

    def _on_superseded(self, event: Event, now: float, actions: List[Action]) -> None:
        assert isinstance(event, PilotSuperseded)
        self.timing.stop()
        self._superseded = True
        self.leaving = "superseded"
        actions.append(LogMessage(f"superseded by the server: {event.why}"))
        for assignment in self.assignments.in_stages(*Stage):
            self._drop(assignment, "superseded", now, actions)
        self._leave_by = min(self._leave_by, now + SIGNAL_GRACE)

    def _on_processes_ended(self, event: Event, now: float, actions: List[Action]) -> None:
        assert isinstance(event, ProcessesEnded)
        assignment = self.assignments.get(event.key)
        if assignment is not None and assignment.stage is Stage.RUNNING:
            self._job_rate.add(now - assignment.since)
            self.assignments.move(assignment, Stage.STORING, now)

    def _on_payload_ended(self, event: Event, now: float, actions: List[Action]) -> None:
        assert isinstance(event, PayloadEnded)
        finish = event.finish
        assignment = self.assignments.get((finish.job, finish.epoch))
        if assignment is None or assignment.stage not in ACTIVE:
            return
        if assignment.stage is Stage.RUNNING:
            self._job_rate.add(now - assignment.since)
        if assignment.stage is Stage.DROPPED:
            self.assignments.remove(assignment)
        elif (
            assignment.stage is Stage.STOPPING
            and finish.failure == "killed"
            and assignment.reason != "cut-off"
        ):
            self.assignments.move(assignment, Stage.RELEASED, now)
        else:
            if assignment.stage is Stage.STOPPING and finish.failure == "killed":
                finish = dataclasses.replace(finish, failure="cut-off", message="the lease was over")
            assignment.finish = finish
            self.assignments.move(assignment, Stage.FINISHED, now)

    def _on_signal(self, event: Event, now: float, actions: List[Action]) -> None:
        assert isinstance(event, Signal)
        actions.append(LogMessage(f"received {event.name}"))
        self._begin_leaving(f"received {event.name}", now + SIGNAL_GRACE)

    def _on_folder_differs(self, event: Event, now: float, actions: List[Action]) -> None:
        assert isinstance(event, FolderDiffers)
        self.assignments.give_up_folder(event.key, event.folder, event.reason, now)

    def _on_node_unfit(self, event: Event, now: float, actions: List[Action]) -> None:
        assert isinstance(event, NodeUnfit)
        # Jobs that wait for a processor would fail too. Running ones go on.
        self.leaving = self.leaving or event.reason
        self._starts_no_more = True

    def _on_disk_measured(self, event: Event, now: float, actions: List[Action]) -> None:
        assert isinstance(event, DiskMeasured)
        self.assignments.note_disk(event.free, event.written)

    # Deadlines

    def _apply_clock(self, now: float, actions: List[Action]) -> None:
        if now >= self.timing.lease_until:
            for assignment in self.assignments.in_stages(Stage.RUNNING):
                if assignment.offer.payload.on_cutoff == "stop":
                    self._stop(assignment, "cut-off", now, actions)
            if self.config.leaves_cut_off and self.timing.away_since is not None:
                self._begin_leaving("the lease is over and no server answers", now + SIGNAL_GRACE)
        if now >= self.config.end - self.config.margin and not self._stopping_all:
            self._begin_leaving("out of time", self.config.end - self.config.margin / 3)
        self._release_stuck(now)
        if not len(self.assignments) and not self.leaving and not self.timing.in_flight:
            if now >= self.config.end - self.config.min_remaining:
                self.leaving = "out of time"
            elif (
                now - self._last_busy_at >= self.config.idle
                and self.timing.empty_takes
                and not self.timing.take
            ):
                self.leaving = "idle"

    def _begin_leaving(self, reason: str, by: float) -> None:
        """Stop everything and leave before `by`."""
        self.leaving = self.leaving or reason
        self._stopping_all = True
        self._leave_by = min(self._leave_by, by)

    def _release_waiting(self, now: float) -> None:
        for assignment in self.assignments.in_stages(Stage.OFFERED, Stage.READY):
            self._release(assignment, self.leaving, now)

    def _stop_all(self, now: float, actions: List[Action]) -> None:
        for assignment in self.assignments.in_stages(Stage.RUNNING, Stage.STORING):
            self._stop(assignment, self.leaving, now, actions)

    # Changes of one assignment

    def _release(self, assignment: Assignment, reason: str, now: float) -> None:
        assignment.reason = reason
        self.assignments.move(assignment, Stage.RELEASED, now)

    def _stop(self, assignment: Assignment, reason: str, now: float, actions: List[Action]) -> None:
        assignment.reason = reason
        self.assignments.move(assignment, Stage.STOPPING, now)
        # Without a lease there is no server to send anything to.
        actions.append(Kill(assignment.key, reason, deliver_tail=reason != "cut-off"))

    def _drop(
        self,
        assignment: Assignment,
        reason: str,
        now: float,
        actions: List[Action],
        *,
        keep_streams: bool = False,
    ) -> None:
        """Give up an assignment that is no longer ours: kill its payload if it runs, and report nothing about it."""
        if assignment.stage in ACTIVE:
            if assignment.stage is not Stage.DROPPED:
                self.assignments.move(assignment, Stage.DROPPED, now)
                actions.append(Kill(assignment.key, reason, keep_streams))
        else:
            self.assignments.remove(assignment)

    def _start_ready(self, now: float, actions: List[Action]) -> None:
        if not self.assignments.count(Stage.READY) or now >= self.timing.lease_until:
            return
        room = present_room(self.config, self.assignments)
        late = now >= self.config.end - self.config.min_remaining
        if room.processors <= 0 and not late:
            return
        for assignment in self.assignments.in_stages(Stage.READY):
            payload = assignment.offer.payload
            if late or not may_ever_hold(self.config, self.assignments, payload):
                self._release(assignment, "out of time" if late else "does not fit this node", now)
            elif room.holds(payload):
                room = room.without(payload)
                self.assignments.move(assignment, Stage.RUNNING, now)
                actions.append(Start(assignment.offer))
            if room.processors <= 0 and not late:
                return

    def _release_stuck(self, now: float) -> None:
        """Release jobs that wait too long behind a payload that turned out to be long: other pilots can run them."""
        if self.timing.in_flight or not self.assignments.count(*OCCUPYING):
            return
        if now - self.assignments.waiting_since() <= STUCK_AFTER:
            return
        stuck = [
            assignment
            for assignment in self.assignments.in_stages(Stage.OFFERED, Stage.READY)
            if now - assignment.since > STUCK_AFTER
        ]
        room = present_room(self.config, self.assignments)
        for assignment in stuck:
            if not room.holds(assignment.offer.payload):
                self._job_rate.clear()
                self._release(assignment, "could not be started soon", now)

    # The exchange

    def _send_exchange(self, now: float, actions: List[Action]) -> None:
        timing, assignments = self.timing, self.assignments
        if timing.in_flight or self._superseded or now < timing.retry_at or self._is_leave_reported():
            return
        busy = self._job_rate.is_short() and assignments.count(Stage.RUNNING, Stage.READY)
        if busy and now < self._coalesced_at():
            return
        take = timing.take
        if take is None and not self.leaving and now < self.config.end - self.config.min_remaining:
            take = next_take(timing.take_number, assignments, self._job_rate, self.config, now)
        finishes = assignments.finishes()
        is_all = len(finishes) == sum(1 for ended in assignments.in_stages(Stage.FINISHED) if ended.finish)
        farewell = self.leaving if is_all and self._has_only_reports() else ""
        starts = assignments.starts(now, SHORT_PAYLOAD)
        pending = starts or assignments.count(Stage.FINISHED, Stage.RELEASED, Stage.OFFERED)
        if not (pending or farewell or now >= timing.due_at or (take and now >= timing.take_at)):
            return
        request = ExchangeRequest(
            incarnation=self.config.incarnation,
            finishes=finishes,
            releases=assignments.releases(),
            confirms=assignments.references(Stage.OFFERED),
            take=take,
            leaving=farewell,
            unfit=bool(farewell and self.config.unfit),
            starts=starts,
            ahead=offers_ahead(self.config, assignments),
        )
        for assignment in assignments.in_stages(Stage.OFFERED):
            assignments.move(assignment, Stage.CONFIRMING, now)
        request.holding = assignments.references(*WAITING, Stage.RUNNING, Stage.STORING, Stage.STOPPING)
        timing.on_sent(request, now)
        actions.append(Send(request))

    def _coalesced_at(self) -> float:
        """The earliest instant of the next exchange while payloads are very short."""
        waiting = self.assignments.count(*WAITING)
        return self.timing.sent_at + self._job_rate.coalesce_seconds(waiting, self.config.node.processors)

    def _has_only_reports(self) -> bool:
        """Whether the pilot is leaving and has no assignments except results and releases to report."""
        return bool(self.leaving) and not self.assignments.count(*WAITING, *ACTIVE) and not self.timing.take

    def _is_leave_reported(self) -> bool:
        return self._leave_reported and not len(self.assignments)

    def _leave(self, now: float, actions: List[Action]) -> None:
        unreported = self.assignments.count(Stage.FINISHED)
        if self._superseded:
            leaves, code = not len(self.assignments), SUPERSEDED
        else:
            leaves = bool(self.leaving) and self._is_leave_reported()
            code = RESULTS_LOST if unreported else UNFIT if self.config.unfit else LEFT
        unavailable_for = now - self.timing.away_since if self.timing.away_since is not None else -1.0
        if unavailable_for >= self._patience() and not self.timing.in_flight and not len(self.assignments):
            leaves, code = True, SERVER_UNAVAILABLE
        if leaves or now >= min(self._leave_by, self.config.end - self.config.margin / 3):
            self._has_left = True
            actions.append(Leave(self.leaving or "no server", code))

    def _patience(self) -> float:
        """Seconds to wait for an unavailable server while the pilot has no assignments."""
        return min(LEAVE_PATIENCE, self.config.patience) if self.leaving else self.config.patience
