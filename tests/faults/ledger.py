"""A model of the pool, run over the event log: what must be true of any store at rest, whatever has happened."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from pilotage.core.jobs.states import FINAL, JOB_STATES, JobState
from pilotage.core.policy import parse
from pilotage.core.queues.identity import QueueIdentity
from pilotage.core.queues.limits import Limit

WITH_PILOT = frozenset({JobState.MATCHED, JobState.RUNNING, JobState.STALLED, JobState.COMPLETING})
AT_REST = FINAL | WITH_PILOT | {JobState.WAITING, JobState.RESCHEDULED}

Execute = Callable[[str], list[tuple[Any, ...]]]


class Move(NamedTuple):
    event: int
    at: float
    kind: str
    old: str
    new: str
    epoch: int
    previous: int


class Job(NamedTuple):
    state: JobState
    epoch: int
    last_event: int
    queue: int
    pilot: int | None


class Event(NamedTuple):
    id: int
    at: float
    kind: str
    old: str
    new: str
    jobs: list[Any]


class Ledger:
    """Everything of a store, read at once."""

    def __init__(self, execute: Execute) -> None:
        self.jobs: dict[int, Job] = {}
        for table, pilot in (("jobs", "pilot_id"), ("history", "NULL")):
            sql = f"SELECT id, state, epoch, last_event, queue_id, {pilot} FROM {table}"
            for id_, state, *rest in execute(sql):
                assert id_ not in self.jobs, f"job {id_} is in both tables"
                self.jobs[id_] = Job(JobState(state), *rest)
        self.events = [
            Event(id_, at, kind, old, new, json.loads(jobs) or [])
            for id_, at, kind, old, new, jobs in execute(
                "SELECT id, at, kind, old, new, jobs FROM events ORDER BY id"
            )
        ]
        self.lists = {
            pilot: (ended, site, ce, json.loads(jobs))
            for pilot, ended, site, ce, jobs in execute("SELECT id, ended, site, ce, jobs FROM pilots")
        }
        self.tries = {
            (job, epoch): (pilot, outcome)
            for job, epoch, pilot, outcome in execute("SELECT job_id, epoch, pilot_id, outcome FROM attempts")
        }
        self.queues = {
            queue: QueueIdentity.from_json(text) for queue, text in execute("SELECT id, identity FROM queues")
        }
        self.limits = {
            str(version): parse(text).limit_list()
            for version, text in execute("SELECT version, text FROM policies")
        }
        self.moves: dict[int, list[Move]] = {}

    def check(self) -> Counter[str]:
        """Raises AssertionError; how many jobs are in which state."""
        self.follow()
        self.at_most_one_applied()
        self.everyone_is_somewhere()
        self.no_limit_was_exceeded()
        return Counter(str(job.state) for job in self.jobs.values())

    def follow(self) -> None:
        """Each job's events lead from its submission to its row, legally and without a gap."""
        for event in self.events:
            if event.kind == "submitted":
                first, count = event.jobs
                for job in range(first, first + count):
                    assert job not in self.moves, f"job {job} was submitted twice"
                    self.moves[job] = [Move(event.id, event.at, event.kind, "", event.new, 0, 0)]
            else:
                for job, epoch, previous, *_ in event.jobs:
                    move = Move(event.id, event.at, event.kind, event.old, event.new, epoch, previous)
                    self.moves[job].append(move)
        assert self.moves.keys() == self.jobs.keys(), self.moves.keys() ^ self.jobs.keys()
        for job, moves in self.moves.items():
            epoch = 0
            for before, move in pairwise(moves):
                assert (move.previous, move.old) == (before.event, before.new), (job, before, move)
                JOB_STATES.check(JobState(move.old), JobState(move.new))
                epoch += move.kind == "offered"
                assert move.epoch == epoch, f"job {job}: {move} has not epoch {epoch}"
                assert (move.kind == "offered") == (move.new == "Matched"), (job, move)
            row = self.jobs[job]
            assert (moves[-1].event, moves[-1].new) == (row.last_event, row.state), (job, moves[-1], row)
            assert row.epoch == epoch, (job, row, epoch)

    def at_most_one_applied(self) -> None:
        """Between two times that a person has it begin again, of the tries of a job one is applied at most."""
        applied = Counter(job for (job, _), (_, outcome) in self.tries.items() if outcome == "applied")
        for job, row in self.jobs.items():
            kinds = Counter(move.kind for move in self.moves[job])
            assert applied[job] <= 1 + kinds["rescheduled"], f"job {job}: {applied[job]} applied"
            assert applied[job] == kinds["finished"], f"job {job}: {applied[job]} applied, {kinds}"
            if row.state is JobState.DONE:
                assert applied[job], f"job {job} is done without an applied try"
            begun = {epoch for one, epoch in self.tries if one == job} if kinds["confirmed"] else set()
            assert len(begun) == kinds["confirmed"], f"job {job}: tries {begun}, but {kinds}"
            assert all(1 <= epoch <= row.epoch for epoch in begun), (job, begun)

    def everyone_is_somewhere(self) -> None:
        """A job waits, is with one live pilot and on that one's list, or has ended; and nothing else."""
        for job, row in self.jobs.items():
            assert row.state in AT_REST, (job, row)
            assert (row.pilot is not None) == (row.state in WITH_PILOT), (job, row)
            if row.pilot is not None:
                ended, _, _, listed = self.lists[row.pilot]
                assert ended is None, f"job {job} is with pilot {row.pilot}, which has ended"
                assert job in listed, f"job {job} is not on the list of pilot {row.pilot}"
            under_way = [e for e in range(1, row.epoch + 1) if self.tries.get((job, e), (0, ""))[1] is None]
            held = row.state in WITH_PILOT and row.state is not JobState.MATCHED
            assert under_way == ([row.epoch] if held else []), (job, row, under_way)

    def no_limit_was_exceeded(self) -> None:
        """After each transaction that offered jobs: never more there than the limits of then let run.

        Moves of one instant are one step, since only their end was ever to be seen.
        """
        force: tuple[Limit, ...] = ()
        place: dict[int, tuple[str, str]] = {}
        running: Counter[tuple[str, ...]] = Counter()
        for _, events in groupby(self.events, key=lambda event: event.at):
            offered: set[int] = set()
            for event in events:
                if event.kind == "policy":
                    force = self.limits[event.new]
                    running = Counter(
                        limit.key for job in place for limit in self.concerned(force, job, *place[job])
                    )
                if event.kind in ("submitted", "policy"):
                    continue
                for job, _, _, *by in event.jobs:
                    if event.new in WITH_PILOT and job not in place:
                        [pilot] = by
                        place[job] = self.lists[pilot][1:3]
                        running.update(limit.key for limit in self.concerned(force, job, *place[job]))
                        offered.add(job)
                    elif event.new not in WITH_PILOT and job in place:
                        running.subtract(limit.key for limit in self.concerned(force, job, *place.pop(job)))
            for job in offered & place.keys():
                for limit in self.concerned(force, job, *place[job]):
                    most = limit.running
                    assert most is None or running[limit.key] <= most, (job, limit, running[limit.key])

    def concerned(self, limits: tuple[Limit, ...], job: int, site: str, ce: str) -> Iterator[Limit]:
        queue = self.queues[self.jobs[job].queue]
        return (limit for limit in limits if limit.applies_at(site, ce) and limit.concerns(queue))

    def waiting(self) -> dict[int, int]:
        """How many jobs wait in each queue."""
        return dict(Counter(job.queue for job in self.jobs.values() if job.state is JobState.WAITING))


def read(home: Path, database_url: str = "") -> Ledger:
    """The ledger of a home, or of a database on PostgreSQL, all of one instant."""
    if database_url:
        with psycopg.connect(database_url) as session:
            session.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            return Ledger(lambda sql: session.execute(sql.encode()).fetchall())
    path = f"file:{home}/pilotage.db?mode=ro"
    with closing(sqlite3.connect(path, uri=True, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        return Ledger(lambda sql: connection.execute(sql).fetchall())
