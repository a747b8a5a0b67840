"""The rows of a prepared database: what a case has changed is put back, and two states are compared."""

from __future__ import annotations

from typing import Any

import psycopg

SEEN_BY_NOBODY = frozenset({"alembic_version", "counters", "duties", "servers", "changes"})
"""Tables that are not compared: ids, heartbeats, and what servers tell each other."""
UNNAMED = frozenset(
    {"audit_log", "parent_changes", "removals", "count_changes", "request_events", "outages", "queue_reasons"}
    | {"job_outcomes"}
)
"""Tables whose ids no other row names: they depend on the order of two transactions."""


TRANSACTION = "xid"
"""The column of the number of a transaction of the database."""
State = tuple[tuple[str, str], ...]


class Snapshot:
    """Saves all rows of a database, and puts them back."""

    def __init__(self, session: psycopg.Connection[Any]) -> None:
        self._session = session
        session.execute("SET session_replication_role = replica")
        self._columns = self._read_columns()
        self.tables = frozenset(self._columns)
        self._query = " UNION ALL ".join(
            f"SELECT '{table}', {_digest(table, columns)}, {_digest(table, _compared(table, columns))}"
            for table, columns in self._columns.items()
        )
        self._saved: dict[str, tuple[str, str]] = {}
        self._seen: dict[str, tuple[str, str]] = {}
        self._sequences = ""

    def save(self) -> None:
        """All cases begin from the present rows."""
        session = self._session
        session.execute("CREATE SCHEMA saved")
        for table in self._columns:
            session.execute(f"CREATE TABLE saved.{table} AS TABLE public.{table}".encode())
        sql = "SELECT sequencename, last_value FROM pg_sequences WHERE schemaname = 'public'"
        last = session.execute(sql).fetchall()
        self._sequences = ", ".join(
            f"setval('public.{name}', {value or 1}, {str(value is not None).lower()})" for name, value in last
        )
        self._saved = self._digests()

    def _read_columns(self) -> dict[str, list[str]]:
        columns: dict[str, list[str]] = {}
        sql = (
            "SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid"
            " WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition"
            " AND a.attnum > 0 AND NOT a.attisdropped ORDER BY 1, a.attnum"
        )
        for table, column in self._session.execute(sql):
            columns.setdefault(table, []).append(column)
        return columns

    def _digests(self) -> dict[str, tuple[str, str]]:
        rows = self._session.execute(self._query.encode(), prepare=True)
        return {table: (exact, compared) for table, exact, compared in rows}

    def state(self) -> State:
        """The present state of all compared tables, as digests."""
        self._seen = digests = self._digests()
        return tuple((table, digests[table][1]) for table in self._columns if table not in SEEN_BY_NOBODY)

    def restore(self, *, as_seen: bool = False) -> None:
        """Put the saved rows back. No transaction is open. `as_seen`: nothing was written since `state`."""
        present = self._seen if as_seen else self._digests()
        changed = [table for table, digests in present.items() if digests != self._saved[table]]
        with self._session.transaction():
            for table in changed:
                self._session.execute(f"DELETE FROM public.{table}".encode())
                self._session.execute(f"INSERT INTO public.{table} TABLE saved.{table}".encode())
            self._session.execute(f"SELECT {self._sequences}".encode())


def _compared(table: str, columns: list[str]) -> list[str]:
    unseen = {"id", TRANSACTION} if table in UNNAMED else {TRANSACTION}
    return [column for column in columns if column not in unseen]


def _digest(table: str, columns: list[str]) -> str:
    row = ", ".join(columns)
    return f"(SELECT md5(string_agg(t, ',' ORDER BY t)) FROM (SELECT ROW({row})::text AS t FROM public.{table}) x)"
