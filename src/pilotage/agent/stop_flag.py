"""The order to end, given by a signal handler or another thread."""

from __future__ import annotations

import os
import select


class StopFlag:
    """Like `threading.Event`, which a signal handler must not set: it could wait for a lock of its own thread."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        self.is_set = False

    def set(self) -> None:
        self.is_set = True
        os.write(self._write, b"x")

    def wait(self, seconds: float) -> bool:
        """Wait until the flag is set, for `seconds` at most; whether it is set."""
        select.select([self._read], [], [], max(0.0, seconds))
        return self.is_set

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)
