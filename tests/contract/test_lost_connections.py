"""PostgreSQL that goes away: what callers are told, and that memory follows the rows."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pilotage.core.errors import Conflict, InvalidInput, Overloaded, PilotageError, Unreachable
from pilotage.store.engine.connection import ConnectionLost
from pilotage.store.postgresql.dsn import DatabaseAddress, lock_exclusive, lock_shared
from pilotage.store.writer.transaction import Transaction
from pilotage.store.writer.writer import Writer
from tests.contract.proxy import Proxy
from tests.contract.stores import Gate, note, noted
from tests.deadlines import PATIENCE
from tests.instance import until
from tests.postgres import PASSWORD, Server, server

pytestmark = pytest.mark.slow


@pytest.fixture
def database() -> Iterator[str]:
    made = server().migrated()
    yield made
    server().drop(made)


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    made = Proxy(server().port)
    yield made
    made.close()


class Told:
    """A writer whose memory is the set of what its requests have noted."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.memory: set[int] = set()
        self.writer = Writer(connection)
        self.writer.start()

    def note(self, number: int) -> int:
        return self.writer.call(lambda tx: self.noting(tx, number))

    def noting(self, tx: Transaction, number: int) -> int:
        note(number)(tx)
        self.memory.add(number)
        tx.on_rollback(lambda: self.reread(tx))
        return number

    def reread(self, tx: Transaction) -> None:
        self.memory = set(noted(tx.connection))

    def agree(self, expected: set[int]) -> None:
        assert self.writer.call(lambda tx: noted(tx.connection)) == sorted(expected)
        assert self.memory == expected

    def end(self) -> None:
        self.writer.stop()
        self.connection.close()


@pytest.fixture
def told(database: str, proxy: Proxy) -> Iterator[Told]:
    url = f"postgresql://postgres:{PASSWORD.replace(' ', '%20')}@127.0.0.1:{proxy.port}/{database}"
    made = Told(DatabaseAddress.parse(url).open_writer(lock_exclusive))
    yield made
    made.end()


def test_lost_before_the_commit_nothing_was_done(told: Told, proxy: Proxy) -> None:
    told.note(1)
    proxy.cut_at(b"INSERT", delivered=False)

    def reads_first(tx: Transaction) -> None:
        noted(tx.connection)
        told.noting(tx, 2)

    with pytest.raises(Overloaded, match="lost") as refused:
        told.writer.call(reads_first)
    assert refused.value.retry_after > 0
    told.agree({1})
    told.note(3)
    told.agree({1, 3})
    assert proxy.cuts == 1


@pytest.mark.parametrize("delivered", [True, False])
def test_a_connection_lost_in_the_commit_has_the_database_asked_for_its_end(
    told: Told, proxy: Proxy, delivered: bool
) -> None:
    told.note(1)
    proxy.cut_at(b"COMMIT", delivered)
    if delivered:
        assert told.note(2) == 2
        told.agree({1, 2})
    else:
        with pytest.raises(Overloaded, match="lost"):
            told.note(2)
        told.agree({1})
    assert proxy.cuts == 1
    assert told.note(3) == 3


def test_a_group_lost_in_the_commit_is_answered_alike_and_not_carried_out_again(
    told: Told, proxy: Proxy
) -> None:
    gate, calls, answers, done = Gate(told.writer), list[int](), list[Any](), threading.Event()

    def request(tx: Transaction, number: int) -> int:
        calls.append(number)
        return told.noting(tx, number)

    def reply(result: Any, error: BaseException | None) -> None:
        answers.append(error or result)
        if len(answers) == 5:
            done.set()

    for number in range(1, 6):
        told.writer.submit(lambda tx, number=number: request(tx, number), reply)
    # The gate's own transaction ends first.
    told.writer.submit(lambda tx: proxy.cut_at(b"COMMIT", delivered=True), lambda result, error: None)
    gate.opened.set()
    assert done.wait(PATIENCE)
    assert answers == calls == [1, 2, 3, 4, 5]
    told.agree({1, 2, 3, 4, 5})


def test_a_connection_lost_between_two_requests_is_replaced_silently(told: Told, database: str) -> None:
    told.note(1)
    with psycopg.connect(server().url("postgres"), autocommit=True) as other:
        sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
        other.execute(sql, (database,))
    told.note(2)
    told.agree({1, 2})


@pytest.mark.parametrize("delivered", [True, False])
def test_a_connection_lost_in_the_first_trip_is_replaced_silently(
    told: Told, proxy: Proxy, delivered: bool
) -> None:
    told.note(1)
    proxy.cut_at(b"INSERT", delivered)
    assert told.note(2) == 2
    told.agree({1, 2})
    assert (proxy.cuts, told.writer.replays, told.writer.races) == (1, 0, 0)


def test_while_the_database_is_away_callers_are_refused_and_afterwards_served(
    told: Told, proxy: Proxy
) -> None:
    told.note(1)
    proxy.open = False
    proxy.cut_at(b"INSERT", delivered=False)
    for number in (2, 3, 4):
        with pytest.raises(Overloaded):
            told.note(number)
    proxy.open = True
    answered = False
    for _ in range(200):
        try:
            told.note(5)
        except Overloaded:
            continue
        answered = True
        break
    assert answered
    told.agree({1, 5})


def test_a_writer_stops_though_the_outcome_is_not_known(told: Told, proxy: Proxy) -> None:
    told.note(1)
    errors: list[BaseException | None] = []

    def last(tx: Transaction) -> None:
        note(2)(tx)
        proxy.open = False
        proxy.cut_at(b"COMMIT", delivered=True)

    told.writer.submit(last, lambda result, error: errors.append(error))
    told.writer.stop()
    assert [type(error) for error in errors] == [ConnectionLost]


def test_a_deadlock_is_carried_out_again(database: str) -> None:
    told = Told(DatabaseAddress.parse(server().url(database)).open_writer())
    told.note(1)
    told.note(2)
    tries = 0
    with psycopg.connect(server().url(database)) as other:
        # The database looks for a deadlock when a session has waited this long: only the writer's session tells it.
        other.execute("SET deadlock_timeout = '1h'")
        other.execute("UPDATE uploads SET size = 20 WHERE digest = '2'")

        def crossing(tx: Transaction) -> None:
            nonlocal tries
            tries += 1
            if tries > 1:
                crosser.join(PATIENCE)
            told.noting(tx, 3)
            tx.connection.execute("UPDATE uploads SET size = 10 WHERE digest = '1'")
            if tries == 1:
                crosser.start()
                until(waits, what="the other session's wait")
            tx.connection.execute("UPDATE uploads SET size = 2 WHERE digest = '2'")

        def waits() -> bool:
            sql = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = %s"
            with psycopg.connect(server().url("postgres")) as looking:
                return looking.execute(sql, (database,)).fetchone() is not None

        def cross() -> None:
            other.execute("UPDATE uploads SET size = 11 WHERE digest = '1'")
            other.commit()

        crosser = threading.Thread(target=cross, daemon=True)
        told.writer.call(crossing)
    assert (tries, told.writer.races, told.writer.replays) == (2, 1, 0)
    assert told.writer.call(lambda tx: noted(tx.connection)) == [2, 3, 10]
    told.end()


def test_a_failure_that_somebody_swallowed_is_no_success(database: str) -> None:
    told = Told(DatabaseAddress.parse(server().url(database)).open_writer())

    def swallows(tx: Transaction) -> None:
        note(1)(tx)
        with pytest.raises(psycopg.errors.UndefinedTable):
            tx.connection.execute("SELECT * FROM nothing")

    with pytest.raises(psycopg.errors.UndefinedTable):
        told.writer.call(swallows)
    assert told.writer.call(lambda tx: noted(tx.connection)) == []
    told.end()


def test_a_number_that_does_not_fit_is_told_to_its_sender_alone(database: str) -> None:
    told = Told(DatabaseAddress.parse(server().url(database)).open_writer())

    def too_large(tx: Transaction) -> None:
        told.noting(tx, 7)
        try:
            tx.connection.execute("UPDATE pilots SET take_number = ?", (2**40,))
        except PilotageError:
            tx.connection.execute("SELECT 1")

    gate, answers, done = Gate(told.writer), list[Any](), threading.Event()

    def reply(result: Any, error: BaseException | None) -> None:
        answers.append(type(error) if error else result)
        if len(answers) == 3:
            done.set()

    for request in (lambda tx: told.noting(tx, 1), too_large, lambda tx: told.noting(tx, 2)):
        told.writer.submit(request, reply)
    gate.opened.set()
    assert done.wait(PATIENCE)
    assert answers == [1, InvalidInput, 2]
    told.agree({1, 2})
    told.end()


def test_a_session_that_the_server_has_not_missed_yet_does_not_keep_its_owner_away(
    told: Told, proxy: Proxy
) -> None:
    told.note(1)
    proxy.hang()  # this side is cut off; the server's session stays, and holds the lock
    told.note(2)
    told.agree({1, 2})


def test_servers_share_a_database_and_an_upgrade_locks_it(database: str) -> None:
    address = DatabaseAddress.parse(server().url(database))
    servers = [address.open_writer(lock_shared) for _ in range(2)]
    with pytest.raises(Conflict, match="a server uses this database"):
        address.open_writer(lock_exclusive)
    for one in servers:
        one.close()
    first = address.open_writer(lock_exclusive)
    with pytest.raises(Conflict, match="upgraded or restored"):
        address.open_writer(lock_shared)
    # Another database of the same server is another instance.
    elsewhere = server().migrated()
    DatabaseAddress.parse(server().url(elsewhere)).open_writer(lock_exclusive).close()
    server().drop(elsewhere)
    first.close()
    address.open_writer(lock_shared).close()


def test_a_crash_of_the_database_loses_nothing_that_was_acknowledged() -> None:
    own = Server()
    try:
        told = Told(DatabaseAddress.parse(own.url(own.migrated())).open_writer(lock_exclusive))
        for number in range(20):
            told.note(number)
        own.stop(signal.SIGQUIT)
        with pytest.raises(Overloaded):
            told.note(99)
        own.start()
        for _ in range(200):
            try:
                told.note(20)
            except Overloaded:
                continue
            break
        told.agree(set(range(21)))
        told.end()
    finally:
        own.end()


def test_readers_are_few_and_come_back(database: str) -> None:
    readers = DatabaseAddress.parse(server().url(database)).readers()
    threads = [threading.Thread(target=lambda: noted(readers.connection())) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    with psycopg.connect(server().url("postgres"), autocommit=True) as other:
        sql = "SELECT {} FROM pg_stat_activity WHERE datname = %s AND application_name = 'pilotage'"
        [count] = other.execute(sql.format("count(*)"), (database,)).fetchone() or (0,)
        assert 0 < count <= 6
        other.execute(sql.format("pg_terminate_backend(pid)"), (database,))
    lost = 0
    for _ in range(12):
        try:
            assert noted(readers.connection()) == []
        except ConnectionLost:
            lost += 1
    assert lost <= 6
    assert noted(readers.connection()) == []
    readers.close()


def test_no_password_is_shown(database: str) -> None:
    address = DatabaseAddress.parse(server().tcp(database, "xyzzy plugh"))
    with pytest.raises(Unreachable) as refused:
        address.open_writer()
    told = (
        f"{refused.value} {refused.value!r} {refused.value.__cause__!r} {address!r} {address} {address.shown}"
    )
    assert "xyzzy" not in told
    assert "password authentication failed" in told
    DatabaseAddress.parse(server().tcp(database)).open_writer().close()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ada:xy/zzy@host/db",
        "postgresql://ada:xy@zzy@host/db",
        "postgresql://ada:12/zzy@host/db",
        "postgresql://ada:xy%zzy@host/db",
        "postgresql://ada:zzy@host:port/db",
        "zzy://host/db",
        "postgresql://ada:zzy@host",
    ],
)
def test_an_address_that_cannot_be_read_is_not_repeated(url: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        DatabaseAddress.parse(url)
    assert "zzy" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.hint


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ada@db.example.org:5433/pool",
        "postgresql://ada@/pool?host=/var/run/postgresql",
        "postgresql://ada@/pool?host=one,two&port=1,2&target_session_attrs=read-write",
        "postgresql://[::1]:5432/pool",
        "postgresql:///pool",
        "postgresql://a%40b@host/a%20b?sslmode=verify-full&sslrootcert=/etc/ca.pem",
    ],
)
def test_an_address_is_remembered_without_its_password(url: str) -> None:
    assert DatabaseAddress.parse(url).shown == url
    if "@h" in url or "@d" in url:
        with_password = DatabaseAddress.parse(url.replace("@h", ":p%2F%40w@h").replace("@d", ":p%2F%40w@d"))
        assert with_password.shown == url
        assert with_password.secrets() == {"PGPASSWORD": "p/@w"}
