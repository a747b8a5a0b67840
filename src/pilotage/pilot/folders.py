"""The work folder of a pilot: private, and locked while the pilot lives.

The guardian removes the folder. If both processes are killed, the next pilot of the same user on the host removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import tempfile
from functools import lru_cache
from typing import FrozenSet, List, Tuple

from .removal import FOLDER, remove_tree

_NEW = 60.0
"""Seconds during which an unlocked folder is left alone: another pilot may just be creating it."""
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


def make_work_folder(parent: str, label: str, host: str) -> Tuple[str, int]:
    """Create a folder that only this user can enter; returns its path and the descriptor that holds its lock."""
    while True:
        prefix = f"pilotage-{_UNSAFE.sub('_', label)}+{_UNSAFE.sub('_', host)}-"
        folder = tempfile.mkdtemp(prefix=prefix, dir=parent or None)
        try:
            lock = os.open(folder, FOLDER)
            # Without locks on the file system, no other pilot can lock the folder and consider it stale.
            with contextlib.suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.isdir(folder):
                return folder, lock
            os.close(lock)
        except FileNotFoundError:
            pass  # another pilot considered the folder stale and removed it


def remove_stale(parent: str, host: str, now: float) -> List[str]:
    """Remove the unlocked work folders of this user on this host; returns their names.

    Their pilots were killed together with their guardians. `now`: seconds since 1970.
    """
    parent = parent or tempfile.gettempdir()
    host = re.escape(_UNSAFE.sub("_", host))
    pattern = re.compile(rf"pilotage-[A-Za-z0-9._-]*\+{host}-[a-z0-9_]{{8}}")
    try:
        names = [name for name in os.listdir(parent) if pattern.fullmatch(name)]
    except OSError:
        return []
    return [name for name in names if _remove_if_stale(os.path.join(parent, name), now)]


def _remove_if_stale(folder: str, now: float) -> bool:
    try:
        lock = os.open(folder, FOLDER)
    except OSError:
        return False
    try:
        status = os.fstat(lock)
        if status.st_uid != os.getuid() or now - status.st_ctime < _NEW:
            return False
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        remove_tree(folder)
        return True
    except OSError:  # the folder is locked, or the file system has no locks
        return False
    finally:
        os.close(lock)


def stays_inside(name: str) -> bool:
    """Whether this is a relative name that stays inside its folder."""
    return (
        bool(name)
        and not name.startswith("/")
        and "\0" not in name
        and ".." not in name.split("/")
        and os.path.normpath(name) != "."
    )


@lru_cache(maxsize=64)
def stream_names(std_output: str, std_error: str) -> Tuple[Tuple[str, ...], FrozenSet[str]]:
    """The files for standard output and error, and which of them lie directly in the working directory."""
    output = os.path.normpath(std_output or "stdout")
    error = os.path.normpath(std_error or "stderr")
    files = (output, error) if output != error else (output,)
    return files, frozenset(name for name in files if stays_inside(name) and "/" not in name)
