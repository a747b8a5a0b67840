"""Duties about the server itself: its disks, its certificates, and its leases of other duties."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pilotage.server import disk_space
from pilotage.server.context import Context
from pilotage.server.disk_space import DiskWatch
from pilotage.server.duties.duty import Duty
from pilotage.server.duties.duty_leases import RENEWAL_PERIOD, DutyLeases
from pilotage.store.tables import instance


class DiskDuty(Duty):
    """Refreshes the state of the disks. After a failed write it retries a write until that succeeds."""

    name = "disks"
    every = disk_space.PERIOD

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        writer = context.writer
        self._watch = DiskWatch(
            context.disk.space, lambda: writer.acall(lambda tx: instance.write_unchanged(tx.connection))
        )

    async def work(self) -> None:
        await self._watch.look()


class CertificateDuty(Duty):
    """Looks for a new certificate, and warns of one that ends."""

    name = "certificates"
    every = 1.0

    def __init__(self, context: Context, refresh: Callable[[], None]) -> None:
        super().__init__(context)
        self._refresh = refresh

    async def work(self) -> None:
        self._refresh()


class AnnouncementDuty(Duty):
    """Writes `server.json` again after somebody removed it: clients and pilots find the server by it."""

    name = "server.json"
    every = 2.0

    def __init__(self, context: Context, facts: Path, write: Callable[[], None]) -> None:
        super().__init__(context)
        self._facts = facts
        self._write = write

    async def work(self) -> None:
        if not self._facts.exists():
            self._write()


class RenewalDuty(Duty):
    """Claims duties for this server, and renews its leases."""

    name = "renewal of leases"
    every = RENEWAL_PERIOD

    def __init__(self, context: Context, duty_leases: DutyLeases) -> None:
        super().__init__(context)
        self._duty_leases = duty_leases

    async def work(self) -> None:
        await self._duty_leases.renew()
