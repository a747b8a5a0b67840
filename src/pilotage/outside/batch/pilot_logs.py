"""The output of pilots that a batch system writes into a shared folder."""

from __future__ import annotations

import os
import stat

TAIL = 2000
"""Characters shown of the end of a pilot's output."""

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def log_name(submission: str, index: str) -> str:
    """Name of the file with a pilot's output, for its submission's stamp and its index."""
    return f"{submission}-{index}.log"


def read_log_tail(folder: str, stamp: str, most: int = TAIL) -> str:
    """The end of a pilot's output; empty if the server cannot read it. `stamp`: SUBMISSION/INDEX.

    A payload may write into the folder, so neither links nor pipes are followed.
    """
    submission, _, index = stamp.partition("/")
    if not folder or not index.isdigit():
        return ""
    try:
        number = os.open(os.path.join(folder, log_name(submission, index)), _FLAGS)
    except OSError:
        return ""
    size = os.fstat(number)
    if not stat.S_ISREG(size.st_mode):
        os.close(number)
        return ""
    with open(number, "rb") as log:
        # A character has at most four bytes.
        log.seek(max(0, size.st_size - 4 * most))
        return log.read(4 * most).decode(errors="replace")[-most:]
