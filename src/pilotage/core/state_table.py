"""State machines as tables: each state, who moves it on, and where to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from pilotage.core.errors import IllegalMove

State = TypeVar("State", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Row(Generic[State]):
    """One state: who moves it on, its meaning, and the states that may follow."""

    moved_by: str
    meaning: str
    next: frozenset[State]


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

    def may_become(self, new: State) -> tuple[State, ...]:
        """The states from which `new` can be reached in one move."""
        return tuple(old for old, row in self.rows.items() if new in row.next)

    def mermaid(self) -> str:
        """The diagram of the docs, in mermaid's state diagram language."""
        lines = ["stateDiagram-v2", f"    [*] --> {self.initial}"]
        for old, row in self.rows.items():
            lines += [f"    {old} --> {new}" for new in _in_order(self.rows, row.next)]
            if not row.next:
                lines.append(f"    {old} --> [*]")
        return "\n".join(lines)

    def markdown(self) -> str:
        """The table of the docs: state, meaning, who moves it, next states."""
        lines = ["| state | meaning | moved on by | may become |", "|---|---|---|---|"]
        for old, row in self.rows.items():
            following = ", ".join(_in_order(self.rows, row.next)) or "(final)"
            lines.append(f"| {old} | {row.meaning} | {row.moved_by} | {following} |")
        return "\n".join(lines)


def _in_order(rows: Mapping[State, Row[State]], states: Iterable[State]) -> list[State]:
    order = {state: place for place, state in enumerate(rows)}
    return sorted(states, key=lambda state: order[state])
