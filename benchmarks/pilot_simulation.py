"""A pool in virtual time: logged jobs, the director's real decisions, the real match, drawn waits in batch systems."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from random import Random

import numpy as np

from benchmarks.workload_log import LoggedJob
from pilotage.core.ids import JobId, PilotId, QueueId
from pilotage.core.pilots.backoff import LONGEST, BackOff, LastSeen
from pilotage.core.pilots.wall_time import cpu_time_left, least
from pilotage.core.policy import Matching
from pilotage.core.policy.director import BATCH_POOL, Director
from pilotage.core.policy.model import PilotType
from pilotage.core.provisioning.demand import DemandQueue
from pilotage.core.provisioning.iteration import (
    PRIVATE,
    CeLoad,
    IterationFacts,
    QueueDecision,
    decide,
    room_for_pilots,
)
from pilotage.core.provisioning.matched import FreePilots, decide_matched
from pilotage.core.provisioning.submit_pools import PoolLoad
from pilotage.core.queues.fit import Offer, PrivateIdentity
from pilotage.core.queues.identity import QueueIdentity, cpu_bucket
from pilotage.core.queues.index import QueueIndex
from pilotage.core.queues.indexed_queue import Head, HeadsRequest, IndexedQueue
from pilotage.core.shares.priorities import Priorities
from pilotage.services.director.demand import CeFitting
from pilotage.services.matching.known_offers import as_private

MATCHED_PERIOD = 2.0
"""Seconds between two iterations with demand `matched`, as in the server."""
SHARE = 1000.0
SPREAD = 1.0
"""Of the logarithm of the waits in a batch system."""


@dataclass(frozen=True, slots=True)
class SimulatedCe:
    """A batch system and the policy's numbers for it."""

    name: str
    wait: float | None
    """Median seconds that a pilot waits in it; None: its pilots never start."""
    max_waiting: int
    max_running: int
    wall: float = 400_000.0
    idle: float = 120.0

    @property
    def offer(self) -> Offer:
        """Of a pilot that has just started; it isolates its payloads, so it may serve everybody."""
        return Offer(self.name, self.name, cpu_time_left(self.wall, 0.0, 1.0), isolated=True)


@dataclass(slots=True)
class Outcome:
    """The figures of a run."""

    submitted: int = 0
    cancelled: int = 0
    without_job: int = 0
    """Pilots that started and ended without having had a job."""
    payload: float = 0.0
    """Core-seconds."""
    idle: float = 0.0
    """Core-seconds of started pilots without a payload."""
    most_waiting: int = 0
    """Waiting pilots, at the worst instant."""
    waits: list[float] = field(default_factory=list)
    """Seconds of each job from its submission to its start."""
    never_started: int = 0
    """Jobs that still wait at the standstill."""
    stuck: int = 0
    """Pilots that still wait in a batch system at the end."""


@dataclass(slots=True, eq=False)
class _Pilot:
    id: PilotId
    ce: int
    queue: QueueId
    pilot_type: PilotType
    owner: str | None
    group: str | None
    submitted: float
    started: float | None = None
    had_job: bool = False
    ended: bool = False
    asked: int = 0
    """Requests for work: an idle end that was planned before the last one does not count."""

    @property
    def binding(self) -> tuple[int, PilotType, str | None, str | None]:
        return self.ce, self.pilot_type, self.owner, self.group


def simulate(
    jobs: Sequence[LoggedJob], ces: Sequence[SimulatedCe], settings: Director, rng: Random
) -> Outcome:
    """Run all jobs, and go on until the last pilot has ended or nothing happens any more."""
    # The index expects the jobs of a queue by ascending id.
    in_order = sorted(jobs, key=lambda job: job.submitted)
    return _Simulation(in_order, ces, settings, rng).run()


class _Simulation:
    def __init__(
        self, jobs: Sequence[LoggedJob], ces: Sequence[SimulatedCe], settings: Director, rng: Random
    ) -> None:
        self._jobs, self._ces, self._settings, self._rng = jobs, ces, settings, rng
        self._matching = Matching()
        self._offers = [ce.offer for ce in ces]
        self._now = self._happened = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._queues: dict[QueueIdentity, QueueId] = {}
        self._submitted: dict[QueueId, list[int]] = {}
        """Ids of all jobs that came to a queue, ascending."""
        self._waiting: dict[PilotId, _Pilot] = {}
        self._idle: dict[PilotId, _Pilot] = {}
        """The longest idle first."""
        self._running = [0] * len(ces)
        self._back_offs = [BackOff() for _ in ces]
        self._unneeded: dict[PilotId, float] = {}
        self._next_iteration = 0.0
        self._is_iteration_planned = False
        self._pilot_seconds = 0.0
        """Of started pilots that have ended."""
        self._outcome = Outcome()
        self._index = QueueIndex(
            lambda wanted: [self._heads(request) for request in wanted],
            rule=self._matching.rule,
            cpu_buckets=self._matching.cpu_buckets,
            memory_buckets=self._matching.memory_buckets,
            priorities=Priorities(dict.fromkeys({job.group for job in jobs}, SHARE), frozenset()),
            rng=rng,
        )

    def run(self) -> Outcome:
        for number, job in enumerate(self._jobs):
            self._at(job.submitted, lambda number=number: self._arrive(number))
        while self._events and not self._stands_still():
            self._now, _, act = heappop(self._events)
            act()
        self._outcome.idle = self._pilot_seconds - self._outcome.payload
        self._outcome.never_started = len(self._jobs) - len(self._outcome.waits)
        self._outcome.stuck = len(self._waiting)
        return self._outcome

    def _stands_still(self) -> bool:
        """Whether only iterations are left that have changed nothing for a long time."""
        only_iterations = self._is_iteration_planned and len(self._events) == 1
        return only_iterations and self._now - self._happened >= self._patience()

    def _patience(self) -> float:
        """Seconds after which the passing of time alone changes no decision any more."""
        settings = self._settings
        if settings.demand == "matched":
            return settings.cancel_after + LONGEST
        return settings.max_pilot_waiting_hours * 3600 + LONGEST + settings.period

    def _at(self, time: float, act: Callable[[], None]) -> None:
        self._number += 1
        heappush(self._events, (time, self._number, act))

    # --- jobs

    def _arrive(self, number: int) -> None:
        self._happened = self._now
        job = self._jobs[number]
        bucket = cpu_bucket(job.requested, self._matching.cpu_buckets)
        identity = QueueIdentity(job.owner, job.group, cpu_time=bucket)
        queue = self._queues.setdefault(identity, QueueId(len(self._queues) + 1))
        self._submitted.setdefault(queue, []).append(number + 1)
        self._index.add_queue(IndexedQueue(queue, identity, (job.owner, job.group)))
        self._index.add_jobs(queue, 1, JobId(number + 1), 1)
        for pilot in list(self._idle.values()):
            if self._take_job(pilot):
                break
        else:
            self._plan_iteration()

    def _heads(self, request: HeadsRequest) -> list[Head]:
        ids = self._submitted[request.queue]
        first = bisect_right(ids, request.after)
        return [(job,) for job in ids[first : first + request.limit]]

    def _take_job(self, pilot: _Pilot) -> bool:
        """Give a pilot the job that the match chooses; whether there is one."""
        assert pilot.started is not None
        ce, offer = self._ces[pilot.ce], self._offers[pilot.ce]
        left = cpu_time_left(ce.wall, self._now - pilot.started, 1.0)
        identities = (
            (PrivateIdentity(pilot.owner or "", pilot.group or ""),) if pilot.pilot_type == PRIVATE else ()
        )
        offer = replace(offer, cpu_time=left, pilot_type=pilot.pilot_type, identities=identities)
        proposal = self._index.propose(self._index.offer_class(offer), lambda _: True, self._rng)
        if proposal is None:
            return False
        self._idle.pop(pilot.id, None)
        pilot.asked += 1
        if not pilot.had_job:
            pilot.had_job = True
            self._look_back(pilot, in_vain=False)
        job = self._jobs[proposal.job - 1]
        # A job that runs longer than its bucket says is stopped there.
        run = min(job.run, proposal.entry.identity.cpu_time)
        self._outcome.waits.append(self._now - job.submitted)
        self._outcome.payload += run
        self._at(self._now + run, lambda: self._ask(pilot))
        return True

    # --- pilots

    def _submit(self, ce: int, pilot_type: PilotType, identity: QueueIdentity, queue: QueueId) -> None:
        self._outcome.submitted += 1
        is_private = pilot_type == PRIVATE
        pilot = _Pilot(
            PilotId(self._outcome.submitted),
            ce,
            queue,
            pilot_type,
            identity.owner if is_private else None,
            identity.group if is_private else None,
            self._now,
        )
        self._waiting[pilot.id] = pilot
        self._back_offs[ce].started_for[pilot.id] = queue
        wait = self._ces[ce].wait
        if wait is not None:
            drawn = self._rng.lognormvariate(math.log(wait), SPREAD)
            self._at(self._now + drawn, lambda: self._start(pilot))

    def _start(self, pilot: _Pilot) -> None:
        if pilot.ended:
            return
        del self._waiting[pilot.id]
        self._running[pilot.ce] += 1
        pilot.started = self._now
        self._ask(pilot)

    def _ask(self, pilot: _Pilot) -> None:
        """A pilot without a job asks for one, and waits `idle` seconds for it."""
        self._happened = self._now
        assert pilot.started is not None
        ce = self._ces[pilot.ce]
        last = pilot.started + ce.wall - least(ce.wall)
        if self._now >= last:
            self._end(pilot)
        elif not self._take_job(pilot):
            self._idle[pilot.id] = pilot
            asked = pilot.asked
            self._at(min(self._now + ce.idle, last), lambda: self._end_idle(pilot, asked))

    def _end_idle(self, pilot: _Pilot, asked: int) -> None:
        if pilot.asked == asked:
            self._happened = self._now
            del self._idle[pilot.id]
            self._end(pilot)

    def _end(self, pilot: _Pilot) -> None:
        assert pilot.started is not None
        pilot.ended = True
        self._running[pilot.ce] -= 1
        self._pilot_seconds += self._now - pilot.started
        if not pilot.had_job:
            self._outcome.without_job += 1
            self._look_back(pilot, in_vain=True)

    def _look_back(self, pilot: _Pilot, *, in_vain: bool) -> None:
        seen = LastSeen(pilot.id, str(pilot.id), pilot.had_job, in_vain)
        self._back_offs[pilot.ce].observe([seen], self._waiting_jobs(), self._now)

    def _waiting_jobs(self) -> dict[QueueId, int]:
        return {entry.id: entry.waiting for entry in self._index.entries.values() if entry.waiting}

    # --- the director

    def _plan_iteration(self) -> None:
        if not self._is_iteration_planned:
            self._is_iteration_planned = True
            self._at(max(self._now, self._next_iteration), self._iterate)

    def _iterate(self) -> None:
        is_matched = self._settings.demand == "matched"
        self._is_iteration_planned = False
        self._next_iteration = self._now + (MATCHED_PERIOD if is_matched else self._settings.period)
        for _ in self._index.apply_priorities():
            pass
        facts, fitting = self._facts()
        decisions: list[QueueDecision]
        if is_matched:
            free = self._free_pilots()
            steps = decide_matched(facts, fitting, free, self._rng)
            decisions = [decision for decision in steps if decision is not None]
            self._cancel_unneeded(free)
        else:
            decisions = list(decide(facts, fitting, self._rng))
        self._carry_out(decisions)
        self._outcome.most_waiting = max(self._outcome.most_waiting, len(self._waiting))
        if facts.queues or (is_matched and self._unneeded):
            self._plan_iteration()

    def _carry_out(self, decisions: Sequence[QueueDecision]) -> None:
        places = {ce.name: place for place, ce in enumerate(self._ces)}
        for decision in decisions:
            for order in decision.orders:
                for _ in range(order.pilots):
                    queue = decision.queue
                    self._submit(places[order.ce], order.pilot_type, queue.identity, queue.id)

    def _facts(self) -> tuple[IterationFacts, CeFitting]:
        since = self._now - self._settings.max_pilot_waiting_hours * 3600
        counted = Counter(pilot.queue for pilot in self._waiting.values() if pilot.submitted >= since)
        entries = [entry for entry in self._index.entries.values() if entry.waiting]
        queues = [
            DemandQueue(
                entry.id, entry.identity, entry.priority, entry.waiting, counted[entry.id], entry.slot
            )
            for entry in entries
        ]
        jobs = {queue.id: queue.jobs for queue in queues}
        for back_off in self._back_offs:
            back_off.observe((), jobs, self._now)
        waiting = Counter(pilot.ce for pilot in self._waiting.values())
        facts = IterationFacts(
            settings=self._settings,
            default_pools=(BATCH_POOL,),
            max_cpu=self._matching.cpu_buckets[-1],
            queues=queues,
            ces=[self._load(place, waiting[place]) for place in range(len(self._ces))],
            pools={BATCH_POOL: PoolLoad(BATCH_POOL, self._settings.pool(BATCH_POOL).total_threads)},
        )
        return facts, self._fitting(queues)

    def _load(self, place: int, waiting: int) -> CeLoad:
        ce, back_off = self._ces[place], self._back_offs[place]
        return CeLoad(
            name=ce.name,
            pool=BATCH_POOL,
            middleware="slurm",
            offer=self._offers[place],
            pilot_types=frozenset(("private", "generic")),
            room=room_for_pilots(waiting, self._running[place], ce.max_waiting, ce.max_running),
            closed="pilots came in vain" if back_off.pauses_for_all(self._now) else "",
        )

    def _fitting(self, queues: Sequence[DemandQueue]) -> CeFitting:
        slots = np.array([queue.slot for queue in queues], dtype=np.int64)
        size = (len(queues), len(self._ces))
        generic, private = np.zeros(size, dtype=np.bool_), np.zeros(size, dtype=np.bool_)
        for place, offer in enumerate(self._offers):
            generic[:, place] = np.isin(slots, self._index.fitting_slots(offer, ()))
            private[:, place] = np.isin(slots, self._index.fitting_slots(as_private(offer), ()))
        pauses = [
            frozenset(queue.id for queue in queues if back_off.pauses_at(queue.id, self._now))
            for back_off in self._back_offs
        ]
        places = {queue.id: place for place, queue in enumerate(queues)}
        return CeFitting(pauses, places, generic, private)

    def _free_pilots(self) -> list[FreePilots]:
        started = Counter(pilot.binding for pilot in self._idle.values())
        since = self._now - self._settings.max_pilot_waiting_hours * 3600
        waiting = Counter(pilot.binding for pilot in self._waiting.values() if pilot.submitted >= since)
        return [
            FreePilots(ce, pilot_type, started[binding], waiting[binding], owner, group)
            for binding in dict.fromkeys((*started, *waiting))
            for ce, pilot_type, owner, group in (binding,)
        ]

    def _cancel_unneeded(self, free: Sequence[FreePilots]) -> None:
        """Cancel waiting pilots that were needed by no queue for `cancel_after` seconds, the newest first."""
        left = {(some.ce, some.pilot_type, some.owner, some.group): some.waiting for some in free}
        since = {}
        for pilot in reversed(self._waiting.values()):
            if left[pilot.binding] > 0:
                left[pilot.binding] -= 1
                since[pilot.id] = self._unneeded.get(pilot.id, self._now)
        overdue = [id_ for id_, begin in since.items() if self._now - begin >= self._settings.cancel_after]
        for id_ in overdue:
            pilot = self._waiting.pop(id_)
            pilot.ended = True
            self._outcome.cancelled += 1
            self._back_offs[pilot.ce].ended(id_)
            del since[id_]
        self._unneeded = since
