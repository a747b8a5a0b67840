"""What must hold after any fault, read from the database itself."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import psycopg

from pilotage.core.jobs.states import FINAL, JOB_STATES, JobState

TOOK_AWAY = frozenset({"lease-over", "killed", "released", "pilot-superseded", "failed-try", "rescheduled"})
"""Events that end a try in the log: after one of these another may begin while the first still runs."""

Move = tuple[int, int, str, str, str]
"""An event of a job: its id, the one that it follows, its kind, the states before and after."""

JOBS = "(SELECT id, state, last_event FROM jobs UNION ALL SELECT id, state, last_event FROM history) AS every_job"


def audit(home: Path, *, expect: set[str] | None = None) -> dict[str, int]:
    """Check every job of a home whose work is done; how many ended in which state."""
    connection = sqlite3.connect(f"file:{home}/pilotage.db?mode=ro", uri=True)
    try:
        return _audit(connection, expect)
    finally:
        connection.close()


def audit_postgresql(url: str, *, expect: set[str] | None = None) -> dict[str, int]:
    """The same of a database of PostgreSQL."""
    with psycopg.connect(url) as session:
        return _audit(session, expect)


def _audit(connection: Any, expect: set[str] | None) -> dict[str, int]:
    states = _states(connection)
    unfinished = {job: state for job, state in states.items() if state not in FINAL}
    assert not unfinished, f"lost jobs: {unfinished}"
    _at_most_one_applied(connection)
    _legal_histories(connection, states)
    _overlaps_in_the_log(connection)
    found = {str(state): list(states.values()).count(state) for state in set(states.values())}
    assert expect is None or set(found) <= expect, found
    return found


def _states(connection: Any) -> dict[int, JobState]:
    doubled = connection.execute("SELECT id FROM jobs WHERE id IN (SELECT id FROM history)").fetchall()
    assert not doubled, f"in both tables: {doubled}"
    return {job: JobState(state) for job, state in connection.execute(f"SELECT id, state FROM {JOBS}")}


def _at_most_one_applied(connection: Any) -> None:
    doubled = {
        job: applied
        for job, applied in connection.execute(
            "SELECT job_id, count(*) FROM attempts WHERE outcome = 'applied' GROUP BY job_id HAVING count(*) > 1"
        )
    }
    # A person may have a failed job begin again.
    for (jobs,) in connection.execute("SELECT jobs FROM events WHERE kind = 'rescheduled'"):
        for job, *_ in json.loads(jobs):
            if doubled.get(job, 0) > 1:
                doubled[job] -= 1
    doubled = {job: applied for job, applied in doubled.items() if applied > 1}
    assert not doubled, f"applied more than once: {doubled}"
    without = connection.execute(
        f"SELECT id FROM {JOBS} WHERE state IN ('Done') AND NOT EXISTS"
        " (SELECT 1 FROM attempts WHERE job_id = every_job.id AND outcome = 'applied')"
    ).fetchall()
    assert not without, f"done without an applied attempt: {without}"


def _legal_histories(connection: Any, states: dict[int, JobState]) -> None:
    """Each job's events lead from its submission to its state by moves of the table, without a gap."""
    moves: dict[int, list[Move]] = {job: [] for job in states}
    for id_, kind, old, new, jobs in connection.execute(
        "SELECT id, kind, old, new, jobs FROM events ORDER BY id"
    ):
        listed = json.loads(jobs)
        if kind == "submitted":
            first, count = listed
            for job in range(first, first + count):
                moves[job].append((id_, 0, kind, old, new))
            continue
        for job, _epoch, previous, *_pilot in listed:
            moves[job].append((id_, previous, kind, old, new))
    last = dict(connection.execute(f"SELECT id, last_event FROM {JOBS}").fetchall())
    for job, events in moves.items():
        before, state = 0, ""
        for id_, previous, kind, old, new in _in_order(job, events):
            assert previous == before, f"job {job}: event {id_} follows {previous}, not {before}"
            assert old == state, f"job {job}: {kind} leaves {old}, but it was {state}"
            if old:
                JOB_STATES.check(JobState(old), JobState(new))
            before, state = id_, new
        assert (before, state) == (last[job], states[job]), f"job {job}: the log ends in {state}"


def _in_order(job: int, events: list[Move]) -> list[Move]:
    """By what each follows: the ids that several servers give are in no order."""
    following = {event[1]: event for event in events}
    assert len(following) == len(events), f"job {job}: two events follow one: {events}"
    found: list[Move] = []
    while (event := following.get(found[-1][0] if found else 0)) is not None and len(found) < len(events):
        found.append(event)
    assert len(found) == len(events), f"job {job}: the log has a gap: {events}"
    return found


def _overlaps_in_the_log(connection: Any) -> None:
    """Where a try was followed by another, the log says that and why the first was no longer waited for."""
    tries: dict[int, list[int]] = {}
    for job, epoch in connection.execute("SELECT job_id, epoch FROM attempts ORDER BY job_id, epoch"):
        tries.setdefault(job, []).append(epoch)
    ended: set[tuple[int, int]] = set()
    for kind, jobs in connection.execute("SELECT kind, jobs FROM events WHERE kind <> 'submitted'"):
        if kind in TOOK_AWAY:
            ended |= {(entry[0], entry[1]) for entry in json.loads(jobs)}
    silent = [
        (job, epoch) for job, epochs in tries.items() for epoch in epochs[:-1] if (job, epoch) not in ended
    ]
    assert not silent, f"tries followed by another without a word: {silent}"
