"""Moves of elements: checked against the table of states, stored with one event for each request and kind."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from pilotage.core.workqueue.states import ELEMENT_STATES, ElementState
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import elements, queued_requests
from pilotage.store.tables.elements import ElementRow, Move
from pilotage.store.tables.queued_requests import QueuedEvent


@dataclass(slots=True)
class ElementMoves:
    """The moves of one transaction. `save` stores them."""

    now: float
    actor: str
    _moves: list[Move] = field(default_factory=list)
    _events: dict[tuple[int, str, str, str], list[int]] = field(default_factory=dict)

    def move(
        self,
        row: ElementRow,
        state: ElementState,
        *,
        agent: int | None,
        site: str = "",
        reason: str = "",
    ) -> None:
        """Move an element; `agent` and `site`: it has them from then on."""
        self.record(row, state, reason)
        self._moves.append(Move(state, agent, site, self.now, reason, row.id))

    def record(self, row: ElementRow, state: ElementState, reason: str = "") -> None:
        """Check a move that the caller stores by itself, and record its event."""
        self.record_of(row.request_id, row.id, row.state, state, reason)

    def record_of(
        self, request: int, element: int, old: ElementState, new: ElementState, reason: str
    ) -> None:
        """Record a move like `record`, without the row of the element."""
        ELEMENT_STATES.check(old, new)
        self._events.setdefault((request, old, new, reason), []).append(element)

    def save(self, connection: Connection) -> None:
        if self._moves:
            elements.save_moves(connection, self._moves)
        if not self._events:
            return
        queued_requests.save_events(
            connection,
            [
                QueuedEvent(request, self.now, self.actor, "elements", old, new, _detail(ids, reason))
                for (request, old, new, reason), ids in self._events.items()
            ],
        )


def _detail(ids: list[int], reason: str) -> str:
    document = {"elements": ids, "reason": reason} if reason else {"elements": ids}
    return json.dumps(document, separators=(",", ":"))
