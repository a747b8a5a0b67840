"""The sessions of browsers in a file of the home, so that they outlive a restart of the server."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import msgspec

from pilotage.server.private_files import write_private
from pilotage.server.web_sessions import IDLE, StoredSession, WebSessions

logger = logging.getLogger(__name__)

BETWEEN_WRITES = IDLE / 12
"""Seconds after which the times of use are written again. A crash forgets the uses since then."""


class SessionFile:
    """Reads and writes the file. Without a path nothing is stored."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._writing = asyncio.Lock()
        self._written = 0.0

    def read(self) -> list[StoredSession]:
        """The sessions of the server before. A file that cannot be read has none: people sign in again."""
        if self._path is None:
            return []
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=list[StoredSession])
        except FileNotFoundError:
            return []
        except (OSError, msgspec.MsgspecError) as error:
            logger.warning("%s cannot be read, so browsers have to sign in again: %s", self._path, error)
            return []

    async def write(self, sessions: WebSessions, now: float) -> None:
        """Store the sessions of now. A sign-out is answered after it, so that no restart undoes it."""
        if self._path is None:
            return
        self._written = now
        async with self._writing:
            await asyncio.to_thread(self._replace, self._path, sessions.stored(now))

    async def write_uses(self, sessions: WebSessions, now: float) -> None:
        """Store the times of use, if the last ones are old."""
        if now - self._written > BETWEEN_WRITES:
            await self.write(sessions, now)

    @staticmethod
    def _replace(path: Path, rows: list[StoredSession]) -> None:
        try:
            write_private(path, msgspec.json.encode(rows).decode())
        except OSError as error:
            # An old file could bring back a session that somebody has ended.
            path.unlink(missing_ok=True)
            logger.warning("sessions of browsers end with this server, since %s: %s", path, error)
