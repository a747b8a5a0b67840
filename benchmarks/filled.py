"""A database as a server would have it after many submissions: filled quickly, then analysed."""

from __future__ import annotations

import json
import multiprocessing
import os
import pwd
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.shapes import Shape
from pilotage.core.ids import JobId, PilotId, QueueId, SubmissionId
from pilotage.services.pilots.exchange import token_hash
from pilotage.store.admin.upgrade import sqlite_engine, upgrade
from pilotage.store.engine.connection import Connection, WriterConnection
from pilotage.store.engine.sqlite import SqliteConnection, open_writer
from pilotage.store.postgresql.dsn import DatabaseAddress
from pilotage.store.tables import instance, partitions, pilots, submissions
from pilotage.store.tables.pilots import NewPilot

CE = "farm"
DESCRIPTION = json.dumps({"executable": "/bin/true"})
ONE_BY_ONE = 10_000


@dataclass
class Store:
    """One database, not yet in use by a server. `url`: of PostgreSQL; empty for the file `path`."""

    path: Path
    url: str = ""
    server: Any = None
    """That of PostgreSQL, which ends with the benchmark."""

    @property
    def name(self) -> str:
        return "PostgreSQL, fsync and synchronous_commit" if self.url else "SQLite, synchronous=FULL"

    def open_writer(self) -> WriterConnection:
        return DatabaseAddress.parse(self.url).open_writer() if self.url else open_writer(self.path)


@contextmanager
def store_at(folder: Path, kind: str) -> Generator[Store]:
    """An empty store with the schema; a file is that of the home `folder`/home."""
    path = folder / "home" / "pilotage.db"
    path.parent.mkdir(mode=0o700, parents=True)
    if kind == "sqlite":
        engine = sqlite_engine(path)
        upgrade(engine)
        engine.dispose()
        yield Store(path)
        return
    from benchmarks.postgres import durable

    with durable() as server:
        yield Store(path, server.url(server.migrated()), server)


def fill(store: Store, shape: Shape, rule: str, tokens: Sequence[str], *, interleaved: bool = False) -> float:
    """Queues, submissions, waiting jobs, a policy, and a running pilot for each of `tokens`; the seconds it took.

    The jobs of a submission have ids one after another. `interleaved`: one submission in each queue, and the jobs of
    all of them in turn, so that no two of a queue lie on one page.
    """
    begun = time.perf_counter()
    with closing(store.open_writer()) as connection:
        connection.begin()
        instance.create(connection, "bench", time.time())
        instance.save_policy(
            connection, text=policy_text(shape, rule), now=1.0, by="bench", reason="benchmark"
        )
        ids = [submissions.insert_queue(connection, one, 0.0) for one in shape.queues]
        _pilots(connection, shape.sites, tokens)
        if interleaved:
            _in_turn(store, connection, shape, ids)
        else:
            _as_submitted(store, connection, shape, ids)
        connection.commit()
        _settled(store, connection)
    return time.perf_counter() - begun


def fill_apart(
    store: Store, shape: Shape, rule: str, tokens: Sequence[str], *, interleaved: bool = False
) -> float:
    """Run `fill` in a separate process, so that it does not count in the measured memory of this process."""
    begun = time.perf_counter()
    process = multiprocessing.get_context("fork").Process(
        target=fill, args=(store, shape, rule, tokens), kwargs={"interleaved": interleaved}
    )
    process.start()
    process.join()
    if process.exitcode:
        raise RuntimeError(f"the database could not be filled: exit code {process.exitcode}")
    return time.perf_counter() - begun


def policy_text(shape: Shape, rule: str) -> str:
    """All owners of the shape, its sites, one CE; who runs this may end the server."""
    owners = sorted({(one.owner, one.group) for one in shape.queues})
    groups = sorted({group for _, group in owners})
    lines = [f'[matching]\nrule = "{rule}"']
    lines += [f"[groups.{group}]\nshare = {1000 * (place + 1)}" for place, group in enumerate(groups)]
    lines.append('[groups.home]\nshare = 1\nproperties = ["NORMAL_USER", "ADMINISTRATOR"]')
    for owner in sorted({owner for owner, _ in owners}):
        lines.append(f"[users.{owner}]\ngroups = {json.dumps([g for o, g in owners if o == owner])}")
    lines.append(f'[users."{pwd.getpwuid(os.getuid()).pw_name}"]\ngroups = ["home"]')
    lines += [f'[sites."{site}"]' for site in shape.sites]
    lines.append(f'[ces.{CE}]\nsite = "{shape.sites[0]}"\nowners = "any"')
    return "\n".join(lines)


def _pilots(connection: Connection, sites: Sequence[str], tokens: Sequence[str]) -> None:
    for number, token in enumerate(tokens):
        pilot: PilotId = pilots.insert(
            connection,
            NewPilot(
                id=None,
                stamp=f"stamp {number}",
                secret_hash="s",
                idx=number,
                site=sites[number % len(sites)],
                ce=CE,
                only_owner=None,
                pilot_type="generic",
                # More than any node has, so that the node's count. To the director of a server all of the CE is in use.
                processors=1024,
                memory=0,
                # Far ahead: the director of a server gives a pilot without process a minute from then.
                submitted=time.time() + 86400,
            ),
        )
        lease = time.time() + 86400 * 7
        hashed = token_hash(token)
        pilots.update(connection, pilot, token_hash=hashed, state="Running", started=1.0, lease_until=lease)


def _as_submitted(store: Store, connection: WriterConnection, shape: Shape, ids: Sequence[QueueId]) -> None:
    made = list(_made(shape, ids))
    _insert_submissions(connection, [row for row, _ in made])
    if store.url:
        connection.commit()
        _copy(
            store,
            (
                f"{job}\t{row.id}\t{row.queue}\tWaiting\t{priority}\t1\t{row.id}\t{row.owner}\n"
                for row, priority in made
                for job in range(row.first_job, row.first_job + row.count)
            ),
        )
        connection.begin()
        count_jobs(connection)
        return
    for row, priority in made:
        submissions.insert_jobs(connection, row, row.first_job, [None] * row.count, priority, row.id, 1.0)


def _made(shape: Shape, ids: Sequence[QueueId]) -> Iterator[tuple[submissions.SubmissionRow, int]]:
    first = 1
    for number, one in enumerate(shape.submissions, 1):
        yield (
            _submission(number, ids[one.queue], shape.queues[one.queue].owner, first, one.jobs),
            one.priority,
        )
        first += one.jobs


def _submission(number: int, queue: QueueId, owner: str, first: int, jobs: int) -> submissions.SubmissionRow:
    return submissions.SubmissionRow(
        SubmissionId(number), owner, "g", None, 1.0, DESCRIPTION, "[]", (), "", "", "", queue, JobId(first), jobs, ()
    )  # fmt: skip


def _insert_submissions(connection: Connection, rows: Sequence[submissions.SubmissionRow]) -> None:
    """With the event of each, which its jobs point to."""
    connection.executemany(
        "INSERT INTO submissions (id, owner, grp, submitted, description, inputs, names, job_name, job_group,"
        " job_type, queue_id, first_job, count, warnings)"
        " VALUES (?, ?, ?, 1, ?, '[]', '[]', '', '', '', ?, ?, ?, '[]')",
        [(r.id, r.owner, r.group, r.description, r.queue, r.first_job, r.count) for r in rows],
    )
    connection.executemany(
        "INSERT INTO events (id, at, kind, actor, old, new, detail, jobs)"
        " VALUES (?, 1, 'submitted', 'user:bench', '', 'Waiting', '', ?)",
        [(r.id, f"[{r.first_job}, {r.count}]") for r in rows],
    )


def _in_turn(store: Store, connection: WriterConnection, shape: Shape, ids: Sequence[QueueId]) -> None:
    rng, jobs, queues = Random(6), shape.jobs, len(ids)
    _insert_submissions(
        connection,
        [
            _submission(place + 1, queue, shape.queues[place].owner, 1, jobs if place == 0 else 1)
            for place, queue in enumerate(ids)
        ],
    )
    rows = (
        (
            *(job, 1 + job % queues, ids[job % queues], rng.choice((1, 1, 1, 2, 5))),
            shape.queues[job % queues].owner,
        )
        for job in range(1, jobs + 1)
    )
    if store.url:
        connection.commit()
        lines = (f"{job}\t{s}\t{queue}\tWaiting\t{p}\t1\t{s}\t{owner}\n" for job, s, queue, p, owner in rows)
        _copy(store, lines)
        connection.begin()
    else:
        connection.executemany(
            "INSERT INTO jobs (id, submission_id, queue_id, state, user_priority, submitted, last_event, owner)"
            " VALUES (?1, ?2, ?3, 'Waiting', ?4, 1, ?2, ?5)",
            rows,
        )
    count_jobs(connection)


def count_jobs(connection: Connection) -> None:
    """Let the counters of jobs follow from rows that were written by hand."""
    month = partitions.month_sql(connection, "ended")
    for sql in (
        "DELETE FROM count_changes",
        "DELETE FROM submission_counts",
        "DELETE FROM owner_counts",
        "INSERT INTO submission_counts (submission_id, month, state, jobs)"
        " SELECT submission_id, 0, state, count(*) FROM jobs GROUP BY submission_id, state"
        f" UNION ALL SELECT submission_id, {month}, state, count(*) FROM history GROUP BY 1, 2, 3",
        "INSERT INTO owner_counts (month, owner, grp, state, jobs) SELECT c.month, s.owner, s.grp, c.state, sum(c.jobs)"
        " FROM submission_counts c JOIN submissions s ON s.id = c.submission_id GROUP BY 1, 2, 3, 4",
    ):
        connection.execute(sql)


def _copy(store: Store, lines: Iterator[str]) -> None:
    sql = "COPY jobs (id, submission_id, queue_id, state, user_priority, submitted, last_event, owner) FROM STDIN"
    with DatabaseAddress.parse(store.url).session() as session, session.cursor().copy(sql) as copy:
        block: list[str] = []
        for line in lines:
            block.append(line)
            if len(block) == ONE_BY_ONE:
                copy.write("".join(block))
                block.clear()
        copy.write("".join(block))


def _settled(store: Store, connection: WriterConnection) -> None:
    """Nothing of the filling is left to be done while something is measured."""
    if store.url:
        connection.execute("VACUUM (ANALYZE)")
        connection.execute("CHECKPOINT")
        return
    assert isinstance(connection, SqliteConnection)
    connection.execute("ANALYZE")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
