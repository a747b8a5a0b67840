"""The duty of registrations: closed blocks of outputs get known in the outside catalogue that their data set names."""

from __future__ import annotations

import logging
from functools import partial

from pilotage.core.errors import PilotageError
from pilotage.outside.catalogue.adapter import CatalogueAdapter
from pilotage.server.context import Context
from pilotage.server.duties.catalogue_work import CatalogueWork, told
from pilotage.services.catalogue import registering
from pilotage.store.tables import registrations
from pilotage.store.tables.registrations import OutputDataset, RegistrationRow

log = logging.getLogger(__name__)

INTENDED_AT_ONCE = 200
"""Blocks whose registration is noted in one transaction."""
BLOCKS_AT_ONCE = 100
"""Blocks registered before the catalogue is looked at again."""


class RegistrationDuty(CatalogueWork):
    """Notes each closed block first, then registers it. After a crash the noted ones are registered again."""

    name = lease = "registrations"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._refused: dict[int, float] = {}
        """When the catalogue last refused the end of a data set."""

    async def work(self) -> None:
        now = self._context.clock()
        if self._context.pool.policy.catalogues:
            await self._context.writer.acall(
                lambda tx: registrations.intend(tx.connection, now, INTENDED_AT_ONCE)
            )
        await super().work()

    async def asked_for(self, name: str, now: float) -> float | None:
        """Nobody asks for a registration: a catalogue with a problem rests."""
        if await self._due(name, now):
            return 0.0
        return 0.0 if await self._complete(name) else None

    async def _due(self, name: str, now: float) -> list[RegistrationRow]:
        retry = self._context.pool.policy.catalogues[name].retry
        return await self._context.quick_read(
            partial(registrations.open_ones, catalogue=name, tried_before=now - retry, most=BLOCKS_AT_ONCE)
        )

    async def serve(self, name: str, adapter: CatalogueAdapter) -> None:
        for row in await self._due(name, self._context.clock()):
            if self._context.stop.is_set():
                return
            await self._register(adapter, row)
        for dataset in await self._complete(name):
            await self._finish(adapter, dataset)

    async def _finish(self, adapter: CatalogueAdapter, dataset: OutputDataset) -> None:
        """End one data set. Errors that concern it alone are logged, and tried again later."""
        try:
            await self.call(partial(adapter.finish, dataset.there))
        except PilotageError as error:
            self._refused[dataset.dataset] = self._context.clock()
            await self.check_serves(adapter, error)
            log.warning("data set %s: its end was not told: %s", dataset.name, told(error))
        else:
            self._refused.pop(dataset.dataset, None)
            await self._write(partial(registrations.set_closed, dataset=dataset.dataset))

    async def _complete(self, name: str) -> list[OutputDataset]:
        """The data sets that can be ended now."""
        now, retry = self._context.clock(), self._context.pool.policy.catalogues[name].retry
        complete = await self._context.quick_read(partial(registrations.complete, catalogue=name))
        tried = self._refused
        return [row for row in complete if not 0 <= now - tried.get(row.dataset, now - retry) < retry]

    async def _register(self, adapter: CatalogueAdapter, row: RegistrationRow) -> None:
        """Register one block. Errors that concern it alone are stored with it."""
        block = await self._context.quick_read(partial(registering.outgoing, row=row))
        try:
            await self.call(partial(adapter.register, block))
        except PilotageError as error:
            problem = told(error)
            # Also an outage is noted: else a block that brings the catalogue down would be the first again.
            await self._write(partial(registrations.fail, block=row.block, problem=problem))
            await self.check_serves(adapter, error)
            if problem != row.problem:
                log.warning("data set %s, block %s: not registered: %s", row.dataset_name, row.name, problem)
        else:
            await self._write(partial(registrations.finish, block=row.block))

    async def _write(self, act: partial[None]) -> None:
        now = self._context.clock()
        await self._context.writer.acall(lambda tx: act(tx.connection, now=now))
