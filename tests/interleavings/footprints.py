"""The tables that statements read and write: transactions that share none commute, whatever their order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from pilotage.store.postgresql.pipeline import Statement

APPENDED = frozenset({"events", "changes", "count_changes", "request_events", "audit_log", "job_outcomes"})
"""Tables whose new rows are nobody's decision."""
OF_SERVERS = frozenset({"servers", "counters", "duties"})
_WRITTEN = re.compile(r"\b(INSERT INTO|UPDATE|DELETE FROM)\s+(?:ONLY\s+)?(\w+)", re.IGNORECASE)
_LOCKS = re.compile(r"\bFOR\s+(?:NO\s+KEY\s+)?(?:UPDATE|SHARE|KEY\s+SHARE)\b", re.IGNORECASE)
_WORD = re.compile(r"\w+")


class Footprint(NamedTuple):
    read: frozenset[str] = frozenset()
    written: frozenset[str] = frozenset()
    appended: frozenset[str] = frozenset()

    def __or__(self, other: Footprint) -> Footprint:
        return Footprint(*(mine | theirs for mine, theirs in zip(self, other, strict=True)))

    def conflicts_with(self, other: Footprint) -> bool:
        """Whether their order may be seen."""
        mine, theirs = self.written | self.appended, other.written | other.appended
        return bool(self.written & theirs | mine & other.written | self.read & theirs | mine & other.read)


def together(footprints: Iterable[Footprint]) -> Footprint:
    total = Footprint()
    for footprint in footprints:
        total |= footprint
    return total


def of_statements(statements: Sequence[Statement], tables: frozenset[str]) -> Footprint:
    return together(_of_sql(statement.sql, tables) for statement in statements)


@lru_cache(maxsize=5000)
def _of_sql(sql: bytes, tables: frozenset[str]) -> Footprint:
    text = sql.decode()
    named = tables.intersection(_WORD.findall(text)) - OF_SERVERS
    written, appended = set[str](), set[str]()
    for verb, table in _WRITTEN.findall(text):
        if table in named:
            is_appended = verb.upper() == "INSERT INTO" and table in APPENDED
            (appended if is_appended else written).add(table)
    if _LOCKS.search(text):
        written |= named - appended
    return Footprint(named - written - appended, frozenset(written), frozenset(appended))
