"""Finds locks that transactions of a test take in two orders: two servers would wait for each other.

The functions of the store lock one table each, so no look at one of them sees the order of two tables. Here the order
is noted as the statements are executed, with the strength of the locks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from pilotage.store.engine.decisions import GUARDS

STRENGTHS = ("KEY SHARE", "SHARE", "NO KEY UPDATE", "UPDATE")
"""The locks of rows in PostgreSQL. Two of them conflict if the sum of their places is at least 3."""
_LOCK = re.compile(r"\bFOR (NO KEY UPDATE|UPDATE|KEY SHARE|SHARE)(?: OF \w+)?(?P<skips> SKIP LOCKED)?")
_OF_VERB = {"UPDATE": 2, "DELETE": 3}


class Step(NamedTuple):
    """A transaction that held rows of one table, and might wait for those of another one."""

    held: str
    held_strength: int
    wanted: str
    wanted_strength: int


class LockOrder:
    """The steps of all transactions, each with the function that has taken it first."""

    def __init__(self) -> None:
        self.steps: dict[Step, str] = {}

    def note(self, held: dict[str, int], verb: str, table: str, sql: str, caller: str) -> None:
        """`held`: the locked tables of the transaction, with the strength of their locks."""
        lock = _LOCK.search(sql)
        strength = _OF_VERB.get(verb, STRENGTHS.index(lock[1]) if lock else None)
        if strength is None:
            return
        # All who lock a row of such a table hold its guard, so nobody waits for the row itself.
        guards = GUARDS.get(table, ())
        is_guarded = len(guards) == 1 and held.get(guards[0], 0) >= _OF_VERB["UPDATE"]
        waits = not is_guarded and (lock is None or not lock["skips"])
        if waits and table not in held:
            for other, other_strength in held.items():
                if other_strength >= 0 and other != table:
                    self.steps.setdefault(Step(other, other_strength, table, strength), caller)
        held[table] = max(strength, held.get(table, 0))

    def circles(self) -> Iterator[str]:
        """The shortest circle of transactions that may wait for each other, by way of each step."""
        found = set[frozenset[Step]]()
        for first in self.steps:
            circle = self._circle(first)
            if circle and frozenset(circle) not in found:
                found.add(frozenset(circle))
                yield "; ".join(f"{step.held} before {step.wanted} by {self.steps[step]}" for step in circle)

    def _circle(self, first: Step) -> list[Step]:
        paths, reached = [[first]], {first}
        for path in paths:
            for step in self.steps:
                if step.held == path[-1].wanted and conflict(path[-1].wanted_strength, step.held_strength):
                    if step.wanted == first.held and conflict(step.wanted_strength, first.held_strength):
                        return [*path, step]
                    if step not in reached:
                        reached.add(step)
                        paths.append([*path, step])
        return []


def conflict(one: int, other: int) -> bool:
    """Whether one of these locks waits for the other."""
    return one + other >= len(STRENGTHS) - 1
