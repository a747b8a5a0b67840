"""Logs one line per event on standard error, which batch systems keep. Secrets are never logged."""

from __future__ import annotations

import sys
import time
from typing import Any


def log(event: str, **facts: Any) -> None:
    """Write the time, the event, and `name=value` for each fact that has a value."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    words = [f"{name}={_plain(value)}" for name, value in facts.items() if value not in ("", None)]
    sys.stderr.write(" ".join([stamp, event, *words]) + "\n")


def _plain(value: Any) -> str:
    text = str(value)
    return repr(text) if any(char.isspace() or not char.isprintable() for char in text) else text
