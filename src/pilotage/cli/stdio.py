"""Where the command line meets the system: its streams, and the system's errors in words.

A command ends with a message and an exit code, never with a trace. This holds with closed streams, an encoding that
lacks a character, and a full disk.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from typing import TextIO

from pilotage.core.errors import InvalidInput, PilotageError

STREAMS = (("stdin", os.O_RDONLY), ("stdout", os.O_WRONLY), ("stderr", os.O_WRONLY))


def prepare_streams() -> None:
    """Make the three standard streams usable.

    A closed one becomes the null device. Otherwise the next file or socket opened would get its number, and printed
    text would go there. Characters that the encoding of a stream lacks are written as escapes.
    """
    for number, (name, flags) in enumerate(STREAMS):
        if _is_closed(number):
            # The lowest free number is given, and all below are in use.
            opened = os.open(os.devnull, flags)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        _tolerate(stream)


def discard_output() -> None:
    """Discard pending output: its reader has left, or the disk is full."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                os.dup2(null, stream.fileno())
                stream.flush()
    os.close(null)


def describe_system_error(error: Exception) -> PilotageError | None:
    """The error of a system call or of an encoding as one for people; None for all others."""
    if isinstance(error, UnicodeError):
        return InvalidInput(f"a text cannot be encoded: {error}", hint="names and arguments are UTF-8")
    if not isinstance(error, OSError):
        return None
    what = error.strerror or str(error) or type(error).__name__
    place = error.filename if error.filename is not None else ""
    if isinstance(place, bytes):
        place = os.fsdecode(place)
    if error.errno == errno.EMFILE:
        return InvalidInput(what, hint="`ulimit -n` shows how many files may be open, and raises it")
    return InvalidInput(f"{place}: {what}" if place else f"the system says: {what}", hint=_hint(error))


def _hint(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "make room there"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "choose another place, or get the right to use this one"
    return ""


def _is_closed(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return True
    return False


def _tolerate(stream: TextIO) -> None:
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")
