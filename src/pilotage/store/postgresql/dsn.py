"""Where a PostgreSQL database is, and sessions of it. The password in an address is never shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

import psycopg
import sqlalchemy as sa
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pilotage.core.errors import Conflict, InvalidInput, Unreachable
from pilotage.store.engine.connection import ConnectionLost
from pilotage.store.postgresql.connection import PostgresqlConnection, one_line, send_integers_as_bigint
from pilotage.store.postgresql.notify import ListeningSession
from pilotage.store.postgresql.pipeline import Session
from pilotage.store.postgresql.readers import PostgresqlReaders

MIN_VERSION = 14
ADVISORY_LOCK = 0x50494C4F54
"""The advisory lock ("PILOT"): shared by the servers of a database, exclusive for schema changes."""
LOCK_TIMEOUT = 2000
"""Milliseconds that a server's writer waits for a row. A frozen server holds its rows for up to a minute."""
_URL_FORM = "postgresql://USER@HOST:PORT/DATABASE"
_SETTINGS = {
    "application_name": "pilotage",
    "connect_timeout": "10",
    # A server that has gone silently is noticed within a minute.
    "keepalives": "1",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
    "client_encoding": "utf8",
}
_OPTIONS = (
    "-c jit=off -c idle_in_transaction_session_timeout=60000"
    # The server, too, has to notice that this side has gone: its session holds locks.
    " -c tcp_keepalives_idle=30 -c tcp_keepalives_interval=10 -c tcp_keepalives_count=3"
)
_SESSION_IDENTITY = "SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()"
_END_IDLE = (
    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
    " WHERE pid = %s AND backend_start = %s AND state LIKE 'idle%%'"
)
_READER_OPTIONS = "-c default_transaction_read_only=on -c statement_timeout=300000"
_SECRETS = {"password": "PGPASSWORD"}
"""Name in an address, and in the environment of PostgreSQL's programs."""


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """Made by `parse`."""

    _conninfo: str = field(repr=False)
    shown: str
    """For people: without password."""

    @classmethod
    def parse(cls, url: str) -> DatabaseAddress:
        """Read `postgresql://USER@HOST:PORT/DATABASE` and the extensions of libpq; else `InvalidInput`."""
        scheme = url.partition("://")[0]
        if scheme not in ("postgresql", "postgres"):
            raise InvalidInput(
                "the address of the database is none of PostgreSQL", hint=f"give it as {_URL_FORM}"
            )
        facts = _parse_conninfo(url)
        if facts.get("sslpassword"):
            raise InvalidInput(
                "the address of the database has the password of a key",
                hint="take a key without one, mode 600",
            )
        if not facts.get("dbname"):
            raise InvalidInput(
                "the address of the database names no database", hint=f"give it as {_URL_FORM}"
            )
        secrets = {name: str(facts.pop(name)) for name in _SECRETS if facts.get(name)}
        shown = _format_url({name: str(value) for name, value in facts.items()})
        own = str(facts.pop("options", ""))
        settings = {**_SETTINGS, **{name: str(value) for name, value in facts.items()}, **secrets}
        return cls(make_conninfo(**settings, options=f"{_OPTIONS} {own}".strip()), shown)

    def secrets(self) -> dict[str, str]:
        """The passwords missing in `shown`, as environment variables of PostgreSQL's programs."""
        known = conninfo_to_dict(self._conninfo)
        return {variable: str(known[name]) for name, variable in _SECRETS.items() if name in known}

    @property
    def has_password(self) -> bool:
        return bool(self.secrets())

    def session(self, options: str = "") -> Session:
        """A session in autocommit mode. Raises `ConnectionLost` where none can be had now."""
        conninfo = self._conninfo
        if options:
            own = conninfo_to_dict(conninfo).get("options", "")
            conninfo = make_conninfo(conninfo, options=f"{options} {own}")
        try:
            session = psycopg.connect(conninfo, autocommit=True)
        except psycopg.Error as error:
            words = one_line(str(error)).removeprefix("connection failed: ")
            raise ConnectionLost(f"the database {self.shown} cannot be reached: {words}") from None
        send_integers_as_bigint(session)
        return session

    async def listening(self) -> ListeningSession:
        """A session in autocommit mode for an event loop. Raises `ConnectionLost` if none can be had now."""
        try:
            return await psycopg.AsyncConnection.connect(self._conninfo, autocommit=True)
        except psycopg.Error as error:
            raise ConnectionLost(
                f"the database {self.shown} cannot be reached: {one_line(str(error))}"
            ) from None

    def engine(self) -> sa.Engine:
        """For migrations only: everything else goes through the writer and the readers."""
        return sa.create_engine(
            "postgresql+psycopg://",
            creator=lambda: psycopg.connect(self._conninfo),
            poolclass=sa.pool.NullPool,
        )

    def readers(self) -> PostgresqlReaders:
        return PostgresqlReaders(lambda: self.session(_READER_OPTIONS))

    def open_writer(self, hold: Callable[[Session], None] | None = None) -> PostgresqlConnection:
        """The session that writes. `hold` makes sure of it that nobody else does, at each beginning of the session.

        Raises `Unreachable`, and `InvalidInput` for a server that cannot be used.
        """
        before: list[tuple[Any, ...]] = []

        def connect() -> Session:
            session = self.session()
            try:
                for known in before:
                    # Our own of before, which may hold locks though this side has lost it. One that is in its COMMIT is
                    # left to end it: it may wait for a standby.
                    session.execute(_END_IDLE, known)
                before[:] = session.execute(_SESSION_IDENTITY).fetchall()
                if session.execute("SHOW synchronous_commit").fetchone() == ("off",):
                    # Acknowledged writes must survive a crash, which the server's setting does not guarantee.
                    session.execute("SET synchronous_commit = on")
                if hold is not None:
                    hold(session)
            except BaseException:
                session.close()
                raise
            return session

        connection = PostgresqlConnection(connect)
        try:
            connection.renew()
        except ConnectionLost as error:
            raise Unreachable(
                error.message, hint="is the server running, and are its name, port, user and password right?"
            ) from None
        return connection

    def check(self) -> None:
        """Refuse a server that is too old, or a database that cannot hold every text."""
        try:
            with self.session() as session:
                version = session.info.server_version // 10000
                [encoding] = session.execute("SHOW server_encoding").fetchone() or ("",)
        except ConnectionLost as error:
            raise Unreachable(
                error.message, hint="is the server running, and are its name, port, user and password right?"
            ) from None
        if version < MIN_VERSION:
            raise InvalidInput(
                f"{self.shown} is a PostgreSQL {version}",
                hint=f"Pilotage needs {MIN_VERSION} or newer: upgrade the server",
            )
        if encoding != "UTF8":
            raise InvalidInput(
                f"the database {self.shown} has the encoding {encoding}, which cannot hold every text",
                hint="make another: createdb --encoding UTF8 --template template0 NAME",
            )


def _parse_conninfo(url: str) -> dict[str, Any]:
    """Parse the address by libpq. Its error text is not shown, because it may quote the password."""
    try:
        facts = dict(conninfo_to_dict(url))
    except (psycopg.ProgrammingError, UnicodeError):
        facts = {"host": "@"}
    host, port, database = (str(facts.get(name) or "") for name in ("host", "port", "dbname"))
    # A / or @ in a password that is not written as % ends up there.
    if "@" in host + database or "/" in database or (not port.replace(",", "").isdigit() and port):
        raise InvalidInput(
            "the address of the database cannot be read",
            hint=f"give it as {_URL_FORM}; write %40 for @, %2F for / and %25 for % in names and passwords",
        )
    return facts


def _format_url(facts: dict[str, str]) -> str:
    """The address of these facts, as libpq reads it."""
    user, host, port = (facts.pop(name, "") for name in ("user", "host", "port"))
    database = quote(facts.pop("dbname"), safe="")
    if "/" in host or "," in host:  # a socket's folder, or several servers
        facts = {"host": host, **({"port": port} if port else {}), **facts}
        host = port = ""
    at = f"{quote(user, safe='')}@" if user else ""
    inside = f"[{host}]" if ":" in host else host
    more = f"?{urlencode(facts, quote_via=quote, safe='/,')}" if facts else ""
    return f"postgresql://{at}{inside}{f':{port}' if port else ''}/{database}{more}"


def lock_shared(session: Session) -> None:
    """Hold the database for a server, until the session ends, beside other servers; `Conflict` while it is changed."""
    if not _try_lock(session, "pg_advisory_lock_shared"):
        raise Conflict(
            f"the database is being upgraded or restored, {_lock_holder(session)}",
            hint="wait for the end of that, then start the server",
        )
    session.execute(f"SET lock_timeout = {LOCK_TIMEOUT}".encode())


def lock_exclusive(session: Session) -> None:
    """Hold the database until the session ends; `Conflict` if a server uses it."""
    if not _try_lock(session, "pg_advisory_lock"):
        raise Conflict(
            f"a server uses this database, {_lock_holder(session)}",
            hint="end all servers of this database first (`pilotage down` at each)",
        )


def _try_lock(session: Session, function: str) -> bool:
    """Waits a little: the database notices the end of a session in its own time."""
    session.execute("SET lock_timeout = '2s'")
    try:
        session.execute(f"SELECT {function}(%s)".encode(), (ADVISORY_LOCK,))
    except psycopg.errors.LockNotAvailable:
        return False
    session.execute("RESET lock_timeout")
    return True


def _lock_holder(session: Session) -> str:
    holder = session.execute(
        "SELECT coalesce(host(a.client_addr), 'the same machine'), a.pid,"
        " to_char(a.backend_start, 'YYYY-MM-DD HH24:MI') FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid"
        " WHERE l.locktype = 'advisory' AND l.granted AND l.classid = %s AND l.objid = %s"
        " AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())",
        (ADVISORY_LOCK >> 32, ADVISORY_LOCK & 0xFFFFFFFF),
    ).fetchone()
    return f"from {holder[0]} since {holder[2]} (session {holder[1]})" if holder else "just now"
