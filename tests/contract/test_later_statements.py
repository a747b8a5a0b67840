"""Statements that may wait: what is seen of them, and what becomes of their errors."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pilotage.core.errors import InvalidInput, Overloaded
from pilotage.store.engine import bulk_statements
from pilotage.store.engine.connection import ConnectionLost
from pilotage.store.postgresql import pipeline
from pilotage.store.postgresql.connection import COPY_THRESHOLD, MAX_DEFERRED
from pilotage.store.postgresql.dsn import DatabaseAddress, lock_exclusive
from pilotage.store.writer.transaction import Transaction
from pilotage.store.writer.writer import MAX_RETRIES, Writer
from tests.contract.proxy import Proxy
from tests.contract.stores import Gate, Store, noted
from tests.deadlines import PATIENCE
from tests.postgres import PASSWORD, server

COLUMNS = ("owner", "digest", "size", "uploaded")
UPLOADS = bulk_statements.insert("uploads", COLUMNS)
REPLACING = bulk_statements.insert("uploads", COLUMNS, conflict=("owner", "digest"), otherwise="UPDATE")
ONE = "INSERT INTO uploads (owner, digest, size, uploaded) VALUES ('o', ?, ?, 0.0)"
TOO_LARGE = 2**40


def later(connection: Any, number: int) -> None:
    connection.execute_later(ONE, (str(number), number))


def later_in(number: int) -> Any:
    def request(tx: Transaction) -> int:
        later(tx.connection, number)
        return number

    return request


def too_large(tx: Transaction) -> None:
    """An error that the database tells when it is told of it. SQLite has no such numbers."""
    tx.connection.execute_later("UPDATE pilots SET take_number = ?", (TOO_LARGE,))


@pytest.fixture
def of_servers(store: Store) -> None:
    if store.name == "sqlite":
        pytest.skip("a file is told each statement at once")


def test_a_statement_sees_the_deferred_statements_before_it(connection: Any) -> None:
    connection.begin()
    later(connection, 1)
    assert noted(connection) == [1]
    connection.execute_bulk_later(UPLOADS, [("o", "2", 2, 0.0)])
    connection.execute_bulk_later(REPLACING, iter([("o", "2", 3, 0.0), ("o", "2", 4, 0.0)]))
    assert connection.execute_bulk(REPLACING, [("o", "2", 5, 0.0)]) == 1
    later(connection, 6)
    connection.executemany("UPDATE uploads SET size = size + ? WHERE digest = ?", [(10, "6"), (10, "1")])
    later(connection, 7)
    [rows] = connection.fetch_batches("SELECT size FROM uploads ORDER BY size", (), 9)
    assert [row[0] for row in rows] == [5, 7, 11, 16]
    connection.execute_bulk_later(UPLOADS, [])
    connection.execute_bulk_later(UPLOADS, [("a\0b", "c", 8, 0.0)])
    connection.execute_later("UPDATE uploads SET digest = ? WHERE owner <> 'o'", ("d\0e",))
    connection.commit()
    assert not connection.in_transaction
    assert noted(connection) == [5, 7, 8, 11, 16]


def test_many_and_large_deferred_statements_keep_their_order(connection: Any) -> None:
    connection.begin()
    for number in range(MAX_DEFERRED * 2 + 3):
        later(connection, number)
    connection.execute_bulk_later(
        UPLOADS, [("p", str(n), n, 0.0) for n in range(1000, 1000 + COPY_THRESHOLD)]
    )
    connection.execute_later("UPDATE uploads SET size = size + 5000 WHERE owner = 'p'")
    connection.commit()
    assert noted(connection) == [*range(MAX_DEFERRED * 2 + 3), *range(6000, 6000 + COPY_THRESHOLD)]


def test_outside_of_a_transaction_nothing_waits(connection: Any, store: Store) -> None:
    later(connection, 1)
    connection.execute_bulk_later(UPLOADS, [("o", "2", 2, 0.0)])
    assert noted(store.readers.connection()) == [1, 2]


def test_a_rollback_drops_deferred_statements(connection: Any) -> None:
    connection.begin()
    later(connection, 1)
    connection.rollback()
    connection.begin()
    later(connection, 2)
    connection.commit()
    assert noted(connection) == [2]


def test_deferred_statements_share_the_trip_of_the_next_statement(connection: Any, of_servers: None) -> None:
    connection.begin()
    connection.execute("SELECT 1")
    before = connection.round_trips
    later(connection, 1)
    later(connection, 2)
    assert connection.round_trips == before
    assert noted(connection) == [1, 2]
    later(connection, 3)
    connection.commit()
    assert connection.round_trips == before + 2


def test_the_next_statement_raises_the_error_of_a_deferred_one(connection: Any, of_servers: None) -> None:
    for read_on in (True, False):
        connection.begin()
        later(connection, 1)
        too_large(Transaction(connection))
        later(connection, 2)
        with pytest.raises(InvalidInput, match="out of range"):
            noted(connection) if read_on else connection.commit()
        if read_on:
            # Who swallows it gets it again.
            with pytest.raises(InvalidInput, match="out of range"):
                connection.commit()
        connection.rollback()
        assert not connection.in_transaction
        assert noted(connection) == []


@pytest.mark.parametrize("read_on", [True, False])
def test_an_error_is_told_to_its_sender_alone(writer: Writer, of_servers: None, read_on: bool) -> None:
    def mistaken(tx: Transaction) -> None:
        too_large(tx)
        if read_on:
            noted(tx.connection)

    gate, answers, done = Gate(writer), list[Any](), threading.Event()

    def reply(result: Any, error: BaseException | None) -> None:
        answers.append(type(error) if error else result)
        if len(answers) == 3:
            done.set()

    for request in (later_in(1), mistaken, later_in(2)):
        writer.submit(request, reply)
    gate.opened.set()
    assert done.wait(PATIENCE)
    assert answers == [1, InvalidInput, 2]
    assert writer.replays == 1
    assert writer.call(lambda tx: noted(tx.connection)) == [1, 2]


def test_a_race_that_the_commit_tells_is_run_again(writer: Writer, of_servers: None, store: Store) -> None:
    tries = []

    def racing(tx: Transaction) -> None:
        tries.append(tx)
        later(tx.connection, 1 if len(tries) <= MAX_RETRIES else 2)

    writer.call(later_in(1))
    writer.call(racing)
    assert (len(tries), writer.races, writer.replays) == (MAX_RETRIES + 1, MAX_RETRIES, 0)
    assert noted(store.readers.connection()) == [1, 2]


@pytest.fixture
def proxied() -> Iterator[tuple[Writer, Proxy, Any]]:
    database, proxy = server().migrated(), Proxy(server().port)
    url = f"postgresql://postgres:{PASSWORD.replace(' ', '%20')}@127.0.0.1:{proxy.port}/{database}"
    connection = DatabaseAddress.parse(url).open_writer(lock_exclusive)
    writer = Writer(connection)
    writer.start()
    yield writer, proxy, connection
    writer.stop()
    connection.close()
    proxy.close()
    server().drop(database)


@pytest.mark.slow
@pytest.mark.parametrize("delivered", [True, False])
def test_a_connection_lost_with_the_commits_trip_has_the_database_asked_for_its_end(
    proxied: tuple[Writer, Proxy, Any], delivered: bool
) -> None:
    writer, proxy, _ = proxied
    writer.call(later_in(1))
    proxy.cut_at(b"COMMIT", delivered)
    if delivered:
        assert writer.call(later_in(2)) == 2
    else:
        with pytest.raises(Overloaded, match="lost"):
            writer.call(later_in(2))
    writer.call(later_in(3))
    assert writer.call(lambda tx: noted(tx.connection)) == ([1, 2, 3] if delivered else [1, 3])
    assert proxy.cuts == 1


@pytest.mark.slow
@pytest.mark.parametrize("delivered", [True, False])
def test_lost_before_the_commit_nothing_was_done(proxied: tuple[Writer, Proxy, Any], delivered: bool) -> None:
    writer, proxy, _ = proxied

    def reads_on(tx: Transaction) -> None:
        noted(tx.connection)
        later(tx.connection, 2)
        noted(tx.connection)

    writer.call(later_in(1))
    proxy.cut_at(b"INSERT", delivered)
    with pytest.raises(Overloaded, match="lost"):
        writer.call(reads_on)
    assert writer.call(lambda tx: noted(tx.connection)) == [1]


@pytest.mark.slow
def test_statements_lost_before_the_commit_was_sent_are_not_committed(
    proxied: tuple[Writer, Proxy, Any],
) -> None:
    writer, proxy, connection = proxied
    writer.call(later_in(1))
    connection.begin()
    later(connection, 2)
    proxy.open = False
    proxy.cut_at(b"INSERT", delivered=True)
    with pytest.raises(ConnectionLost):
        connection.commit()
    proxy.open = True
    connection.renew()
    assert connection.was_committed() is False
    assert noted(connection) == [1]


@pytest.mark.slow
def test_a_lost_connection_drops_deferred_statements(proxied: tuple[Writer, Proxy, Any]) -> None:
    writer, _, connection = proxied

    def waits(tx: Transaction) -> None:
        noted(tx.connection)
        with psycopg.connect(server().url("postgres"), autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
                          (connection.execute("SELECT current_database()").fetchone()[0],))  # fmt: skip
        later(tx.connection, 1)
        with pytest.raises(Overloaded):
            noted(tx.connection)
        with pytest.raises(Overloaded):
            later(tx.connection, 2)

    with pytest.raises(Overloaded):
        writer.call(waits)
    assert writer.call(lambda tx: noted(tx.connection)) == []


def test_a_transaction_begins_with_its_first_statement(connection: Any, of_servers: None) -> None:
    before = connection.round_trips
    connection.begin()
    assert connection.in_transaction
    connection.rollback()
    assert not connection.in_transaction
    connection.begin()
    later(connection, 1)
    assert connection.round_trips == before
    connection.commit()  # in two round_trips: without the name of the transaction nobody could ask how it has ended
    assert connection.round_trips == before + 2
    connection.begin()
    connection.rollback()
    connection.begin()
    assert noted(connection) == [1]
    connection.commit()
    assert connection.round_trips == before + 4
    connection.begin()
    connection.commit()  # tells whether this server may still do anything
    assert connection.round_trips == before + 6


def test_a_statement_is_prepared_once_whatever_becomes_of_its_trip(connection: Any, of_servers: None) -> None:
    def prepared(like: str) -> list[tuple[str]]:
        sql = "SELECT statement FROM pg_prepared_statements WHERE statement LIKE ? ORDER BY 1"
        return list(connection.execute(sql, (like,)).fetchall())

    connection.begin()
    for number in range(pipeline.PREPARE_THRESHOLD * 2):  # all in one trip
        later(connection, number)
    connection.commit()
    assert len(prepared("INSERT INTO uploads%")) == 1
    connection.begin()
    too_large(Transaction(connection))
    for _ in range(pipeline.PREPARE_THRESHOLD):  # not carried out: neither is their preparation
        connection.execute_later("DELETE FROM uploads WHERE size = ?", (1,))
    with pytest.raises(InvalidInput):
        connection.commit()
    connection.rollback()
    assert prepared("DELETE%") == []
    connection.execute("DELETE FROM uploads WHERE size = ?", (1,))
    assert len(prepared("DELETE%")) == 1
    assert noted(connection) == [0, *range(2, pipeline.PREPARE_THRESHOLD * 2)]
    for _ in range(pipeline.PREPARE_THRESHOLD + 1):
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("SELECT 1 FROM made_later")
    connection.execute("CREATE TABLE made_later (id bigint)")
    assert connection.execute("SELECT 1 FROM made_later").fetchall() == []


def test_the_number_of_prepared_statements_is_bounded(
    connection: Any, of_servers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "MAX_PREPARED", 2)
    for number in range(9):
        for _ in range(pipeline.PREPARE_THRESHOLD):
            assert connection.execute(f"SELECT {number}").fetchone() == (number,)
    [count] = connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()
    assert count == 2
