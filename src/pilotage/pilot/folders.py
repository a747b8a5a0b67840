"""Folders of the pilot and its payloads: made private, removed whatever a payload did to them."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
from typing import Any


def make_work_folder(parent: str, label: str) -> str:
    """A new folder that only this user can enter."""
    safe = "".join(char if char.isalnum() or char in "._-" else "_" for char in label)
    return tempfile.mkdtemp(prefix=f"pilotage-{safe}-", dir=parent or None)


def remove_tree(folder: str) -> None:
    """Remove a folder and all below it, also where modes were taken away. What can't be removed is said, not raised.

    Nothing outside the folder is touched, whatever is wrong with it: its parent belongs to the node.
    """
    try:
        os.rmdir(folder)
        return
    except FileNotFoundError:
        return
    except OSError:
        pass
    inside = folder.rstrip("/") + "/"

    def open_up_and_retry(function: Any, path: str, error: Any) -> None:
        try:
            if path.startswith(inside):
                os.chmod(os.path.dirname(path), stat.S_IRWXU)
                if function in (os.unlink, os.rmdir):
                    function(path)
                    return
            if os.path.isdir(path) and not os.path.islink(path):
                os.chmod(path, stat.S_IRWXU)
                shutil.rmtree(path, ignore_errors=True)
        except OSError:
            pass

    shutil.rmtree(folder, onerror=open_up_and_retry)
    if os.path.lexists(folder):
        print(f"could not remove {folder}", file=sys.stderr, flush=True)


def within(name: str) -> bool:
    """Is this a relative name that stays inside its folder?"""
    return (
        bool(name)
        and not name.startswith("/")
        and "\0" not in name
        and ".." not in name.split("/")
        and os.path.normpath(name) != "."
    )
