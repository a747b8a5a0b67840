"""Removes a folder tree that a payload has written: missing permissions, links and any depth are handled."""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
import sys
from typing import Iterator, Optional, Set

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(folder: str) -> None:
    """Remove a folder and everything below it. Links are not followed, and nothing outside of the folder is changed.

    If the folder cannot be removed, a line on standard error says so; no error is raised.
    """
    with contextlib.suppress(OSError):
        os.rmdir(folder)
        return
    root = _open_folder(folder, None)
    if root is not None:
        try:
            _empty(root)
        finally:
            os.close(root)
        with contextlib.suppress(OSError):
            os.rmdir(folder)
    if os.path.lexists(folder):
        print(f"could not remove {folder}", file=sys.stderr, flush=True)


def _empty(root: int) -> None:
    """Remove the contents of a folder, level by level.

    Before a subfolder is removed, its own subfolders are moved up beside it. So the depth of the tree costs neither
    recursion nor file descriptors.
    """
    stuck: Set[str] = set()
    numbers = itertools.count()
    while True:
        folders = [name for name in _unlink_files(root, stuck) if name not in stuck]
        if not folders:
            return
        for name in folders:
            if not _flatten(root, name, numbers):
                stuck.add(name)


def _flatten(root: int, name: str, numbers: Iterator[int]) -> bool:
    """Remove one subfolder after moving its subfolders up to `root`; False if nothing could be moved or removed."""
    subfolder = _open_folder(name, root)
    if subfolder is None:
        return False
    moved = False
    try:
        for inner in _unlink_files(subfolder, ()):
            moved = _move_up(subfolder, inner, root, f".removed-{next(numbers)}") or moved
    finally:
        os.close(subfolder)
    try:
        os.rmdir(name, dir_fd=root)
    except OSError:
        return moved
    return True


def _move_up(folder: int, name: str, root: int, new: str) -> bool:
    number = _open_folder(name, folder)  # a folder that cannot be written to cannot be moved either
    if number is not None:
        os.close(number)
    try:
        os.rename(name, new, src_dir_fd=folder, dst_dir_fd=root)
    except OSError:
        return False
    return True


def _unlink_files(folder: int, stuck: "Set[str] | tuple[()]") -> Iterator[str]:
    """Remove everything but folders from a folder; yields the names of its folders."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield entry.name
                elif entry.name not in stuck:
                    with contextlib.suppress(OSError):
                        os.unlink(entry.name, dir_fd=folder)
    except OSError:
        return


def _open_folder(name: str, parent: Optional[int]) -> Optional[int]:
    """Open a folder after granting its owner full access; None if that fails."""
    with contextlib.suppress(OSError):
        _grant_owner_access(name, parent)
        return os.open(name, FOLDER, dir_fd=parent)
    return None


def _grant_owner_access(name: str, parent: Optional[int]) -> None:
    number = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=parent)
    try:
        if os.fstat(number).st_mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(f"/proc/self/fd/{number}", stat.S_IRWXU)
    finally:
        os.close(number)
