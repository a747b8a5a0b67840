"""NOTIFY: a word to the other servers, within the transaction that writes, that there is a change row to be read.

Nothing depends on it: who misses one reads the row in its next look.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import psycopg

from pilotage.store.cluster.changes import CHANNEL
from pilotage.store.engine.connection import ConnectionLost

RECONNECT_DELAY = 1.0
"""Seconds between attempts to listen again."""

ListeningSession = psycopg.AsyncConnection[Any]


class Notifications(Protocol):
    """Notifications by other servers."""

    async def listen(self, heard: Callable[[str], object]) -> None:
        """Call `heard` with the name of each server that has written, and with "" where some may have been missed.

        Ends by being cancelled only; goes on by itself where the database goes away.
        """
        ...


class PostgresqlNotifications:
    """Notifications by a session of their own, which `connect` makes, or raises `ConnectionLost`."""

    def __init__(
        self, connect: Callable[[], Awaitable[ListeningSession]], pause: float = RECONNECT_DELAY
    ) -> None:
        self._connect = connect
        self._pause = pause

    async def listen(self, heard: Callable[[str], object]) -> None:
        while True:
            try:
                await self._listen(heard)
            except (ConnectionLost, psycopg.Error):
                await asyncio.sleep(self._pause)

    async def _listen(self, heard: Callable[[str], object]) -> None:
        async with await self._connect() as session:
            await session.execute(f"LISTEN {CHANNEL}".encode())
            heard("")
            async for note in session.notifies():
                heard(note.payload)
