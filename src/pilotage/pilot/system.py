"""The few calls that Python's library lacks, and the two clocks."""

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
    """Close this process's memory and environment in /proc to others of the same user; a fork inherits it."""
    return _prctl(_PR_SET_DUMPABLE, 0)


def become_subreaper() -> bool:
    """Orphans among this process's descendants become its children from now on."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(number: int) -> bool:
    """Have this signal sent to this process when its parent has gone."""
    return _prctl(_PR_SET_PDEATHSIG, number)


def clock() -> float:
    """Seconds that also pass while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def kill(pid: int, number: int) -> None:
    """Send a signal to a process that may have gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def kill_group(leader: int, number: int) -> None:
    """Send a signal to a process group. Only while its leader is unreaped, else its number may be another's."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def peek_dead_child() -> Optional[int]:
    """A child that has ended, still unreaped; 0 if none has yet; None if there are no children at all."""
    try:
        info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return info.si_pid if info is not None else 0


LEAVE_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Each means that somebody, a batch system as a rule, wants the pilot gone."""
