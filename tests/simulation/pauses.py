"""At which trips to the database a transaction stands still, and until when.

Some pauses are drawn at any trip. Others wait for a conflict: the transaction stands still where it rests on rows that
it has not locked, until another server has changed a row of the same table.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from random import Random
from typing import NamedTuple

RATES = (0.01, 0.02, 0.04)
"""Of the trips of a history, those at which a transaction stands still: one of them."""
SECONDS = 0.4
"""For which it does so, on average, unless the other server has committed enough before."""
LONGEST = 4.0
MOST_PAUSES = 3
"""Of one transaction, of each kind."""
COMMITS = (1, 1, 1, 2, 3, 6)
SHARES = (0.6, 1.0)
"""Of the statements that rest on rows without a lock, those at which transactions wait for a conflict: one of them."""
CONTESTED = frozenset(
    (
        *(b"bans", b"blocks", b"conditions", b"datasets", b"element_jobs", b"elements", b"gates", b"jobs"),
        *(
            b"parent_submissions",
            b"queues",
            b"request_steps",
            b"requests",
            b"site_states",
            b"submission_chunks",
        ),
        *(b"submissions",),
    )
)
"""Tables with facts that people, agents and duties change at any server."""
WAIT, LONGEST_WAIT = 2.5, 16.0
"""Seconds for which one does so, on average and at most. Within the longest wait a server loses its duties."""
USED_TO = 4
"""After so many transactions with a statement it waits there half as often as at first."""
LEAST_RATE = 0.05
MOST_STILL = 0.25
"""Of the time, for which a server waits for conflicts. At rare statements it may wait for longer."""
RARE = 6
"""Transactions with a statement that is rare."""

_TABLES = re.compile(rb"\b(?:FROM|JOIN|INTO|UPDATE|COPY)\s+([a-z_]+)")
_ADDED = re.compile(rb"\bINSERT INTO\s+([a-z_]+)")
_CHANGED = re.compile(rb"(?:\bDELETE FROM|(?<!FOR )(?<!KEY )\bUPDATE|\bCOPY)\s+([a-z_]+)")
_LOCKS = re.compile(rb"\bFOR (?:UPDATE|SHARE|NO KEY UPDATE|KEY SHARE)\b")


class Rows(NamedTuple):
    """The tables that a statement uses."""

    all: frozenset[bytes]
    changed: frozenset[bytes]
    """Tables of which it changes rows that are there."""
    written: frozenset[bytes]
    """Tables of which it changes or adds rows."""
    locks: bool


@lru_cache(maxsize=4096)
def rows_of(sql: bytes) -> Rows:
    changed = frozenset(_CHANGED.findall(sql))
    written = changed | frozenset(_ADDED.findall(sql))
    return Rows(frozenset(_TABLES.findall(sql)), changed, written, bool(written or _LOCKS.search(sql)))


class Footing:
    """The rows on which a transaction rests."""

    def __init__(self) -> None:
        self.looked: set[bytes] = set()
        """Tables that it has looked at without a lock."""
        self.held: set[bytes] = set()
        """Tables of which it has locked or changed rows."""
        self.written: set[bytes] = set()
        self.known: set[bytes] = set()
        """Its statements."""

    def note(self, statements: Sequence[bytes]) -> None:
        """It has carried these out."""
        for sql in statements:
            if sql.startswith(b"BEGIN"):
                self.__init__()
            rows = rows_of(sql)
            (self.held if rows.locks else self.looked).update(rows.all)
            self.written |= rows.written

    def unsafe(self, sql: bytes) -> frozenset[bytes]:
        """Tables on which this statement rests without a lock: it looks again, or changes rows that it has not held."""
        rows = rows_of(sql)
        return (rows.all & self.looked) | (rows.changed - self.held)


class Pause(NamedTuple):
    seconds: float
    commits: int
    """Commits of other servers after which it ends before."""
    tables: frozenset[bytes] = frozenset()
    """Only commits that have changed one of these count; empty: all."""
    not_of_pilots: bool = False
    """Only commits of transactions without messages of pilots count."""


class Pauses:
    """Draws them for the servers of one history."""

    def __init__(self, rng: Random, rate: float, time: Callable[[], float]) -> None:
        """`rate`: of all trips; 0: there are no pauses."""
        self._rng, self.rate, self._time = rng, rate, time
        self._begun = time()
        self.is_calm = False
        """Transactions wait for no conflicts any more."""
        self._share = rng.choice(SHARES)
        self._is_chosen: dict[bytes, bool] = {}
        self._seen: Counter[bytes] = Counter()
        self._still: dict[object, float] = {}
        """Seconds for which the server of each session has waited."""

    def any(self, before: int) -> Pause | None:
        """A pause at any trip. `before`: those that the transaction has had."""
        if not self.rate or before >= MOST_PAUSES or self._rng.random() >= self.rate:
            return None
        seconds = min(LONGEST, self._rng.expovariate(1 / SECONDS))
        return Pause(seconds, self._rng.choice(COMMITS))

    def for_conflict(self, session: object, sql: bytes, footing: Footing, before: int) -> Pause | None:
        """A pause before a statement of a session. `before`: those that its transaction has had."""
        tables = footing.unsafe(sql) & CONTESTED
        if self.is_calm or not self.rate or not tables:
            return None
        chosen = self._is_chosen.get(sql)
        if chosen is None:
            chosen = self._is_chosen[sql] = self._rng.random() < self._share
        if not chosen:
            return None
        if sql not in footing.known:
            footing.known.add(sql)
            self._seen[sql] += 1
        rate = max(LEAST_RATE, 1 / (1 + self._seen[sql] / USED_TO))
        most = MOST_STILL * (self._time() - self._begun) + LONGEST_WAIT
        busy = self._seen[sql] > RARE and self._still.get(session, 0.0) > most
        if busy or before >= MOST_PAUSES or self._rng.random() >= rate / (1 + before):
            return None
        seconds = min(LONGEST_WAIT, self._rng.expovariate(1 / WAIT))
        return Pause(seconds, self._rng.choice(COMMITS[:4]), tables, self._rng.random() < 0.5)

    def has_waited(self, session: object, seconds: float) -> None:
        self._still[session] = self._still.get(session, 0.0) + seconds
