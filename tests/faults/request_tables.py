"""Data sets and assigned requests, written to the database of a running server beside it."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TypeVar

from pilotage.core.jobs.description import JobDescription
from pilotage.core.requests.json_format import specification_to_text, splitting_to_text, stored_steps
from pilotage.core.requests.specification import Program, Specification, Step, StepSplitting
from tests.deadlines import PATIENCE
from tests.faults.mask_audit import RequestAudit, audit_request
from tests.instance import Instance, until

T = TypeVar("T")
FILES_PER_JOB = 2


@contextmanager
def database(instance: Instance) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(instance.home / "pilotage.db", timeout=PATIENCE)) as connection:
        yield connection


def add_request(
    instance: Instance, blocks: int, files_per_block: int, *, team: str = "home", events: int = 10
) -> int:
    """A request of one step, FileBased, with one element for each block."""
    step = Step(
        "process",
        Program(JobDescription("/bin/true")),
        StepSplitting("FileBased", (("files_per_job", FILES_PER_JOB),)),
    )
    text = specification_to_text(Specification("work", (step,)))
    now = time.time()
    with database(instance) as connection, connection:
        connection.execute("BEGIN IMMEDIATE")
        row = connection.execute("SELECT coalesce(max(id), 0) + 1 FROM datasets").fetchone()
        dataset = row[0]
        connection.execute(
            "INSERT INTO datasets (id, name, owner, grp, created, open) VALUES (?, ?, 'root', 'home', ?, 0)",
            (dataset, f"/data/{dataset}", now),
        )
        connection.execute(
            """INSERT OR IGNORE INTO location_sets (digest, sites) VALUES ('of-here', '["here"]')"""
        )
        (location,) = connection.execute("SELECT id FROM location_sets WHERE digest = 'of-here'").fetchone()
        (last,) = connection.execute("SELECT coalesce(max(closed_number), 0) FROM blocks").fetchone()
        for block in range(blocks):
            (id_,) = connection.execute(
                "INSERT INTO blocks (dataset_id, name, created, open, closed_number, files, events, size,"
                " location_set, located) VALUES (?, ?, ?, 0, ?, ?, ?, ?, ?, ?) RETURNING id",
                (
                    *(dataset, f"b{block}", now, last + block + 1, files_per_block, files_per_block * events),
                    *(files_per_block * 1000, location, now),
                ),
            ).fetchone()
            connection.executemany(
                "INSERT INTO files (dataset_id, block_id, name, size, events, created)"
                " VALUES (?, ?, ?, 1000, ?, ?)",
                [(dataset, id_, f"b{block}/{file}", events, now) for file in range(files_per_block)],
            )
        (request,) = connection.execute(
            "INSERT INTO requests (name, owner, grp, priority, team, campaign, state, specification, sites,"
            " created, changed) VALUES ('work', 'root', 'home', 8000, ?, '', 'assigned', ?, '[\"*\"]', ?, ?)"
            " RETURNING id",
            (team, text, now, now),
        ).fetchone()
        (planned,) = stored_steps(text, request)
        connection.execute(
            "INSERT INTO request_steps (request_id, position, name, type, start_policy, splitting, input_dataset)"
            " VALUES (?, 0, ?, ?, ?, ?, ?)",
            (
                *(request, planned.name, str(planned.type), planned.start_policy),
                *(splitting_to_text(planned.splitting), dataset),
            ),
        )
    return int(request)


def element_states(instance: Instance, request: int) -> dict[str, int]:
    with database(instance) as connection:
        return dict(
            connection.execute(
                "SELECT state, count(*) FROM elements WHERE request_id = ? GROUP BY state", (request,)
            ).fetchall()
        )


def all_split(instance: Instance, request: int, elements: int) -> None:
    """Wait until every element of a request is split."""

    def look() -> bool:
        states = element_states(instance, request)
        unsplit = {"Available", "Negotiating", "Acquired"} & states.keys()
        return sum(states.values()) == elements and not unsplit

    until(look, what=f"the splitting of request {request}")


def audited(instance: Instance, request: int, jobs: int) -> RequestAudit:
    """Every file of a request is in exactly one mask."""
    with database(instance) as connection:
        audit = audit_request(connection, request, complete=False)
        masks = [json.loads(text) for (text,) in connection.execute(
            "SELECT mask FROM element_jobs WHERE request_id = ?", (request,)
        )]  # fmt: skip
        wanted = connection.execute(
            "SELECT files.id FROM files JOIN request_steps ON files.dataset_id = input_dataset WHERE request_id = ?",
            (request,),
        ).fetchall()
    named = sorted(part[0] for mask in masks for part in mask["files"])
    assert named == sorted(id_ for (id_,) in wanted)
    assert len(masks) == jobs
    return audit


def read(instance: Instance, look: Callable[[sqlite3.Connection], T]) -> T:
    with database(instance) as connection:
        return look(connection)
