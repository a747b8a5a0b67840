"""The duty of registrations: closed blocks of outputs get known in the outside catalogue that their data set names."""

from __future__ import annotations

import logging
from functools import partial

from pilotage.core.errors import PilotageError
from pilotage.outside.catalogue.adapter import CatalogueAdapter
from pilotage.server.duties.catalogue_work import OF_THE_CATALOGUE, CatalogueWork, told
from pilotage.services.catalogue import registering
from pilotage.store.tables import registrations
from pilotage.store.tables.registrations import RegistrationRow

log = logging.getLogger(__name__)

INTENDED_AT_ONCE = 200
"""Blocks whose registration is noted in one transaction."""
BLOCKS_AT_ONCE = 100
"""Blocks registered before the catalogue is looked at again."""


class RegistrationDuty(CatalogueWork):
    """Notes each closed block first, then registers it. After a crash the noted ones are registered again."""

    name = lease = "registrations"

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
        complete = await self._context.quick_read(partial(registrations.complete, catalogue=name))
        return 0.0 if complete else None

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
        for dataset in await self._context.quick_read(partial(registrations.complete, catalogue=name)):
            await self.call(partial(adapter.finish, dataset.there))
            await self._write(partial(registrations.set_closed, dataset=dataset.dataset))

    async def _register(self, adapter: CatalogueAdapter, row: RegistrationRow) -> None:
        """Register one block. Errors that concern it alone are stored with it."""
        block = await self._context.quick_read(partial(registering.outgoing, row=row))
        try:
            await self.call(partial(adapter.register, block))
        except PilotageError as error:
            problem = told(error)
            # Also an outage is noted: else a block that brings the catalogue down would be the first again.
            await self._write(partial(registrations.fail, block=row.block, problem=problem))
            if isinstance(error, OF_THE_CATALOGUE):
                raise
            if problem != row.problem:
                log.warning("data set %s, block %s: not registered: %s", row.dataset_name, row.name, problem)
        else:
            await self._write(partial(registrations.finish, block=row.block))

    async def _write(self, act: partial[None]) -> None:
        now = self._context.clock()
        await self._context.writer.acall(lambda tx: act(tx.connection, now=now))
