"""System calls that Python's library lacks, signals to processes, and the clock."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from typing import Optional

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36


def _prctl(option: int, value: int) -> bool:
    try:
        return ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) == 0  # type: ignore[no-any-return]
    except (OSError, AttributeError):
        return False


def forbid_dumps() -> bool:
    """Deny other processes of this user access to this process's memory and environment. Forked children inherit it."""
    return _prctl(_PR_SET_DUMPABLE, 0)


def become_subreaper() -> bool:
    """Become the parent of orphaned descendants from now on."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(number: int) -> bool:
    """Ask the kernel to send this signal to this process when its parent ends."""
    return _prctl(_PR_SET_PDEATHSIG, number)


def clock() -> float:
    """Monotonic seconds that include the time during which the machine is suspended (CLOCK_BOOTTIME)."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def started_at() -> float:
    """When this process was started, by `clock`. A shell that became this process by `exec` counts."""
    try:
        with open("/proc/self/stat", "rb") as file:
            ticks = int(file.read().rpartition(b") ")[2].split()[19])
        return ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return clock()


def kill(pid: int, number: int) -> None:
    """Send a signal to a process that may have ended."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def kill_group(leader: int, number: int) -> None:
    """Send a signal to a process group. Call only before its leader is reaped: then its number may be reused."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def peek_dead_child() -> Optional[int]:
    """The pid of an ended child, which stays unreaped; 0 if no child has ended; None if there are no children."""
    try:
        info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return info.si_pid if info is not None else 0


LEAVE_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that ask the pilot to leave; usually a batch system sends them."""
