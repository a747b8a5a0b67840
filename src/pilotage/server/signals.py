"""The events by which routes and duties of one server wake or stop one another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from pilotage.core.errors import PilotageError


class Stop(asyncio.Event):
    """Set to stop the server."""

    def __init__(self) -> None:
        super().__init__()
        self.mode = ""
        """The mode of the stop: "", "drain", "keep" or "cancel"."""
        self.error: PilotageError | None = None
        """The error that ends the server, if it ends by itself."""
        self.told: list[Callable[[], None]] = []
        """Called when it is set. Thousands wait elsewhere: each pause of a duty looks through the waiters here."""

    def set(self) -> None:
        super().set()
        for tell in self.told:
            tell()


@dataclass(frozen=True, slots=True)
class Wake:
    """Events that wake duties before their period is over."""

    local_ces: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the number of pilots that are needed may have changed."""
    locations: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when blocks have moved or data sets were removed."""
    catalogues: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a data set of an outside catalogue is asked for."""
    shares: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when shares or corrections must be computed again."""
    intake: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a block or data set was closed, or a request has moved. Assigned requests wait for the period."""
    release: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when jobs of elements were made, or jobs of requests have ended."""
    dependants: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a job has ended that others depend on."""
