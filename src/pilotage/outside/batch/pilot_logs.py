"""The output of pilots that a batch system writes into a shared folder."""

from __future__ import annotations

import contextlib
import os
import shlex
import stat

from pilotage.outside.batch.adapter import BatchSubmission

TAIL = 2000
"""Characters shown of the end of a pilot's output."""

_MOST_BYTES = 4
"""Bytes of one character."""

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def log_name(submission: str, index: str) -> str:
    """Name of the file with a pilot's output, for its submission's stamp and its index."""
    return f"{submission}-{index}.log"


def script_with_log(submission: BatchSubmission, folder: str, variable: str, index: str) -> str:
    """The script of a submission, with lines that set its variable to the index and open the log in the folder.

    A missing log folder is no reason to fail: an option of the batch system would put the job into an error state.
    """
    lines = [f"{variable}={index}; export {variable}"]
    if folder:
        log = f'{shlex.quote(folder)}/"{log_name(submission.stamp, f"${variable}")}"'
        lines.append("umask 077")
        lines.append(f"if (: >>{log}) 2>/dev/null; then exec >>{log} 2>&1; fi")
    first, newline, rest = submission.script.partition("\n")
    if not first.startswith("#!"):
        first, newline, rest = "#!/bin/sh", "\n", submission.script
    return f"{first}{newline}" + "".join(f"{line}\n" for line in lines) + rest


def _log_path(folder: str, stamp: str) -> str:
    """The file with a pilot's output; empty: it has none."""
    submission, slash, index = stamp.partition("/")
    if not folder or (slash and not index.isdigit()):
        return ""
    return os.path.join(folder, log_name(submission, index) if slash else f"{stamp}.log")


def tail_command(folder: str, stamp: str, most: int) -> list[str]:
    """The command that prints at least the last `most` characters of a pilot's output, where its file lies.

    Empty: the pilot has no file. As here, neither a link nor a pipe is opened.
    """
    path = _log_path(folder, stamp)
    shown = 'if [ -f "$1" ] && [ ! -L "$1" ]; then tail -c "$2" "$1"; fi'
    return ["sh", "-c", shown, "sh", path, str(_MOST_BYTES * most)] if path else []


def remove_log(folder: str, stamp: str) -> None:
    """Remove the file with a pilot's output. A file that the server may not remove, or that is gone, stays so."""
    if path := _log_path(folder, stamp):
        with contextlib.suppress(OSError):
            os.unlink(path)


def read_log_tail(folder: str, stamp: str, most: int = TAIL) -> str:
    """The last `most` characters of a pilot's output; empty if the server cannot read it."""
    part = read_log_from(folder, stamp, None, _MOST_BYTES * most)
    return "" if part is None else part[1].decode(errors="replace")[-most:]


def read_log_from(folder: str, stamp: str, offset: int | None, most: int) -> tuple[int, bytes] | None:
    """At most `most` bytes of a pilot's output, and their position. None: the server cannot read it.

    `stamp`: SUBMISSION/INDEX, or only STAMP for a pilot that is no part of an array. `offset`: None for the end of the
    output. A payload may write into the folder, so neither links nor pipes are followed.
    """
    path = _log_path(folder, stamp)
    if not path:
        return None
    try:
        number = os.open(path, _FLAGS)
    except OSError:
        return None
    status = os.fstat(number)
    if not stat.S_ISREG(status.st_mode):
        os.close(number)
        return None
    begin = max(0, status.st_size - most) if offset is None else min(offset, status.st_size)
    with open(number, "rb") as log:
        log.seek(begin)
        return begin, log.read(most)
