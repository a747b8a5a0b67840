"""The jobs that have ended, in the order of their end: the history that the twin records."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from pilotage.core.ids import JobId, QueueId, SubmissionId
from pilotage.store.tables import chunks, ended_jobs, history, instance, retention, submissions
from pilotage.store.tables.ended_jobs import Demand, EndedJobRow
from tests.contract.stores import IDENTITY, recount

DEMANDS: tuple[dict[str, Any], ...] = (
    {},
    {"processors": 4, "memory": 500},
    {"wall_time": 60, "cpu_time": 30, "executable": "x"},
)


@pytest.fixture
def ended(connection: Any) -> dict[int, EndedJobRow]:
    """Jobs of three submissions: most have ended, many at the same instant. The rows that a page must have."""
    rng, rows = Random(3), dict[int, EndedJobRow]()
    instance.create(connection, "uuid", 5.0)
    connection.begin()
    submissions.insert_queue(connection, IDENTITY, 1.0)
    for number, demand in enumerate(DEMANDS, 1):
        first = 20 * number
        add_submission(connection, number, first, 20, demand)
        for job in range(first, first + 17):
            at = float(rng.randrange(10))
            rows[job] = EndedJobRow(job, number, *end(connection, job, number, at, rng.randrange(4)))
    recount(connection)
    connection.commit()
    return rows


def add_submission(connection: Any, number: int, first: int, count: int, demand: dict[str, Any]) -> None:
    description = json.dumps({"executable": "/bin/true", **demand})
    row = submissions.SubmissionRow(
        SubmissionId(number), f"owner{number}", "physics", None, float(number), description, "[]", (), "", "",
        "User", QueueId(1), JobId(first), count, (),
    )  # fmt: skip
    submissions.insert(connection, row)
    chunk = chunks.ChunkRow(row.id, 0, "", JobId(first), count, 0, float(number))
    chunks.insert(connection, chunk, "[]")
    submissions.insert_jobs(connection, row, JobId(first), [None] * count, 1, number, float(number), None)
    chunks.save_made(connection, chunk, count)


def end(
    connection: Any, job: int, submitted: int, at: float, kind: int
) -> tuple[str, float, float, float | None, int | None]:
    """End a job: by an attempt with or without its own wall time, after a lost attempt, or without any attempt."""
    state = "Killed" if kind == 3 else "Done"
    connection.execute(
        "UPDATE jobs SET state = ?, final_state = ?, ended = ?, epoch = 2, finished_epoch = ? WHERE id = ?",
        (state, state, at, 0 if kind == 3 else 2, job),
    )
    if kind == 3:
        return state, float(submitted), at, None, None
    wall = 7.5 if kind == 1 else 0.0
    attempts = [(2, at - 3, "applied", wall, 4)] + ([(1, at - 90, "lost", 80.0, 1)] if kind == 2 else [])
    for epoch, started, outcome, seconds, cores in attempts:
        connection.execute(
            "INSERT INTO attempts (job_id, epoch, attempt, pilot_id, started, ended, outcome, owner, grp, site, wall,"
            " processors) VALUES (?, ?, ?, 1, ?, ?, ?, 'o', 'g', 'here', ?, ?)",
            (job, epoch, epoch, started, at, outcome, seconds, cores),
        )
    return state, float(submitted), at, wall or 3.0, 4


def pages(connection: Any, since: float, most: int) -> list[EndedJobRow]:
    """All rows, page by page."""
    found, after = list[EndedJobRow](), 0
    while True:
        page = ended_jobs.page(connection, since, after, most)
        assert len(page.jobs) <= most
        found += page.jobs
        if page.last is None:
            return found
        since, after = page.last.ended, page.last.id


def in_order(rows: dict[int, EndedJobRow], since: float) -> list[EndedJobRow]:
    return sorted((row for row in rows.values() if row.ended >= since), key=lambda row: (row.ended, row.id))


@pytest.mark.parametrize("most", [1, 7, 1000])
def test_each_job_is_on_one_page(connection: Any, ended: dict[int, EndedJobRow], most: int) -> None:
    assert pages(connection, 0.0, most) == in_order(ended, 0.0)
    assert pages(connection, 4.0, most) == in_order(ended, 4.0)
    assert pages(connection, 11.0, most) == []


def test_archived_jobs_are_among_the_others(connection: Any, ended: dict[int, EndedJobRow]) -> None:
    assert history.archive(connection, 5.0, 20)
    assert connection.execute("SELECT count(*) FROM history").fetchone()[0] > 0
    assert connection.execute("SELECT count(*) FROM jobs WHERE ended IS NOT NULL").fetchone()[0] > 0
    assert pages(connection, 0.0, 5) == in_order(ended, 0.0)


def test_submissions_tell_owner_and_demand(connection: Any, ended: dict[int, EndedJobRow]) -> None:
    page = ended_jobs.page(connection, 0.0, 0, 1000)
    assert page.submissions == {
        1: ("owner1", "physics", Demand()),
        2: ("owner2", "physics", Demand(processors=4, memory=500)),
        3: ("owner3", "physics", Demand(wall_time=60, cpu_time=30)),
    }


def test_large_descriptions_shorten_a_page(
    connection: Any, ended: dict[int, EndedJobRow], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ended_jobs, "MAX_DESCRIPTION_BYTES", 10)
    monkeypatch.setattr(ended_jobs, "SUBMISSIONS_AT_ONCE", 1)
    first = ended_jobs.page(connection, 0.0, 0, 1000)
    assert len(first.submissions) == 1
    assert first.last is not None
    assert pages(connection, 0.0, 1000) == in_order(ended, 0.0)


def test_it_is_known_from_when_on_all_are_there(connection: Any, ended: dict[int, EndedJobRow]) -> None:
    assert ended_jobs.whole_since(connection, 77.0) == 0.0
    retention.add_progress(connection, "jobs", 1.0, 3)
    assert ended_jobs.whole_since(connection, 77.0) == 77.0
