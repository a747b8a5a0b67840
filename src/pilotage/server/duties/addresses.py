"""Servers of one pool announce each other: pilots and clients of one find the others when it does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pilotage.server.context import Context
from pilotage.server.duties.duty import Duty
from pilotage.store.cluster import servers
from pilotage.store.cluster.servers import ServerRow


class AddressDuty(Duty):
    """Stores this server's addresses and fingerprints, and reads the other servers'."""

    name = "addresses"
    every = 2.0
    """Seconds between two reads of the other servers' addresses."""

    def __init__(self, context: Context, publish: Callable[[], None]) -> None:
        """`publish` is called when the other servers or their certificates have changed."""
        super().__init__(context)
        self._publish = publish

    async def work(self) -> None:
        context = self._context
        rows = await asyncio.to_thread(lambda: servers.live(context.readers.connection()))
        name, own_part = context.pool.peers.server, context.pool.peers.own_part
        names = [row.name for row in rows]
        if own_part is not None and name in names:
            own_part.share = names.index(name), len(names)
        pilot_url, fingerprints = context.address.pilot_url, ",".join(context.address.fingerprints)
        for row in rows:
            if row.name == name and (row.pilot_url, row.fingerprints) != (pilot_url, fingerprints):
                await context.writer.acall(
                    lambda tx: servers.announce(tx.connection, name, pilot_url, fingerprints)
                )
        others = tuple(row for row in rows if row.name != name and self._is_reachable(row))
        if _addresses(others) != _addresses(context.address.other_servers):
            context.address.other_servers = others
            self._publish()

    def _is_reachable(self, row: ServerRow) -> bool:
        """Whether who reaches this server may turn to another: neither trust nor encryption may get weaker."""
        own = self._context.address.pilot_url
        if not row.pilot_url or row.pilot_url.partition(":")[0] != own.partition(":")[0]:
            return False
        if own.startswith("http:"):
            # A loopback address means another program on another machine.
            return row.host == self._context.address.host
        return bool(row.fingerprints) == bool(self._context.address.fingerprints)


def _addresses(rows: tuple[ServerRow, ...]) -> list[tuple[str, str, str]]:
    return [(row.url, row.pilot_url, row.fingerprints) for row in rows]
