"""The duty of locations: elements that are not split yet get the location of blocks that have moved.

It also deletes the rows of removed data sets, in slices.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from pilotage.server.context import Context
from pilotage.services.catalogue import locations, registration
from pilotage.services.catalogue.locations import ELEMENTS_AT_ONCE, ElementMove
from pilotage.store.tables import replicas
from pilotage.store.tables.replicas import MovedBlock

log = logging.getLogger(__name__)

PERIOD = 10.0
MOVED_AT_ONCE = 1000
"""Moved blocks that are looked at together."""


class LocationDuty:
    """Each step is a short transaction, so a cycle that was interrupted is continued by the next one."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def period(self) -> float:
        return PERIOD

    async def cycle(self) -> None:
        await self._follow_blocks()
        writer = self._context.writer
        while not self._context.stop.is_set() and await writer.acall(registration.delete_removed):
            pass

    async def _follow_blocks(self) -> None:
        context, after = self._context, 0
        while not context.stop.is_set():
            moved, moves = await asyncio.to_thread(self._read, after)
            if not moved:
                return
            await self._move(moves)
            await context.writer.acall(
                lambda tx, moved=moved: locations.settle(tx, moved, context.clock())  # type: ignore[misc]
            )
            after = moved[-1].block

    async def _move(self, moves: Sequence[ElementMove]) -> None:
        context = self._context
        for first in range(0, len(moves), ELEMENTS_AT_ONCE):
            part = moves[first : first + ELEMENTS_AT_ONCE]
            lost = await context.writer.acall(
                lambda tx, part=part: locations.move_elements(tx, part, context.clock())  # type: ignore[misc]
            )
            if lost:
                log.info("%d elements have lost the last place of their input", len(lost))

    def _read(self, after: int) -> tuple[list[MovedBlock], list[ElementMove]]:
        """Moved blocks with ids above `after`, and the elements that need their location."""
        connection = self._context.readers.connection()
        moved = replicas.moved_blocks(connection, MOVED_AT_ONCE, after)
        return moved, locations.element_moves(connection, moved) if moved else []
