"""Folders of jobs in place, and the marks by which nodes know them again."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

from pilotage.client.description import LocalDescription
from pilotage.core.errors import InvalidInput
from pilotage.core.jobs.description import COPY


def present_folder() -> str:
    """The working folder by the name that the shell has for it: with links, as the policy names shared folders."""
    named = os.environ.get("PWD", "")
    try:
        if os.path.isabs(named) and os.path.normpath(named) == named and os.path.samefile(named, "."):
            return named
    except OSError:
        pass
    return str(Path.cwd())


def folder_fields(folder: str | Path = "") -> dict[str, str]:
    """The fields of a job that runs in place in a folder: its path, mark and umask; "": the present folder.

    A folder that this machine does not have gets no mark: its nodes only check that it exists.
    """
    here = present_folder()
    path = os.path.normpath(os.path.join(here, folder)) if folder else here
    if not path.isprintable():
        raise InvalidInput(
            f"the folder {path!r} has characters that cannot be printed, or is not UTF-8", field="folder"
        )
    if not os.path.exists(path):
        return {"folder": path, **_umask()}
    if not os.path.isdir(path):
        raise InvalidInput(f"{path} is not a folder", hint="a job in place runs in a folder", field="folder")
    return {"folder": path, "folder_mark": folder_mark(path), **_umask()}


def _umask() -> dict[str, str]:
    """The umask of this process. It is read without being changed, as other threads may create files."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return {}
    line = re.search(r"^Umask:\s*([0-7]+)$", status, re.MULTILINE)
    return {"umask": line[1]} if line else {}


def folder_mark(folder: str | Path) -> str:
    """The mark of a folder: its inode number, and that of the folder above if it is on the same file system."""
    status, above = os.stat(folder), os.stat(os.path.dirname(folder))
    is_inside = status.st_dev == above.st_dev and status.st_ino != above.st_ino
    return f"ino:{status.st_ino}/{above.st_ino}" if is_inside else f"ino:{status.st_ino}"


def without_files_of_folder(described: LocalDescription, folder: str) -> LocalDescription:
    """The description without the input files that a job in place finds in its folder by the same name.

    Other local files raise InvalidInput: the job would not find them.
    """
    submission = described.submission
    kept = []
    for item in submission.description.input_sandbox:
        if item.mode != COPY:
            kept.append(item)
            continue
        path = os.path.abspath(described.local_path(item))
        if path != os.path.abspath(os.path.join(folder, item.name)):
            raise InvalidInput(
                f"the input {item.name} is at {path}: a job in place gets no copies of files",
                hint=f"it finds files in {folder}, and others by their absolute paths",
                field="input_sandbox",
            )
    description = replace(submission.description, input_sandbox=tuple(kept))
    return replace(described, submission=replace(submission, description=description))
