"""Statements for many rows."""

from __future__ import annotations

from typing import Any

import pytest

from pilotage.core.errors import InvalidInput
from pilotage.store.engine import bulk_statements
from pilotage.store.engine.connection import in_list
from pilotage.store.postgresql.connection import COPY_THRESHOLD
from tests.contract.stores import fill

UPLOADS = bulk_statements.insert("uploads", ("owner", "digest", "size", "uploaded"))
IF_NEW = bulk_statements.insert(
    "uploads", ("owner", "digest", "size", "uploaded"), conflict=("owner", "digest"), otherwise="NOTHING",
    returning="size",
)  # fmt: skip
REPLACING = bulk_statements.insert(
    "uploads", ("owner", "digest", "size", "uploaded"), conflict=("owner", "digest"), otherwise="UPDATE"
)
CLAIM = bulk_statements.update(
    "jobs",
    ("pilot_id", "id", "known"),
    "state = 'Matched', epoch = epoch + 1, pilot_id = {pilot_id}, reason = 'of ' || {known}",
    "id = {id} AND state = 'Waiting' AND epoch = {known}",
    returning="id, epoch",
    known="integer",
)
ANY_COUNT = bulk_statements.update("jobs", ("reason", "id"), "reason = {reason}", "id = {id}")
GONE = bulk_statements.delete("jobs", ("id", "state"), "state = {state} AND id = {id}", returning="id")


def rows(connection: Any) -> list[tuple[Any, ...]]:
    return list(connection.execute("SELECT * FROM uploads ORDER BY owner, digest").fetchall())


STRANGE = ["", "{}", "NULL", '"', "\\", "a,b", "None", "%s ? $1", " x ", "ü\t\n", "'"]


def test_every_text_comes_back_as_it_was(connection: Any) -> None:
    given = [("o", text, place, place / 3) for place, text in enumerate(STRANGE)]
    assert connection.execute_bulk(UPLOADS, given) == len(given)
    assert sorted(rows(connection)) == sorted(given)
    condition, value = in_list(connection, "digest", STRANGE)
    sql = f"SELECT count(*) FROM uploads WHERE {condition} AND digest <> ?"
    assert connection.execute(sql, (value, "?")).fetchone() == (len(STRANGE),)
    assert connection.execute("SELECT count(*) FROM uploads WHERE '?' = ?", ("?",)).fetchone() == (
        len(STRANGE),
    )


def test_many_rows_as_well_as_few(connection: Any) -> None:
    given = [("o", f"{number:06} \\ \t", number, 0.1 * number) for number in range(COPY_THRESHOLD * 2)]
    assert connection.execute_bulk(UPLOADS, iter(given)) == len(given)
    assert rows(connection) == given
    assert connection.execute_bulk(UPLOADS, []) == 0


def test_bytes_and_nothing_come_back(connection: Any) -> None:
    results = bulk_statements.insert("results", ("job_id", "epoch", "stdout", "stderr", "outputs", "missing"))
    given = [(1, 1, bytes(range(256)), None, "[]", "[]"), (2, 1, b"", b"\\", "[]", "[]")]
    assert connection.execute_bulk(results, given) == 2
    select = "SELECT job_id, epoch, stdout, stderr, outputs, missing FROM results ORDER BY job_id"
    assert connection.execute(select).fetchall() == given


def test_a_bulk_insert_keeps_or_replaces_present_rows(connection: Any) -> None:
    one, two = ("o", "d", 1, 0.0), ("o", "e", 2, 0.0)
    assert sorted(connection.execute_bulk_returning(IF_NEW, [one, two])) == [(1,), (2,)]
    assert connection.execute_bulk_returning(IF_NEW, [("o", "d", 9, 0.0), ("o", "f", 3, 0.0)]) == [(3,)]
    assert (
        connection.execute_bulk(REPLACING, [("o", "d", 5, 1.0), ("o", "d", 6, 1.0), ("o", "g", 7, 1.0)]) == 3
    )
    assert [row[2] for row in rows(connection)] == [6, 2, 3, 7]


def test_a_conditional_change_returns_the_changed_rows(connection: Any) -> None:
    fill(connection)
    connection.execute("UPDATE jobs SET epoch = 4 WHERE id = 2")
    connection.execute("UPDATE jobs SET state = 'Done' WHERE id = 3")
    asked = [(1, job, 0) for job in (1, 2, 3, 4, 99)]
    assert sorted(connection.execute_bulk_returning(CLAIM, asked)) == [(1, 1), (4, 1)]
    assert connection.execute_bulk(CLAIM, asked) == 0
    assert connection.execute_bulk(CLAIM, [(2, 2, 4), (2, 5, 0), (2, 5, 0)]) == 2
    sql = "SELECT id, pilot_id, epoch, reason FROM jobs WHERE pilot_id = 2 ORDER BY id"
    assert connection.execute(sql).fetchall() == [(2, 2, 5, "of 4"), (5, 2, 1, "of 0")]
    assert sorted(connection.execute_bulk_returning(GONE, [(3, "Done"), (4, "Done")])) == [(3,)]


def test_of_two_changes_of_one_row_the_later_holds(connection: Any) -> None:
    fill(connection)
    assert (
        connection.execute_bulk(ANY_COUNT, [("one", 1), ("two", 2), ("three", 1), ("four", 3), ("five", 1)])
        == 5
    )
    reasons = connection.execute("SELECT reason FROM jobs WHERE id < 4 ORDER BY id").fetchall()
    assert reasons == [("five",), ("two",), ("four",)]


@pytest.mark.parametrize("many", [1, COPY_THRESHOLD])
def test_nul_in_a_text_is_no_reason_to_fail(connection: Any, many: int) -> None:
    assert connection.execute_bulk(UPLOADS, [("a\0b", str(number), 1, 0.0) for number in range(many)]) == many
    connection.execute("UPDATE uploads SET digest = ? WHERE digest = ?", ("c\0d", "0"))
    # PostgreSQL has none; SQLite keeps it.
    kept = {("a\0b",)} if connection.dialect == "sqlite" else {("a\ufffdb",)}
    assert set(connection.execute("SELECT DISTINCT owner FROM uploads")) == kept


def test_a_number_too_large_is_refused_and_nothing_is_kept(store: Any, connection: Any) -> None:
    if store.name == "sqlite":
        pytest.skip("SQLite's integers have one size")
    connection.begin()
    with pytest.raises(InvalidInput, match="out of range"):
        connection.execute("UPDATE instance SET incarnation = ?", (2**40,))
    connection.rollback()
    assert not connection.in_transaction
