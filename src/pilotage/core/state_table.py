"""State machines as tables: each state, who moves it on, and where to."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from pilotage.core.errors import IllegalMove

UNUSED = "nothing enters it today"
"""End of the meaning of a state that is kept for DIRAC's or WMCore's table alone."""

State = TypeVar("State", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Row(Generic[State]):
    """One state: who moves it on, its meaning, and the states that may follow."""

    moved_by: str
    meaning: str
    next: Set[State] = frozenset()


class StateTable(Generic[State]):
    """A total table over `states`; a state without successors is final for the machine."""

    def __init__(self, noun: str, initial: State, rows: Mapping[State, Row[State]]) -> None:
        self.noun = noun
        self.initial = initial
        self.rows = dict(rows)

    def allows(self, old: State, new: State) -> bool:
        return new in self.rows[old].next

    def check(self, old: State, new: State) -> None:
        """Raise `IllegalMove` unless the table has the move."""
        if not self.allows(old, new):
            wanted = ", ".join(sorted(self.rows[old].next)) or "nothing"
            raise IllegalMove(
                f"a {self.noun} in state {old} cannot become {new}",
                hint=f"from {old} it can become: {wanted}",
            )
