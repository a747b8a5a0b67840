"""A check: a rule about rows, the meaning of a row that breaks it, and how such rows are found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from pilotage.store.engine.connection import Connection, Dialect

EXAMPLES = 5
"""Rows that a message names."""

Ids = list[int] | list[str]
Sql = str | Callable[[Connection], str]
Search = Callable[[Connection], Iterator[int] | Iterator[str]]
"""Finds the ids of wrong rows, ascending, in batches of its own."""


@dataclass(frozen=True, slots=True)
class Check:
    """A rule. Wrong rows are found by `sql`, a query with one column, or by `search`."""

    name: str
    """For people and for the table of repairs."""
    what: str
    """The rows that break the rule, in the plural. A message has number and ids after it, so it fits any number."""
    meaning: str
    """The effect of the state, as a sentence for people."""
    sql: Sql | None = None
    search: Search | None = None
    by_hand: str = ""
    """Why no repair is made, and how a person goes on; empty: there is a repair."""
    only: Dialect | None = None
    """The database that can have this state; None: both."""

    def applies(self, connection: Connection) -> bool:
        return self.only is None or self.only == connection.dialect

    def next_ids(self, connection: Connection, after: int | str | None, most: int) -> Ids:
        """The ids of wrong rows above `after`, ascending, at most `most`. None: from the first one on."""
        if self.search is not None:
            wrong = self.search(connection)
            # Ids of one table are of one type.
            left = wrong if after is None else (id_ for id_ in wrong if id_ > after)  # type: ignore[operator]
            return list(islice(left, most))  # type: ignore[return-value]
        broken = f"WITH broken (id) AS ({self._query(connection)}) SELECT DISTINCT id FROM broken"
        where, values = ("", ()) if after is None else (" WHERE id > ?", (after,))
        rows = connection.execute(f"{broken}{where} ORDER BY id LIMIT ?", (*values, most))
        return [row[0] for row in rows]

    def count(self, connection: Connection) -> tuple[int, Ids]:
        """The number of wrong rows, and the first of them."""
        if self.search is not None:
            wrong = self.search(connection)
            first: Ids = list(islice(wrong, EXAMPLES))  # type: ignore[assignment]
            return len(first) + sum(1 for _ in wrong), first
        sql = f"WITH broken (id) AS ({self._query(connection)}) SELECT count(DISTINCT id) FROM broken"
        [count] = connection.execute(sql).fetchone()
        return count, self.next_ids(connection, None, EXAMPLES) if count else []

    def _query(self, connection: Connection) -> str:
        assert self.sql is not None
        return self.sql if isinstance(self.sql, str) else self.sql(connection)


@dataclass(frozen=True, slots=True)
class Damage:
    """A broken rule, with its rows in words."""

    name: str
    """The name of the check; empty: the file as a whole is damaged."""
    rows: str
    """Such as "Jobs that wait for nothing: 2 (4, 5)"."""
    meaning: str = ""
    by_hand: str = ""

    def __str__(self) -> str:
        return " ".join(part for part in (f"{self.rows}.", self.meaning, self.by_hand) if part)


def text_literal(text: str) -> str:
    return "'{}'".format(text.replace("'", "''"))


def quoted(values: Iterable[str]) -> str:
    """Texts as a list of SQL."""
    return ", ".join(map(text_literal, sorted(values)))


def describe(check: Check, count: int, examples: Sequence[int] | Sequence[str]) -> Damage:
    more = " ..." if count > len(examples) else ""
    what = check.what[:1].upper() + check.what[1:]
    rows = f"{what}: {count:,} ({', '.join(map(str, examples))}{more})"
    return Damage(check.name, rows, check.meaning, check.by_hand)
