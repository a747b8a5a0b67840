"""A storage place that programs of the node read and write, such as xrdcp or gfal-copy.

The policy has the words of each command, and no shell reads them. A stored file is compared with its checksum.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from typing import IO, Dict, Iterable, Iterator, List, Set

from pilotage.wire.data import StoragePlace

from .checksums import Checksum
from .events import Key
from .node_commands import COMMANDS
from .place import PIECE, DataAttempt, PlaceFailed

TRIES = 3
"""Times that a command is run, if it ends with another exit code than 0."""
_NO_PROGRAM = (126, 127)
"""Exit codes of programs such as `env` and `nice` that find no program to run."""
_TOLD = 500
"""Bytes from the end of a command's output that are told."""
_HEX = re.compile(r"(?<![0-9a-z])[0-9a-f]{1,8}(?![0-9a-z])")


class CommandPlace:
    """Implements `PlaceAdapter`."""

    def __init__(self, place: StoragePlace, attempt: DataAttempt) -> None:
        self._place = place
        self._attempt = attempt

    def own_folder(self, prefix: str, element: int, key: Key) -> str:
        return f"{element}/{key[0]}-{key[1]}-{self._attempt.stamp}"

    def write(self, path: str, pieces: Iterable[bytes], checksum: Checksum) -> str:
        with self._temporary_name() as name:
            with open(name, "xb") as file:
                for piece in pieces:
                    self._attempt.check()
                    checksum.update(piece)
                    file.write(piece)
            for number in range(1, TRIES + 1):
                try:
                    self._run(self._place.put, path, name)
                    self._compare(path, checksum)
                    return ""
                except PlaceFailed as error:
                    if error.is_of_node or number == TRIES:
                        raise
                # A part of a file may be in the way of the next command.
                with contextlib.suppress(PlaceFailed):
                    self.remove(path)
                self._attempt.pause(number)
        raise AssertionError("the last try returns or raises")

    def _compare(self, path: str, checksum: Checksum) -> None:
        if self._place.check:
            value = checksum.text.partition(":")[2]
            output = self._run(self._place.check, path).lower()
            if value not in (digits.zfill(8) for digits in _HEX.findall(output)):
                raise PlaceFailed(f"its checksum there is not {value}: {output.strip()[:_TOLD]!r}")
            return
        stored = Checksum(checksum.algorithm)
        for piece in self.read(path):
            stored.update(piece)
        if (stored.size, stored.text) != (checksum.size, checksum.text):
            raise PlaceFailed(
                f"it has {stored.size:,} bytes and {stored.text} there; {checksum.size:,} bytes and {checksum.text}"
                " were stored"
            )

    def withdraw(self, prefix: str, names: Iterable[str], folder: str) -> None:
        for name in names:
            with contextlib.suppress(OSError):
                self.remove(f"{prefix}/{name}")

    def read(self, path: str) -> Iterator[bytes]:
        with self._temporary_name() as name:
            self._run(self._place.get, path, name)
            with open(name, "rb") as source:
                while True:
                    self._attempt.check()
                    piece = source.read(PIECE)
                    if not piece:
                        return
                    yield piece

    def remove(self, path: str) -> None:
        if not self._place.remove:
            raise PlaceFailed("its table in the policy has no command `remove`")
        self._run(self._place.remove, path)

    def sweep(self, root: str, folder: str, kept: Set[str]) -> List[str]:
        """No command lists files, so leftovers of lost attempts stay."""
        return []

    @contextlib.contextmanager
    def _temporary_name(self) -> Iterator[str]:
        """A name that no file has. The file is removed at the end."""
        folder = tempfile.mkdtemp(prefix="place-", dir=self._attempt.tmp)
        name = os.path.join(folder, "file")
        try:
            yield name
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
            os.rmdir(folder)

    def _run(self, words: List[str], url: str, file: str = "") -> str:
        """The standard output of a command. Raises PlaceFailed and DataCancelled."""
        command = [word.replace("{url}", url).replace("{file}", file) for word in words]
        with (
            tempfile.TemporaryFile(dir=self._attempt.tmp) as out,
            tempfile.TemporaryFile(dir=self._attempt.tmp) as errors,
        ):
            code = self._exit_code(command, out, errors)
            if code == 0:
                return _end_of(out)
            output = (_end_of(errors) or _end_of(out)).strip()
        reason = f"{command[0]} ended with exit code {code}" if code >= 0 else f"{command[0]}: signal {-code}"
        raise PlaceFailed(f"{reason}: {output}" if output else reason, is_of_node=code in _NO_PROGRAM)

    @property
    def _environment(self) -> Dict[str, str]:
        """The environment of the pilot, without its own variables: a command gets no secret of the pilot."""
        known = self._attempt.environment
        return {name: value for name, value in known.items() if not name.startswith("PILOTAGE_")}

    def _exit_code(self, command: List[str], out: IO[bytes], errors: IO[bytes]) -> int:
        try:
            running = COMMANDS.start(command, stdout=out, stderr=errors, env=self._environment)
        except (FileNotFoundError, PermissionError):
            raise PlaceFailed(f"this node has no program {command[0]}", is_of_node=True) from None
        deadline = self._attempt.clock() + self._place.timeout
        try:
            while not running.has_ended(0.2):
                self._attempt.check()
                if self._attempt.clock() > deadline:
                    raise PlaceFailed(f"{command[0]} has not ended after {self._place.timeout:g} s")
        finally:
            running.kill()
        return running.exit_code


def _end_of(file: IO[bytes]) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _TOLD))
    return file.read().decode("utf-8", "replace")
