"""The files of standard output and error of one payload: in its working directory, or where a job in place writes."""

from __future__ import annotations

import base64
import os
import tempfile
from typing import IO, FrozenSet, List, Optional, Sequence, Tuple

from pilotage.wire.pilot import INLINE_OUTPUT_BYTES, Payload

from .cannot_run import NOT_EXECUTABLE, CannotRun
from .folders import stays_inside, stream_names
from .in_place import open_in_place
from .safe_open import NAME_ERRORS, make_folders, open_root, split

STREAMS = ("stdout", "stderr")
MAX_END = 1 << 18
"""Bytes of the end of a stream that are sent of a payload that was stopped or killed, if not all is sent."""


class StandardStreams:
    """Open files. One file if both streams go to the same one."""

    def __init__(self, payload: Payload) -> None:
        self._payload = payload
        self.files: List[int] = []
        self._begins: List[int] = []
        """Where the payload's own output begins: files in place may be appended to."""
        self._in_place = (payload.stdout_file, payload.stderr_file or payload.stdout_file)

    @property
    def is_kept_in_place(self) -> bool:
        """Whether standard output or error goes to a file of the user, of which only the end is sent."""
        return bool(self._in_place[1])

    @property
    def names(self) -> Tuple[str, ...]:
        """Names of the files as the server stores them; one name if both go to the same file."""
        if self._in_place[0]:
            names = (self._payload.std_output, self._payload.std_error)
            return names[:1] if self._in_place[0] == self._in_place[1] else names
        return stream_names(self._payload.std_output, self._payload.std_error)[0]

    @property
    def removable(self) -> FrozenSet[str]:
        """The files directly in the working directory. Only these are emptied or removed by name."""
        if not self.is_kept_in_place:
            return stream_names(self._payload.std_output, self._payload.std_error)[1]
        name = os.path.normpath(self._payload.std_output)
        return frozenset() if self._in_place[0] or "/" in name else frozenset((name,))

    @property
    def own_files(self) -> Sequence[int]:
        """The descriptors of the files in the working directory."""
        if not self.is_kept_in_place:
            return self.files
        return () if self._in_place[0] else self.files[:1]

    def open(self, work_dir: str) -> None:
        """Open or create the files. Raises CannotRun."""
        if not self.is_kept_in_place:
            self._open_own(work_dir, self.names)
            return
        output, error = self._in_place
        if not output:
            self._open_own(work_dir, self.names[:1])
        for name in dict.fromkeys(name for name in (output, error) if name):
            self.files.append(open_in_place(self._payload, name))
            self._begins.append(os.fstat(self.files[-1]).st_size)

    def _open_own(self, work_dir: str, names: Sequence[str]) -> None:
        inputs = {os.path.normpath(item.name) for item in self._payload.inputs}
        try:
            root = open_root(work_dir)
            try:
                for name in names:
                    if not stays_inside(name) or name in inputs:
                        why = "is an input" if name in inputs else "leads out of the folder"
                        raise CannotRun(f"standard output or error: {name!r} {why}", NOT_EXECUTABLE)
                    self._open_file(root, name)
            finally:
                os.close(root)
        except (OSError, ValueError) as error:
            message = f"standard output or error: {error}"
            if isinstance(error, OSError) and error.errno not in NAME_ERRORS:
                raise CannotRun(message, failure="node") from None
            # The name would fail on every node: the payload is to blame, with the exit code of a shell.
            raise CannotRun(message, NOT_EXECUTABLE) from None

    def _open_file(self, root: int, name: str) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        parent, last = split(name)
        folder = make_folders(root, parent) if parent else root
        try:
            number = os.open(last, flags, 0o600, dir_fd=folder)
        finally:
            if parent:
                os.close(folder)
        self.files.append(number)
        self._begins.append(0)
        if os.fstat(number).st_size:
            os.ftruncate(number, 0)

    def close(self) -> None:
        for number in self.files:
            os.close(number)
        self.files.clear()

    # Reading

    def place(self, stream: str) -> Optional[int]:
        """The place of standard output or error among the files while it is open."""
        place = STREAMS.index(stream)
        return place if place < len(self.files) else None

    def size(self, place: int) -> int:
        """The bytes that the payload has written."""
        return max(0, os.fstat(self.files[place]).st_size - self._begins[place])

    def read(self, place: int, length: int, offset: int) -> bytes:
        """A part of the payload's output."""
        return os.pread(self.files[place], length, self._begins[place] + offset) if length > 0 else b""

    def inlined(self, place: int) -> Optional[str]:
        """A stream for the Finish; None: it is too large. Of a file in place the end."""
        size = self.size(place)
        if size <= INLINE_OUTPUT_BYTES:
            return base64.b64encode(self.read(place, size, 0)).decode()
        if self.is_kept_in_place and self.files[place] not in self.own_files:
            return base64.b64encode(self._end(place, INLINE_OUTPUT_BYTES)).decode()
        return None

    def copy(self, place: int, folder: str) -> IO[bytes]:
        """A file to upload: the stream, or of a file in place its end. Raises OSError."""
        if self.files[place] in self.own_files:
            return os.fdopen(os.dup(self.files[place]), "rb")
        file: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (the caller closes it)
        file.write(self._end(place, MAX_END))
        file.flush()
        return file

    def _end(self, place: int, most: int) -> bytes:
        """The end of a stream, after a line that tells how much is left out."""
        size = self.size(place)
        if size <= most:
            return self.read(place, size, 0)
        left = size - most + 100
        note = b"[%d bytes are left out here: they are in the file on the node]\n" % left
        return note + self.read(place, size - left, left)
