"""Keeps the relays on login nodes running, through which pilots of some clusters reach the server."""

from __future__ import annotations

import asyncio
from functools import partial
from urllib.parse import urlsplit

from pilotage.core.policy import Ce
from pilotage.outside.batch.ssh.relay import RelayState
from pilotage.server.context import Context
from pilotage.server.duties.duty import Duty

_STARTS = RelayState("", "the relay starts")
_NO_TLS = RelayState(
    "",
    "a relay passes TLS with the server's own certificate: start the server with `--listen`, and without a CA",
)


def relay_of(context: Context, ce: Ce) -> RelayState:
    """The relay of a CE that has one, at the last look."""
    return context.pilots.relays.get((ce.reach, ce.relay), _STARTS)


class RelayDuty(Duty):
    """Starts each relay that the policy names, and again when it has ended. Relays that it names no more end."""

    name = "relays"
    lease = "batch pilots"
    every = 2.0

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._started = False

    async def work(self) -> None:
        context = self._context
        needed = sorted({(ce.reach, ce.relay) for ce in context.pool.policy.ces.values() if ce.relay})
        states = dict.fromkeys(needed, _NO_TLS)
        if needed and context.address.fingerprints:
            looks = (asyncio.to_thread(partial(self._look, *names)) for names in needed)
            states = dict(zip(needed, await asyncio.gather(*looks), strict=True))
            self._started = True
        elif self._started:
            self._started = False
            await asyncio.to_thread(context.pilots.ssh.close_relays, ())
        context.pilots.relays.clear()
        context.pilots.relays.update(states)

    def _look(self, reach: str, relay: str) -> RelayState:
        context, address = self._context, urlsplit(self._context.address.url)
        host = f"[{address.hostname}]" if ":" in (address.hostname or "") else address.hostname
        now = context.monotonic()
        return context.pilots.outside.ask(
            f"relay {relay} by {reach}",
            RelayState,
            lambda: context.pilots.ssh.relay(reach, relay).ensure(f"{host}:{address.port}", now),
        )
