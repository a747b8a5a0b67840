"""Hides the environment of the server from other processes of its account, which can read /proc/PID/environ.

The kernel shows the memory in which a program got its variables. They are copied, and this memory is
cleared. Core dumps and debuggers work on: they are for the account, and so is a job that attaches one.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from pilotage.outside.service_keys import take_keys

_ENV_START, _ENV_END = 47, 48
"""Places in /proc/PID/stat, counted from the first field after the name of the program."""


def hide_environment() -> None:
    """Keep keys in memory only, and clear the variables that the kernel shows."""
    take_keys()
    try:
        fields = (
            Path("/proc/self/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        )
        start, end = int(fields[_ENV_START]), int(fields[_ENV_END])
    except (OSError, IndexError, ValueError):
        return  # this system has no such file
    for name, value in list(os.environ.items()):
        os.environ[name] = value  # the C library keeps a copy, for itself and for other libraries
    if 0 < start < end:
        ctypes.memset(start, 0, end - start)
