"""The books of a run: each job of the trace, and each pilot, as they were seen from outside of the server."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

from pilotage.twin.pilots import PayloadRun, SimulatedPilot
from pilotage.twin.result import JobRun, TwinOutcome
from pilotage.twin.workload import TraceJob
from pilotage.wire.pilot import Finish, OfferedJob


@dataclass(slots=True, eq=False)
class JobBook:
    """One job of the trace that was submitted."""

    job: TraceJob
    start: float | None = None
    end: float | None = None
    attempts: int = 0
    used: float = 0.0
    """Core-seconds of attempts that have ended."""
    begun: float = 0.0
    """The start of the last attempt."""
    running: int = 0
    outcome: TwinOutcome = TwinOutcome.WAITING

    def as_run(self, begin: float, now: float) -> JobRun:
        job = self.job
        running = now - self.begun if self.outcome is TwinOutcome.RUNNING else 0.0
        return JobRun(
            job.number,
            job.owner,
            job.group,
            job.processors,
            job.submit,
            None if self.start is None else self.start - begin,
            None if self.end is None else self.end - begin,
            self.attempts,
            self.outcome,
            self.used + running * job.processors,
            job.run,
        )


class Books:
    """Implements `Payloads` for the jobs of a trace."""

    def __init__(self) -> None:
        self.jobs: dict[int, JobBook] = {}
        """The submitted jobs by the server's ids."""
        self.finished = 0
        """Jobs with an end."""
        self.used: defaultdict[str, float] = defaultdict(float)
        """Core-seconds of each group, of payloads that have ended."""
        self.running_cores: Counter[str] = Counter()
        self.begun: defaultdict[str, float] = defaultdict(float)
        """The sum over running payloads of (cores × instant of the start), by group."""
        self.running = 0
        self.moves = 0
        """Starts and ends of attempts."""
        self.interrupted: set[int] = set()
        """Jobs whose last attempt had no result. They wait for the next one, or the server has given them up."""

    @property
    def open(self) -> int:
        """Jobs without an end."""
        return len(self.jobs) - self.finished

    def add(self, server_id: int, job: TraceJob) -> None:
        self.jobs[server_id] = JobBook(job)

    def run_of(self, offer: OfferedJob) -> PayloadRun:
        return PayloadRun(self.jobs[offer.job].job.run)

    def started(self, pilot: SimulatedPilot, offer: OfferedJob, now: float) -> None:
        book = self.jobs[offer.job]
        book.attempts += 1
        book.start = now if book.start is None else book.start
        book.begun, book.outcome = now, TwinOutcome.RUNNING
        group, cores = book.job.group, book.job.processors
        self.interrupted.discard(offer.job)
        self.moves += 1
        self.running += 1
        self.running_cores[group] += cores
        self.begun[group] += cores * now

    def ended(self, pilot: SimulatedPilot, offer: OfferedJob, now: float, finish: Finish) -> None:
        book = self._close(offer, now, finish.wall)
        if finish.failure == "killed":
            self.interrupted.add(offer.job)
        else:
            book.end = now
            book.outcome = TwinOutcome.FAILED if finish.failure or finish.exit_code else TwinOutcome.DONE
            self.finished += 1

    def lost(self, pilot: SimulatedPilot, offer: OfferedJob, now: float, seconds: float) -> None:
        self._close(offer, now, seconds)
        self.interrupted.add(offer.job)

    def given_up(self, job: int, end: float) -> None:
        """The server makes no further attempt: the job has failed."""
        book = self.jobs[job]
        book.end, book.outcome = end, TwinOutcome.FAILED
        self.finished += 1
        self.interrupted.discard(job)

    def _close(self, offer: OfferedJob, now: float, seconds: float) -> JobBook:
        """One attempt is over. The job waits again until its result is known."""
        book = self.jobs[offer.job]
        group, cores = book.job.group, book.job.processors
        book.used += seconds * cores
        book.outcome = TwinOutcome.WAITING
        self.moves += 1
        self.running -= 1
        self.running_cores[group] -= cores
        self.begun[group] -= cores * (now - seconds)
        self.used[group] += seconds * cores
        return book

    def used_by(self, group: str, now: float) -> float:
        """Core-seconds of a group until now, with running payloads."""
        return self.used[group] + self.running_cores[group] * now - self.begun[group]
