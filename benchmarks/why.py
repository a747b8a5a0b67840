"""One answer of `why` over HTTP, with a million waiting jobs in thousands of queues."""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from random import Random

from benchmarks.figure import Figure
from benchmarks.filled import count_jobs
from benchmarks.server import served
from pilotage.client import Client
from pilotage.core.ids import QueueId
from pilotage.core.queues.identity import QueueIdentity
from pilotage.store.engine.connection import Connection
from pilotage.store.engine.sqlite import open_writer
from pilotage.store.tables import submissions

SUMMARY = "ms of one answer of why, with a million waiting jobs in 5,000 queues"

SITES = 40


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=1_000_000, help="waiting jobs")
    parser.add_argument("--queues", type=int, default=5000)
    parser.add_argument("--answers", type=int, default=300)


def run(asked: argparse.Namespace) -> Figure:
    with tempfile.TemporaryDirectory(prefix="bench-why-") as name:
        folder = Path(name)
        with served(folder) as client:
            policy = client.policy().text
        with closing(open_writer(folder / "home" / "pilotage.db")) as connection:
            _fill(connection, asked.jobs, asked.queues, _owner(policy))
        with served(folder, again=True) as client:
            times, seen = _measured(client, asked)
    ordered = sorted(times)
    notes = {
        "worst": f"{ordered[-1]:.1f} ms",
        "99 of 100 below": f"{ordered[len(ordered) * 99 // 100]:.1f} ms",
        "jobs": f"{asked.jobs:,} in {asked.queues:,} queues",
        "answers": ", ".join(f"{count} {reason}" for reason, count in sorted(seen.items())),
    }
    ours = round(ordered[len(ordered) // 2], 1)
    limit = 100.0
    return Figure(
        "why", ours, "ms", {"aim": limit}, round(ours / limit, 3), [round(t, 1) for t in times[:10]], notes
    )


def _owner(policy: str) -> tuple[str, str]:
    """The first user of the policy that a new home has, and their group."""
    user = policy.partition('[users."')[2].partition('"')[0]
    return user, "home"


def _fill(connection: Connection, jobs: int, queues: int, owner: tuple[str, str]) -> None:
    """Rows as submissions leave them: many queues of the home's owner, a part of them impossible here."""
    rng = Random(1)
    connection.execute("BEGIN")
    ids = [
        submissions.insert_queue(connection, identity, 0.0) for identity in _identities(queues, owner, rng)
    ]
    _submissions(connection, ids, jobs, owner)
    rows = (
        (job, 1 + (job - 1) % queues, ids[(job - 1) % queues], rng.choice((1, 1, 1, 2, 5)), owner[0])
        for job in range(1, jobs + 1)
    )
    connection.executemany(
        "INSERT INTO jobs (id, submission_id, queue_id, state, user_priority, submitted, owner)"
        " VALUES (?, ?, ?, 'Waiting', ?, 1, ?)",
        rows,
    )
    count_jobs(connection)
    connection.execute("COMMIT")


def _identities(queues: int, owner: tuple[str, str], rng: Random) -> Sequence[QueueIdentity]:
    """Different identities: every fifth fits no node, every tenth has Requirements."""
    found = []
    for number in range(queues):
        impossible = number % 5 == 0
        found.append(
            QueueIdentity(
                *owner,
                cpu_time=rng.choice((500, 5000, 50000, 300000)),
                memory=rng.choice((0, 512, 1000, 2000))
                if not impossible
                else 1_024_000 * rng.choice((1, 2, 3)),
                processors=rng.choice((1, 1, 1, 2)),
                job_type=f"Type{number}",
                banned_sites=frozenset(f"site{rng.randrange(SITES)}" for _ in range(rng.randrange(4))),
                requirements=f"target.Processors >= {number % 2} && target.CPUTime > {number % 100}"
                if number % 10 == 1
                else "",
            )
        )
    return found


def _submissions(
    connection: Connection, queues: Sequence[QueueId], jobs: int, owner: tuple[str, str]
) -> None:
    """One row for each queue; the jobs of all are numbered in turn."""
    sql = (
        "INSERT INTO submissions (id, owner, grp, submitted, description, inputs, names, job_name, job_group,"
        " job_type, queue_id, first_job, count, warnings) VALUES (?, ?, ?, 1, ?, '[]', '[]', '', '', '', ?, ?, ?, '[]')"
    )
    description = json.dumps({"executable": "/bin/sleep", "arguments": ["3600"]})
    rows = ((1 + place, *owner, description, queue, 1, jobs) for place, queue in enumerate(queues))
    connection.executemany(sql, rows)


def _measured(client: Client, asked: argparse.Namespace) -> tuple[list[float], dict[str, int]]:
    """Milliseconds of each answer, and how often each reason was one. Jobs run meanwhile."""
    _until_pilots_ask(client)
    rng = Random(2)
    times: list[float] = []
    seen: dict[str, int] = {}
    for number in itertools.count():
        if len(times) >= asked.answers:
            break
        begun = time.perf_counter()
        if number % 4:
            answer = client.why(rng.randrange(1, asked.jobs + 1))
        else:
            answer = client.why_queue(rng.randrange(1, asked.queues + 1))
        took = (time.perf_counter() - begun) * 1000
        if answer.reason:
            times.append(took)
            seen[answer.reason] = seen.get(answer.reason, 0) + 1
    return times, seen


def _until_pilots_ask(client: Client) -> None:
    """The history has been looked at once, and jobs run."""
    deadline = time.monotonic() + 60
    while not any(pilot.jobs for pilot in client.pilots()) and time.monotonic() < deadline:
        time.sleep(0.2)
