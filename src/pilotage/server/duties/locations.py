"""The duty of locations: elements that have not ended, and their jobs, get the location of blocks that have moved.

It also deletes the rows of removed data sets, in slices.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

from pilotage.server.duties.duty import Duty
from pilotage.services.catalogue import locations, removal
from pilotage.services.catalogue.locations import ELEMENTS_AT_ONCE, JOBS_AT_ONCE
from pilotage.store.tables import dataset_removal, element_locations, replicas
from pilotage.store.tables.element_locations import LocatedElement
from pilotage.store.tables.replicas import MovedBlock

log = logging.getLogger(__name__)

Row = TypeVar("Row")

MOVED_AT_ONCE = 1000
"""Moved blocks that are looked at together."""


class LocationDuty(Duty):
    """Each step is a short transaction, so a cycle that was interrupted is continued by the next one."""

    name = lease = "locations"
    every = 10.0

    async def work(self) -> None:
        await self._follow_blocks()
        for dataset in await self._context.quick_read(dataset_removal.removed):
            await self._rows.alone("delete removed data sets", dataset, partial(self._delete, dataset))

    async def _delete(self, dataset: int) -> None:
        writer, stop = self._context.writer, self._context.stop
        while not stop.is_set() and await writer.acall(lambda tx: removal.delete_removed(tx, dataset)):
            pass

    async def _follow_blocks(self) -> None:
        context, after = self._context, 0
        while not context.stop.is_set():
            moved = await asyncio.to_thread(self._moved_after, after)
            if not moved:
                return
            by_block = {row.block: row for row in moved}
            await self._rows.together(
                "follow moved blocks",
                list(by_block),
                partial(self._follow, by_block),
            )
            after = moved[-1].block

    def _moved_after(self, after: int) -> list[MovedBlock]:
        return replicas.moved_blocks(self._context.readers.connection(), MOVED_AT_ONCE, after)

    async def _follow(self, by_block: Mapping[int, MovedBlock], blocks: Sequence[int]) -> None:
        context, moved = self._context, [by_block[block] for block in blocks]
        elements = await asyncio.to_thread(
            lambda: locations.elements_of_moved(context.readers.connection(), moved)
        )
        for part in _parts(elements, ELEMENTS_AT_ONCE):
            await self._move(part)
        await context.writer.acall(lambda tx: locations.settle(tx, moved))

    async def _move(self, elements: Sequence[LocatedElement]) -> None:
        """Move elements first, then their jobs: a cycle that ends between them is continued by the next one."""
        context = self._context
        lost = await context.writer.acall(
            partial(locations.move_elements, elements=elements, now=context.clock())
        )
        if lost:
            log.info("%d elements have lost the last place of their input", len(lost))
        ids = [element.id for element in elements]
        stale = await asyncio.to_thread(
            lambda: element_locations.stale_jobs(context.readers.connection(), ids)
        )
        for part in _parts(stale, JOBS_AT_ONCE):
            await context.writer.acall(partial(locations.move_jobs, jobs=part))
            context.wake.release.set()


def _parts(rows: Sequence[Row], most: int) -> Iterator[Sequence[Row]]:
    for first in range(0, len(rows), most):
        yield rows[first : first + most]
