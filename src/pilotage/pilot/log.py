"""Logs one line per event on standard error, which batch systems keep. Secrets are never logged."""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import Any, Deque

MAX_TAIL = 8000
"""Characters kept of the end of the log."""

_recent: Deque[str] = deque()
_size = 0
"""Characters in `_recent`, line ends included."""


def log(event: str, **facts: Any) -> None:
    """Write the time, the event, and `name=value` for each fact that has a value."""
    global _size
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    words = [f"{name}={_plain(value)}" for name, value in facts.items() if value not in ("", None)]
    line = " ".join([stamp, event, *words])
    _recent.append(line)
    _size += len(line) + 1
    while len(_recent) > 1 and _size > MAX_TAIL:
        _size -= len(_recent.popleft()) + 1
    sys.stderr.write(line + "\n")


def log_tail() -> str:
    """The last lines of this pilot's log, at most `MAX_TAIL` characters."""
    return "".join(f"{line}\n" for line in tuple(_recent))[-MAX_TAIL:]


def _plain(value: Any) -> str:
    text = str(value)
    return repr(text) if any(char.isspace() or not char.isprintable() for char in text) else text
