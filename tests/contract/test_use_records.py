"""Attempts with their use, and rows of the audit log, on each store: pages are complete and in order."""

from __future__ import annotations

from typing import Any

import pytest

from pilotage.store.tables import accounted, audit_log, usage
from pilotage.store.tables.audit_log import MOST_TEXT, AuditRow
from pilotage.wire.attempts import JobAttempt
from tests.contract.stores import fill


def insert_attempt(connection: Any, job: int, epoch: int, ended: float | None, wall: float = 0.0) -> None:
    connection.execute(
        "INSERT INTO attempts (job_id, epoch, attempt, pilot_id, started, ended, outcome, wall, cpu, processors,"
        " owner, grp, site) VALUES (?, ?, ?, 1, 10, ?, ?, ?, 5, 2, ?, 'physics', 'here')",
        (job, epoch, epoch, ended, None if ended is None else "applied", wall, "alice" if job < 3 else "bob"),
    )


@pytest.fixture
def filled(connection: Any) -> Any:
    fill(connection)
    for job, epoch, ended, wall in (
        (1, 1, 20.0, 0.0), (1, 2, 20.0, 4.0), (2, 1, 20.0, 0.0), (3, 1, 30.0, 0.0),
        (4, 1, None, 0.0), (5, 1, 40.0, 0.0),
    ):  # fmt: skip
        insert_attempt(connection, job, epoch, ended, wall)
    return connection


def test_pages_of_ended_attempts_have_each_one_once(filled: Any) -> None:
    found, after = [], (0.0, 0, 0)
    while rows := accounted.page(filled, 20.0, 40.0, after, 1, None):
        [row] = rows
        found.append((row.ended, row.job, row.epoch))
        after = found[-1]
    assert found == [(20.0, 1, 1), (20.0, 1, 2), (20.0, 2, 1), (30.0, 3, 1)]
    whole = accounted.page(filled, 20.0, 40.0, (0.0, 0, 0), 100, None)
    assert [(row.ended, row.job, row.epoch) for row in whole] == found
    assert [row.wall for row in whole] == [10.0, 4.0, 10.0, 20.0]
    assert {row.ce for row in whole} == {"ce here"}
    mine = accounted.page(filled, 0.0, 100.0, (0.0, 0, 0), 100, "bob")
    assert [row.job for row in mine] == [3, 5]


def test_attempts_of_jobs_have_the_wall_time_that_usage_counts(filled: Any) -> None:
    rows = usage.attempts_of(filled, [4, 1], JobAttempt)
    assert [(row.job, row.attempt, row.wall, row.outcome) for row in rows] == [
        (1, 1, 10.0, "applied"),
        (1, 2, 4.0, "applied"),
        (4, 1, 0.0, ""),
    ]
    [account] = [row for row in usage.usage_by_account(filled, 0.0, 25.0) if row.owner == "alice"]
    ended = usage.attempts_of(filled, [1, 2], JobAttempt)
    assert account.core_wall == sum(row.wall * row.processors for row in ended)


def test_the_audit_log_is_read_by_time_and_user_and_forgotten(connection: Any) -> None:
    for at, user in ((1.0, "ada"), (2.0, "ben"), (3.0, "ada")):
        audit_log.insert(
            connection, AuditRow(at, user, "g", "::1", "POST /v1/bans", "x" * 9000, "before", "after", "why")
        )

    def read(after: int = 0, limit: int = 10, since: float = 0.0, user: str = "") -> list[float]:
        return [row.at for _, row in audit_log.page(connection, after, limit, since, user)]

    assert read() == [3.0, 2.0, 1.0]
    assert read(since=2.0) == [3.0, 2.0]
    assert read(user="ada") == [3.0, 1.0]
    [(newest, row)] = audit_log.page(connection, 0, 1, 0.0, "")
    assert read(after=newest) == [2.0, 1.0]
    assert len(row.target) == MOST_TEXT
    assert audit_log.delete_before(connection, 3.0, 1) == 1
    assert read() == [3.0, 2.0]
