"""A model of the pool, run over the event log: what must be true of any store at rest, whatever has happened.

**A job's history** is read along its events, each of which names the one before; ids say nothing about it, as each of
several servers takes them from a block of its own.

**What was there at once** is asked of the log in the order of the commits. On SQLite that is the order of ids: there is
one writer. On PostgreSQL each event has the instant of its transaction's commit (`track_commit_timestamp`). The
database takes that instant before it gives the locks of the transaction back. So of two transactions of which one
needed what the other has done (the same job, or a place of a limit: both are rows) the later one has no earlier
instant. Every beginning of the log in this order is therefore a state that the rules had to keep; transactions of one
instant are one step.

**A limit** counts as the policy has it that its server matched by. One server: the policy of the last event before.
Several: a policy is in force from its commit until every server says in its row that it has taken up a later one,
which somebody has to have watched (`Watch`). As long as two are in force the more generous limit counts.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from itertools import groupby, pairwise
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from pilotage.core.jobs.states import CONFIRMED, FINAL, JOB_STATES, JobState
from pilotage.core.policy import Policy, parse
from pilotage.core.queues.identity import QueueIdentity

WITH_PILOT = CONFIRMED | {JobState.MATCHED}
AT_REST = FINAL | WITH_PILOT | {JobState.WAITING, JobState.RESCHEDULED}
COMMIT = {"sqlite": "id", "postgresql": "extract(epoch FROM pg_xact_commit_timestamp(xmin))::float8"}

Key = tuple[str, str, str, str]
"""Of a limit."""

Execute = Callable[[str], list[tuple[Any, ...]]]


class Move(NamedTuple):
    event: int
    step: int
    """Which of the commits, counted from 0."""
    kind: str
    old: str
    new: str
    epoch: int
    previous: int
    pilot: int | None


class Job(NamedTuple):
    submission: int
    state: JobState
    epoch: int
    last_event: int
    queue: int
    pilot: int | None


class Event(NamedTuple):
    id: int
    at: float
    committed: float
    kind: str
    old: str
    new: str
    jobs: list[Any]


class Pilot(NamedTuple):
    ended: float | None
    site: str
    ce: str
    only_owner: str | None
    jobs: list[int]


class Ledger:
    """Everything of a store, read at once. `superseded`: when each policy was in force nowhere any more."""

    def __init__(self, execute: Execute, dialect: str, superseded: Mapping[int, float] | None = None) -> None:
        self.dialect, self.superseded = dialect, superseded
        self.jobs: dict[int, Job] = {}
        for table, pilot in (("jobs", "pilot_id"), ("history", "NULL")):
            sql = f"SELECT id, submission_id, state, epoch, last_event, queue_id, {pilot} FROM {table}"
            for id_, submission, state, *rest in execute(sql):
                assert id_ not in self.jobs, f"job {id_} is in both tables"
                self.jobs[id_] = Job(submission, JobState(state), *rest)
        sql = f"SELECT id, at, {COMMIT[dialect]}, kind, old, new, jobs FROM events"
        found = [Event(*row[:-1], json.loads(row[-1]) or []) for row in execute(sql)]  # type: ignore[call-arg]
        self.events = sorted(found, key=lambda event: (event.committed, event.id))
        self.pilots = {
            id_: Pilot(*row, json.loads(jobs))  # type: ignore[call-arg]
            for id_, *row, jobs in execute("SELECT id, ended, site, ce, only_owner, jobs FROM pilots")
        }
        self.tries = {
            (job, epoch): (pilot, outcome)
            for job, epoch, pilot, outcome in execute("SELECT job_id, epoch, pilot_id, outcome FROM attempts")
        }
        self.queues = {
            queue: QueueIdentity.from_json(text) for queue, text in execute("SELECT id, identity FROM queues")
        }
        self.policies = {v: parse(text) for v, text in execute("SELECT version, text FROM policies")}
        self.moves: dict[int, list[Move]] = {}
        self._reigns: list[tuple[Policy, float, float]] = []
        self._concerned: dict[tuple[int, str, str], dict[Key, int]] = {}

    def check(self) -> Counter[str]:
        """Raises AssertionError; how many jobs are in which state."""
        self.follow()
        self.at_most_one_applied()
        self.everyone_is_somewhere()
        self.no_limit_was_exceeded()
        return Counter(str(job.state) for job in self.jobs.values())

    def steps(self) -> list[list[Event]]:
        """The log, cut where something was to be seen; on SQLite requests of one instant share a transaction."""
        sqlite = self.dialect == "sqlite"
        return [list(one) for _, one in groupby(self.events, key=lambda e: e.at if sqlite else e.committed)]

    # --- each job

    def follow(self) -> None:
        """Each job's events lead from its submission to its row, legally and without a gap or a fork."""
        following: dict[int, dict[int, Move]] = {job: {} for job in self.jobs}
        for step, events in enumerate(self.steps()):
            for event in events:
                for job, epoch, previous, pilot in _entries(event):
                    move = Move(event.id, step, event.kind, event.old, event.new, epoch, previous, pilot)
                    assert job in following, f"of job {job} there is no row: {move}"
                    second = following[job].get(previous)
                    assert second is None, f"job {job}: two events follow {previous}: {second}, {move}"
                    following[job][previous] = move
        for job, moves in following.items():
            self.moves[job] = chain = list(_chain(moves))
            assert len(chain) == len(moves), f"job {job}: a gap after {chain[-1:]}: {moves}"
            self._one(job, chain)

    def _one(self, job: int, moves: list[Move]) -> None:
        assert moves, f"job {job} was never submitted"
        first, epoch = moves[0], 0
        assert (first.kind, first.old) == ("submitted", ""), (job, first)
        for before, move in pairwise(moves):
            assert move.old == before.new, (job, before, move)
            assert move.step >= before.step, f"job {job}: {move} was committed before {before}"
            JOB_STATES.check(JobState(move.old), JobState(move.new))
            epoch += move.kind == "offered"
            assert move.epoch == epoch, f"job {job}: {move} has not epoch {epoch}"
            assert (move.kind == "offered") == (move.new == "Matched"), (job, move)
            if JobState(move.old) in FINAL:
                assert move.kind in ("rescheduled", "deleted"), f"job {job} had ended, and then: {move}"
        row = self.jobs[job]
        assert (moves[-1].event, moves[-1].new) == (row.last_event, row.state), (job, moves[-1], row)
        assert row.epoch == epoch, (job, row, epoch)

    def at_most_one_applied(self) -> None:
        """Between two times that a person has it begin again, of the tries of a job one is applied at most."""
        applied = Counter(job for (job, _), (_, outcome) in self.tries.items() if outcome == "applied")
        begun: dict[int, set[int]] = {}
        for job, epoch in self.tries:
            begun.setdefault(job, set()).add(epoch)
        for job, row in self.jobs.items():
            kinds = Counter(move.kind for move in self.moves[job])
            assert applied[job] <= 1 + kinds["rescheduled"], f"job {job}: {applied[job]} applied"
            assert applied[job] == kinds["finished"], f"job {job}: {applied[job]} applied, {kinds}"
            if row.state is JobState.DONE:
                assert applied[job], f"job {job} is done without an applied try"
            tries = begun.get(job, set())
            assert len(tries) == kinds["confirmed"], f"job {job}: tries {tries}, but {kinds}"
            for move in self.moves[job]:
                if move.kind == "confirmed":
                    assert move.epoch in tries, f"job {job}: {move} began no try"
                    by = self.tries[job, move.epoch][0]
                    assert by == self.offered_to(job, move.epoch), (job, move, by)

    def everyone_is_somewhere(self) -> None:
        """A job waits, is with one live pilot and on that one's list, or has ended; and nothing else."""
        for job, row in self.jobs.items():
            assert row.state in AT_REST, (job, row)
            assert (row.pilot is not None) == (row.state in WITH_PILOT), (job, row)
            if row.pilot is not None:
                pilot = self.pilots[row.pilot]
                assert pilot.ended is None, f"job {job} is with pilot {row.pilot}, which has ended"
                assert job in pilot.jobs, f"job {job} is not on the list of pilot {row.pilot}"
                assert self.offered_to(job, row.epoch) == row.pilot, (job, row)
                owner = self.queues[row.queue].owner
                assert pilot.only_owner in (None, owner), f"job {job} of {owner} is with {pilot}"
            under_way = [e for e in range(1, row.epoch + 1) if self.tries.get((job, e), (0, ""))[1] is None]
            held = row.state in WITH_PILOT and row.state is not JobState.MATCHED
            assert under_way == ([row.epoch] if held else []), (job, row, under_way)

    def nobody_is_bound_for_nothing(self) -> None:
        """Pilots that serve one owner only because of a match were given a job of that owner."""
        served: dict[int, set[str]] = {}
        for job, moves in self.moves.items():
            for move in moves:
                if move.kind == "offered" and move.pilot is not None:
                    served.setdefault(move.pilot, set()).add(self.queues[self.jobs[job].queue].owner)
        for id_, pilot in self.pilots.items():
            bound = {pilot.only_owner} - {None}
            assert served.get(id_, set()) == bound, f"pilot {id_} served {served.get(id_)}: {pilot}"

    def offered_to(self, job: int, epoch: int) -> int | None:
        """The pilot that was given this epoch; None: nobody was."""
        return next((m.pilot for m in self.moves[job] if m.kind == "offered" and m.epoch == epoch), None)

    # --- all jobs at once

    def no_limit_was_exceeded(self) -> None:
        """After each commit that offered jobs: no more there than the limits of then let run, and none if banned."""
        place: dict[int, tuple[str, str]] = {}
        moved = self._places()
        force: list[Policy] = []
        running: Counter[Key] = Counter()
        for step, events in enumerate(self.steps()):
            now = self._in_force(events[0].committed)
            if now != force:
                force = now
                self._concerned.clear()
                running = Counter(key for job, at in place.items() for key in self.concerned(force, job, at))
            offered = []
            for job, (at, anew) in moved.get(step, {}).items():
                if job in place:
                    running.subtract(self.concerned(force, job, place.pop(job)).keys())
                if at is not None:
                    place[job] = at
                    running.update(self.concerned(force, job, at).keys())
                    offered += [job] if anew else []
            for job in offered:
                site = place[job][0]
                closed = [site not in one.sites or one.sites[site].banned for one in force]
                assert not all(closed), f"job {job} offered at {site}, which is banned"
                for key, most in self.concerned(force, job, place[job]).items():
                    assert running[key] <= most, (
                        f"job {job} ({events[0].at}): {running[key]} of {most}, {key}"
                    )

    def _places(self) -> dict[int, dict[int, tuple[tuple[str, str] | None, bool]]]:
        """By step and job: where it was afterwards (site and CE), and whether it was offered there in it."""
        found: dict[int, dict[int, tuple[tuple[str, str] | None, bool]]] = {}
        for job, moves in self.moves.items():
            at, anew, step = None, False, -1
            for move in moves:
                anew, step = (anew if move.step == step else False), move.step
                if move.kind == "offered":
                    assert move.pilot is not None, (job, move)
                    pilot = self.pilots[move.pilot]
                    at, anew = (pilot.site, pilot.ce), True
                elif move.new not in WITH_PILOT:
                    at, anew = None, False
                found.setdefault(step, {})[job] = (at, anew)
        return found

    def _in_force(self, committed: float) -> list[Policy]:
        """The policies that a server may have matched by in a transaction of that instant."""
        if not self._reigns:
            begins = {int(e.new): e.committed for e in self.events if e.kind == "policy"}
            self._reigns = [
                (policy, begins.get(version, -inf), self._until(version, begins))
                for version, policy in sorted(self.policies.items())
            ]
        return [policy for policy, begin, until in self._reigns if begin <= committed < until]

    def _until(self, version: int, begins: Mapping[int, float]) -> float:
        if self.superseded is not None:
            return self.superseded.get(version, inf)
        return min((at for later, at in begins.items() if later > version), default=inf)

    def concerned(self, force: list[Policy], job: int, place: tuple[str, str]) -> dict[Key, int]:
        """The limits that the job counts under there, and how many each lets run at most."""
        key = (self.jobs[job].queue, *place)
        if key not in self._concerned:
            queue = self.queues[key[0]]
            each = [
                {
                    one.key: one.running
                    for one in p.matching_limits()
                    if one.applies_at(*place) and one.applies_to(queue)
                }
                for p in force
            ]
            found = {}
            for limit in set.intersection(*(set(one) for one in each)):
                numbers = [number for one in each if (number := one[limit]) is not None]
                if len(numbers) == len(each):
                    found[limit] = max(numbers)
            self._concerned[key] = found
        return self._concerned[key]

    def waiting(self) -> dict[int, int]:
        """How many jobs wait in each queue."""
        return dict(Counter(job.queue for job in self.jobs.values() if job.state is JobState.WAITING))


def _entries(event: Event) -> Iterator[tuple[int, int, int, int | None]]:
    """(job, epoch, previous event, pilot) of each job of an event."""
    if event.kind == "submitted":
        first, count = event.jobs
        yield from ((job, 0, 0, None) for job in range(first, first + count))
    else:
        for job, epoch, previous, *pilot in event.jobs:
            yield job, epoch, previous, pilot[0] if pilot else None


def _chain(following: Mapping[int, Move]) -> Iterator[Move]:
    """By what each follows; ends at a gap, or where it comes round."""
    at, seen = 0, set[int]()
    while (move := following.get(at)) is not None and move.event not in seen:
        seen.add(move.event)
        yield move
        at = move.event


def read(home: Path, database_url: str = "", superseded: Mapping[int, float] | None = None) -> Ledger:
    """The ledger of a home, or of a database on PostgreSQL, all of one instant."""
    if database_url:
        with psycopg.connect(database_url) as session:
            session.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            return Ledger(
                lambda sql: session.execute(sql.encode()).fetchall(), "postgresql", superseded or {}
            )
    path = f"file:{home}/pilotage.db?mode=ro"
    with closing(sqlite3.connect(path, uri=True, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        return Ledger(lambda sql: connection.execute(sql).fetchall(), "sqlite")
