"""One run of the twin: a trace is submitted to a server in virtual time, whose pilots run it."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from math import inf
from pathlib import Path

import msgspec

from pilotage.core.errors import PilotageError
from pilotage.core.policy import Ce, Policy
from pilotage.core.policy.new_ce import NodeSize
from pilotage.outside.batch.adapter import BatchAdapter, BatchSubmission
from pilotage.outside.batch.submission import NativeState
from pilotage.server.http.routes.submissions import accept_jobs
from pilotage.twin.batch.adapter import TwinBatchAdapter
from pilotage.twin.batch.system import BatchSystemSettings, TwinBatchSystem
from pilotage.twin.batch.tasks import BatchPilotStart, StartedPilot
from pilotage.twin.books import Books
from pilotage.twin.ces import TwinCe
from pilotage.twin.chance import Streams
from pilotage.twin.idle_takes import IdleTakes
from pilotage.twin.network import DirectNetwork
from pilotage.twin.periods import least_periods
from pilotage.twin.pilots import BatchJob, SimulatedPilot
from pilotage.twin.plan import TwinPlan, TwinProgress
from pilotage.twin.result import (
    JobRuns,
    PilotRun,
    PilotRuns,
    TwinCounts,
    TwinResult,
    TwinSample,
    TwinSamples,
)
from pilotage.twin.served_policy import served_policy
from pilotage.twin.server import TwinServer, TwinServerSettings, caller
from pilotage.twin.standstill import StandstillWatch, close_given_up, longest_pause
from pilotage.twin.virtual_loop import VirtualLoop
from pilotage.twin.workload import TraceJob
from pilotage.wire.pilot import Node
from pilotage.wire.submissions import SubmitRequest

BEGIN = 1_700_000_000.0
"""The instant at which each trace begins, in seconds since 1970."""
LULL = 900.0
"""Seconds before a submission from which on duties run again. Earlier time without jobs and pilots is skipped."""
END_CHECK = 10.0
"""Seconds between two looks whether all jobs have ended."""
HEARTBEAT = 600.0
"""Seconds. No message is lost here, so that a heartbeat tells the server nothing new."""
POLL = 2.0
"""Seconds within which an idle pilot asks again."""
SAMPLES = 400
"""Samples of a run, about."""
PLATFORM = "x86_64"
UNDER_WAY = frozenset({NativeState.HELD, NativeState.WAITING, NativeState.RUNNING})


def run_twin(plan: TwinPlan, progress: Callable[[TwinProgress], None]) -> TwinResult:
    """Run a plan to its end. `progress` is called with each sample; an exception of it ends the run."""
    began = time.process_time()
    with tempfile.TemporaryDirectory(prefix="pilotage-twin-") as folder:
        loop = VirtualLoop(BEGIN)
        try:
            run = _TraceRun(plan, loop, Path(folder), progress)
            loop.run_until_complete(run.go())
            result = run.result()
        finally:
            loop.close()
    result.cpu_seconds = time.process_time() - began
    return result


def _quiet(policy: Policy) -> Policy:
    """The same policy with rare heartbeats."""
    ces = {
        name: msgspec.structs.replace(
            ce, heartbeat=max(ce.heartbeat, HEARTBEAT), lease=max(ce.lease, 4 * max(ce.heartbeat, HEARTBEAT))
        )
        for name, ce in policy.ces.items()
    }
    return msgspec.structs.replace(policy, ces=ces)


@dataclass(slots=True, eq=False)
class _PilotBook:
    ce: str
    processors: int
    requested: float
    started: float
    pilot: SimulatedPilot | None = None
    ended: float | None = None


@dataclass(slots=True)
class _SimulatedBatchClients:
    """Implements `BatchClients`: the script of a pilot is its secret."""

    adapters: dict[str, BatchAdapter]
    clock: Callable[[], float]
    requested: dict[str, float] = field(default_factory=dict)
    """When each submission was made, by its stamp."""

    def adapter(self, name: str, ce: Ce) -> BatchAdapter:
        return self.adapters[name]

    def script(
        self, ce: str, secret: str, submission: BatchSubmission, batch: BatchAdapter, *, local: bool
    ) -> str:
        self.requested[submission.stamp] = self.clock()
        return secret

    def obstacle(self, ce: Ce) -> str:
        return ""


class _TraceRun:
    def __init__(
        self, plan: TwinPlan, loop: VirtualLoop, folder: Path, progress: Callable[[TwinProgress], None]
    ) -> None:
        self._plan, self._loop, self._progress = plan, loop, progress
        self._streams = Streams(plan.seed)
        self._books = Books()
        self._idle_takes = IdleTakes(loop, self._streams.stream("idle takes"), POLL)
        self._pilots: list[_PilotBook] = []
        self._live: set[_PilotBook] = set()
        groups = sorted({job.group for job in plan.jobs})
        self._samples = TwinSamples(groups)
        self._submitted = 0
        self._until = inf if plan.until is None else BEGIN + plan.until
        self._systems = {ce.name: self._system(ce) for ce in plan.ces}
        self._clients = _SimulatedBatchClients(
            {name: TwinBatchAdapter(system) for name, system in self._systems.items()}, loop.time
        )
        settings = TwinServerSettings(
            folder,
            plan.policy_text,
            self._streams,
            self._clients,
            lambda policy: _quiet(served_policy(policy, plan.ces)),
            least_periods(plan.span, plan.median_run),
            longest_gap=inf,
            node=Node(platform=PLATFORM, processors=max(ce.cores for ce in plan.ces)),
        )
        self._server = TwinServer(settings, loop)
        self._network = DirectNetwork(self._server, loop)
        self._standstill = ""

    def _system(self, ce: TwinCe) -> TwinBatchSystem:
        settings = BatchSystemSettings(
            ce.name,
            [NodeSize(kind.count, kind.processors, max(1, kind.memory)) for kind in ce.nodes],
            wall_limit=ce.wall,
            start_delay=ce.start_delay,
            waits=(lambda rng: ce.wait_at(rng.random())) if ce.waits else None,
        )
        return TwinBatchSystem(
            settings,
            partial(self._start_pilot, ce),
            clock=self._loop.time,
            call_at=self._loop.call_at,
            rng=self._streams.stream(f"batch {ce.name}"),
        )

    def _start_pilot(self, ce: TwinCe, start: BatchPilotStart, left: Callable[[int], None]) -> StartedPilot:
        shape, loop = start.submission.shape, self._loop
        now = loop.time()
        node = Node(start.node, PLATFORM, shape.processors, shape.memory or start.node_memory)
        job = BatchJob(
            start.submission.script,
            start.index,
            start.batch_id,
            node,
            start.restarts,
            start.batch_start,
            start.batch_end,
            ce.isolates,
        )
        began = now - ce.start_delay
        book = _PilotBook(ce.name, shape.processors, self._clients.requested[start.submission.stamp], began)

        def exited(code: int) -> None:
            self._pilot_ended(book)
            left(code)

        rng = self._streams.stream(f"pilot {start.batch_id} {start.restarts}")
        book.pilot = SimulatedPilot(job, self._network, self._books, loop, rng, exited, self._idle_takes)
        self._pilots.append(book)
        self._live.add(book)
        if ce.failure_rate > 0:
            loop.call_later(rng.expovariate(ce.failure_rate / 3600), self._fail, book, left)
        return _Started(book.pilot, partial(self._pilot_ended, book))

    def _pilot_ended(self, book: _PilotBook) -> None:
        if book.ended is None:
            book.ended = self._loop.time()
            self._live.discard(book)

    def _fail(self, book: _PilotBook, left: Callable[[int], None]) -> None:
        """The pilot's process dies, and its batch job with it."""
        if book.ended is None and book.pilot is not None:
            book.pilot.kill()
            self._pilot_ended(book)
            left(137)

    async def go(self) -> None:
        serving = asyncio.ensure_future(self._server.run())
        sampling = asyncio.ensure_future(self._sample())
        people = asyncio.ensure_future(self._submit_all())
        stop = asyncio.ensure_future(self._await_end(people))
        await asyncio.wait([serving, sampling, stop], return_when=asyncio.FIRST_COMPLETED)
        self._server.context.stop.set()
        for task in (sampling, people, stop):
            if task.done():
                await task
            task.cancel()
        await serving
        self._server.close()

    async def _await_end(self, people: asyncio.Future[None]) -> None:
        watch = StandstillWatch(self._books, longest_pause(self._plan.policy, self._plan.ces))
        while self._loop.time() < self._until and not (people.done() and not self._books.open):
            if people.done() and watch.is_over(self._loop.time()):
                self._standstill = await watch.sentence(self._server.context)
                return
            await asyncio.sleep(END_CHECK)

    async def _submit_all(self) -> None:
        """Submit each job at its instant."""
        policy = self._server.context.pool.policy
        for job in self._plan.jobs:
            await self._sleep_until(BEGIN + job.submit)
            properties = policy.groups[job.group].properties
            who = caller(job.owner, job.group, frozenset(properties))
            answer = await accept_jobs(_request_of(job), self._server.context, who)
            self._books.add(answer.first, job)
            self._idle_takes.changed(1)
            self._submitted += 1

    async def _sleep_until(self, instant: float) -> None:
        """Sleep, and skip the time in which nobody has a job or a pilot: the cycles of duties would change nothing."""
        end = min(instant, self._until)
        while self._loop.time() < instant:
            if self._is_at_rest() and self._loop.time() < end - LULL:
                self._loop.skip_to(end - LULL)
            await asyncio.sleep(min(instant - self._loop.time(), LULL))

    def _is_at_rest(self) -> bool:
        tasks = (task for system in self._systems.values() for task in system.books.of_stamps(None))
        return not self._books.open and not self._live and not any(task.state in UNDER_WAY for task in tasks)

    async def _sample(self) -> None:
        period = max(60.0, self._plan.span / SAMPLES)
        while True:
            self._check_server()
            close_given_up(self._books, self._server.context)
            self._samples.add(self._sample_now())
            if self._submitted > self._books.finished + self._books.running:
                # Jobs come back after a failure, and limits change: no event of this run tells of them.
                self._idle_takes.changed()
            now = self._loop.time() - BEGIN
            self._progress(
                TwinProgress(
                    now, self._submitted, self._books.finished, len(self._plan.jobs), self._plan.until
                )
            )
            await asyncio.sleep(period)

    def _check_server(self) -> None:
        """Raise PilotageError if the server has met an error of its own: the run would mean nothing."""
        for failing in self._server.context.duties.failing:
            raise PilotageError(f"the duty {failing.duty} of the simulated server failed: {failing.error}")
        if (mistake := self._network.mistake) is not None:
            raise PilotageError(
                f"the simulated server failed: {type(mistake).__name__}: {mistake}",
                hint="this is a mistake of Pilotage: report it with the trace, the policy and the seed",
            ) from mistake

    def _sample_now(self) -> TwinSample:
        books, now = self._books, self._loop.time()
        cores = sum(book.processors for book in self._live)
        starting = sum(
            book.processors for book in self._live if book.pilot is not None and not book.pilot.enrolled
        )
        busy = sum(books.running_cores.values())
        return TwinSample(
            now - BEGIN,
            {group: books.used_by(group, now) for group in self._samples.groups},
            busy,
            cores - starting - busy,
            starting,
            self._submitted - books.finished - books.running,
            books.running,
        )

    def result(self) -> TwinResult:
        jobs, pilots = JobRuns(), PilotRuns()
        end = self._loop.time()
        for book in self._books.jobs.values():
            jobs.add(book.as_run(BEGIN, end))
        for pilot in self._pilots:
            pilots.add(_pilot_run(pilot, end))
        matches = sum(book.attempts for book in self._books.jobs.values())
        counts = TwinCounts(self._submitted, matches, self._network.calls)
        return TwinResult(
            self._plan.seed,
            self._loop.time() - BEGIN,
            jobs,
            pilots,
            self._samples,
            counts,
            0.0,
            standstill=self._standstill,
        )


@dataclass(frozen=True, slots=True)
class _Started:
    """Implements `StartedPilot`."""

    pilot: SimulatedPilot
    killed: Callable[[], None]

    def signal(self, name: str) -> None:
        self.pilot.signal(name)

    def kill(self) -> None:
        self.pilot.kill()
        self.killed()


def _pilot_run(book: _PilotBook, now: float) -> PilotRun:
    pilot = book.pilot
    assert pilot is not None
    end = now if book.ended is None else book.ended
    total = book.processors * (end - book.started)
    startup = book.processors * ((pilot.enrolled or end) - book.started)
    payload = pilot.payload + pilot.running_seconds(now)
    return PilotRun(
        book.ce,
        book.processors,
        book.requested - BEGIN,
        book.started - BEGIN,
        None if book.ended is None else book.ended - BEGIN,
        payload,
        startup,
        max(0.0, total - startup - payload - pilot.killed),
        pilot.killed,
    )


def _request_of(job: TraceJob) -> SubmitRequest:
    description: dict[str, object] = {"executable": "/bin/true", "processors": job.processors}
    if job.memory:
        description["memory"] = job.memory
    if job.wall >= job.run:
        description["wall_time"] = int(job.wall)
    if job.cpu:
        description["cpu_time"] = int(job.cpu)
    return SubmitRequest(description=description, group=job.group)
