"""The work folder of a pilot: private, locked while the pilot lives, and removed by the next one at the latest."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import tempfile
from typing import List, Tuple

from .removal import FOLDER, remove_tree

_NEW = 60.0
"""Seconds for which a folder without a lock may be one that is just being made."""
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


def make_work_folder(parent: str, label: str, host: str) -> Tuple[str, int]:
    """A new folder that only this user can enter, and a descriptor that holds its lock."""
    while True:
        prefix = f"pilotage-{_UNSAFE.sub('_', label)}+{_UNSAFE.sub('_', host)}-"
        folder = tempfile.mkdtemp(prefix=prefix, dir=parent or None)
        try:
            lock = os.open(folder, FOLDER)
            with contextlib.suppress(OSError):  # without locks on this file system nobody takes it for stale
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.isdir(folder):
                return folder, lock
            os.close(lock)
        except FileNotFoundError:
            pass  # this process slept so long that another pilot took the folder for stale


def remove_stale(parent: str, host: str, now: float) -> List[str]:
    """Remove work folders of this user on this host whose lock nobody holds; returns their names.

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
    except OSError:  # it is locked, or this file system has no locks
        return False
    finally:
        os.close(lock)


def stays_inside(name: str) -> bool:
    """Is this a relative name that stays inside its folder?"""
    return (
        bool(name)
        and not name.startswith("/")
        and "\0" not in name
        and ".." not in name.split("/")
        and os.path.normpath(name) != "."
    )
