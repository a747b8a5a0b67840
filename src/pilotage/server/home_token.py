"""The token of the home's owner: a file that only the owner can read, and that the server keeps valid.

The file's permission is the proof of identity. So the owner is never locked out: not by expiry, a changed key, a step
of the clock or a policy.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

from pilotage.core.errors import Overloaded, PilotageError
from pilotage.core.policy import Policy
from pilotage.server.private_files import write_private
from pilotage.server.tokens import LIFETIME, Issuer

SLACK = 60.0
"""Seconds by which the clock may have been set back without a new token."""
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


class HomeToken:
    """Keeps the file at `path`. Any thread may call it."""

    def __init__(
        self,
        path: Path,
        issuer: Issuer,
        owner: str,
        policy: Callable[[], Policy],
        clock: Callable[[], float],
    ) -> None:
        self._path = path
        self._issuer = issuer
        self._owner = owner
        self._policy = policy
        self._clock = clock
        self._lock = threading.Lock()

    def write(self) -> None:
        """Write a new token into the file."""
        policy = self._policy()
        user = policy.users.get(self._owner)
        group = user.groups[0] if user is not None and user.groups else ""
        token, _ = self._issuer.issue(self._owner, group, self._clock(), home=True)
        try:
            write_private(self._path, token)
        except OSError as error:
            if error.errno not in NO_SPACE or not self._overwrite(token):
                raise Overloaded(
                    f"the token of the home cannot be written: {error.strerror}",
                    hint="make room on the disk of the home",
                ) from error

    def ensure(self) -> None:
        """Write a new token into the file, unless the present one is valid for at least half of its lifetime."""
        with self._lock:
            if not self._is_valid():
                self.write()

    def _is_valid(self) -> bool:
        now = self._clock()
        try:
            if self._path.stat().st_mode & 0o077:
                return False
            caller = self._issuer.read(self._path.read_text().strip(), self._policy(), now)
        except (OSError, UnicodeDecodeError, PilotageError):
            return False
        user = self._policy().users.get(self._owner)
        known = user is None or caller.group in user.groups
        # A token with more than a whole lifetime left was issued when the clock was ahead.
        return caller.home and known and LIFETIME / 2 <= caller.expires - now <= LIFETIME + SLACK

    def _overwrite(self, token: str) -> bool:
        """Write into the existing blocks of the file: a full disk has no room for a second file."""
        try:
            if self._path.stat().st_mode & 0o077:
                return False
            with self._path.open("r+b", buffering=0) as file:
                file.write(token.encode() + b"\n")
                file.truncate()
                os.fsync(file.fileno())
        except OSError:
            return False
        return True
