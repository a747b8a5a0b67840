"""The duty of outside catalogues: copies the data sets that are named after one, and keeps them up to date."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from pilotage.core.datasets.arrangement import slices_of
from pilotage.core.datasets.facts import BlockEntry
from pilotage.core.errors import PilotageError, Unreachable
from pilotage.outside.catalogue.adapter import BlockPlaces, CatalogueAdapter, CatalogueBlock
from pilotage.server.context import Context
from pilotage.server.duties.catalogue_work import CatalogueWork, told
from pilotage.services.catalogue import following, locations
from pilotage.services.catalogue.following import KnownBlock
from pilotage.services.catalogue.locations import BLOCKS_AT_ONCE
from pilotage.services.catalogue.registration import FILES_AT_ONCE, LUMIS_AT_ONCE
from pilotage.store.tables import followed_datasets, replicas
from pilotage.store.tables.followed_datasets import FollowedRow
from pilotage.store.writer.transaction import Transaction

log = logging.getLogger(__name__)

Value = TypeVar("Value")


class CatalogueDuty(CatalogueWork):
    """Reads the data sets that are due."""

    name = lease = "catalogues"

    async def asked_for(self, name: str, now: float) -> float | None:
        return max((row.asked for row in await self._due(name, now)), default=None)

    async def _due(self, name: str, now: float) -> Sequence[FollowedRow]:
        policy = self._context.pool.policy
        return await self._context.quick_read(partial(following.due_of, policy=policy, name=name, now=now))

    async def serve(self, name: str, adapter: CatalogueAdapter) -> None:
        for row in await self._due(name, self._context.clock()):
            if self._context.stop.is_set():
                return
            await self._read(adapter, row)

    async def _read(self, adapter: CatalogueAdapter, row: FollowedRow) -> None:
        """Read one data set. Errors that concern it alone are stored with it."""
        now = self._context.clock()
        await self._write(partial(followed_datasets.begin, dataset=row.dataset, now=now))
        try:
            await _Reading(self, self._context, adapter, row, now).run()
        except PilotageError as error:
            await self.check_serves(adapter, error)
            problem = told(error)
            await self._write(partial(followed_datasets.fail, dataset=row.dataset, problem=problem))
            if problem != row.problem:
                log.warning("data set %s: %s", row.name, problem)

    async def _write(self, act: Callable[..., None]) -> None:
        await self._context.writer.acall(lambda tx: act(tx.connection))


class _Reading:
    """One reading of a data set."""

    def __init__(
        self, work: CatalogueWork, context: Context, adapter: CatalogueAdapter, row: FollowedRow, begun: float
    ) -> None:
        self._work = work
        self._context = context
        self._adapter = adapter
        self._row = row
        self._begun = begun
        self._failure: PilotageError | None = None
        """Why a block was left out; None: none was."""
        self._known: dict[str, KnownBlock] = {}
        """The blocks of our tables as the reading begins."""
        self._last = 0
        """The last id of these blocks."""
        self._unused: dict[str, list[str]] = {}

    async def run(self) -> None:
        context, row = self._context, self._row
        section = context.pool.policy.catalogues[row.catalogue]
        contents = await self._ask(lambda: self._adapter.contents(row.there))
        self._known = known = await self._blocks_after(0)
        takes_open = section.open_datasets == "take"
        skipped = [block for block in contents.blocks if block.is_open and not takes_open]
        taken = [block for block in contents.blocks if takes_open or not block.is_open]
        new = [block for block in taken if row.open and _is_new(block, known.get(block.name))]
        # A block that was taken once has a location, also if the catalogue does not list it any more.
        names = [*known, *(block.name for block in new if block.name not in known)]
        self._last = max((id_ for block in known.values() for id_ in block.ids), default=0)
        for first in range(0, len(names), BLOCKS_AT_ONCE):
            places = await self._places(names[first : first + BLOCKS_AT_ONCE])
            for block in new:
                if block.name in places:
                    await self._copy_or_leave(block, places[block.name])
            await self._locate(places)
        if self._failure is not None:
            # All other blocks are stored. The data set stays as open as it was, and is read again soon.
            raise self._failure
        closed = not contents.is_open and not skipped
        note = following.notes_of(self._unused, len(skipped))
        await context.writer.acall(
            lambda tx: following.finish_reading(tx, row.dataset, self._begun, note, closed=closed)
        )
        context.wake.intake.set()

    async def _ask(self, make: Callable[[], Value]) -> Value:
        return await self._work.call(make)

    async def _leave(self, error: PilotageError) -> None:
        """A block is left out of this reading. Raises the reason if the whole catalogue is away."""
        await self._work.check_serves(self._adapter, error)
        self._failure = self._failure or error

    async def _places(self, blocks: Sequence[str]) -> dict[str, BlockPlaces]:
        """Where these blocks are. If one of them spoils the answer, each is asked for alone."""
        try:
            places = dict(await self._ask(partial(self._adapter.places, blocks)))
            if less := await self._with_less(places):
                again = await self._ask(partial(self._adapter.places, less))
                places |= {name: both(places[name], again[name]) for name in less if name in again}
        except PilotageError as error:
            if len(blocks) == 1:
                await self._leave(error)
                return {}
            await self._work.check_serves(self._adapter, error)
            places = {}
            for block in blocks:
                places |= await self._places([block])
            return places
        if missing := [name for name in blocks if name not in places and name not in self._known]:
            await self._leave(Unreachable(f"the catalogue does not tell where {missing[0]} is"))
        return places

    async def _with_less(self, places: Mapping[str, BlockPlaces]) -> list[str]:
        """The blocks that lack a site which they had, and new ones that are nowhere: a short answer looks like that."""
        known = {name: self._known[name].ids[0] for name in places if name in self._known}
        stored = await self._context.quick_read(partial(replicas.of_blocks, blocks=list(known.values())))
        less = []
        for name, place in places.items():
            sites = {replica.site for replica in place.replicas}
            had = {row.site for row in stored.get(known.get(name, 0), ())}
            if had - sites or not (sites or name in known):
                less.append(name)
        return less

    async def _copy_or_leave(self, block: CatalogueBlock, places: BlockPlaces) -> None:
        try:
            await self._copy(block, places)
        except PilotageError as error:
            await self._leave(error)

    async def _copy(self, block: CatalogueBlock, places: BlockPlaces) -> None:
        """Store the files of a block. They come with their location, so that work never waits for it."""
        files = await self._ask(lambda: self._adapter.files(block.name))
        parts = list(slices_of(files, FILES_AT_ONCE, LUMIS_AT_ONCE))
        for number, part in enumerate(parts, start=1):
            entry = BlockEntry(block.name, tuple(part), places.replicas)
            await self._context.writer.acall(
                partial(
                    following.store_files,
                    dataset=self._row.dataset,
                    entry=entry,
                    complete=number == len(parts),
                    now=self._begun,
                )
            )

    async def _blocks_after(self, last: int) -> dict[str, KnownBlock]:
        return await self._context.quick_read(
            partial(following.known_blocks, dataset=self._row.dataset, after=last)
        )

    async def _locate(self, places: Mapping[str, BlockPlaces]) -> None:
        """Store where these blocks are now, also blocks that were made since the reading began."""
        context, made = self._context, await self._blocks_after(self._last)
        answer = {}
        for name, place in places.items():
            for block in (self._known.get(name), made.get(name)):
                answer.update(dict.fromkeys(() if block is None else block.ids, place.replicas))
            for reason in place.unused:
                self._unused.setdefault(reason, []).append(name)

        def store(tx: Transaction) -> int:
            return locations.set_replicas(tx, answer, self._begun)

        if await context.writer.acall(store):
            context.wake.locations.set()


def both(first: BlockPlaces, second: BlockPlaces) -> BlockPlaces:
    """The places of two answers together: a place is lost only if both lack it."""
    by_site = {replica.site: replica for replica in (*first.replicas, *second.replicas)}
    return BlockPlaces(tuple(sorted(by_site.values())), second.unused)


def _is_new(block: CatalogueBlock, known: KnownBlock | None) -> bool:
    """Whether the catalogue may have files of a block that our tables lack."""
    if known is None or not known.is_closed:
        return True
    return block.is_open and known.files != block.files
