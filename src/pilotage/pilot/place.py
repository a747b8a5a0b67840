"""The seam to storage places: one protocol for folders of the node, S3 services and places of commands."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import Callable, Iterable, Iterator, List, Mapping, Protocol, Set
from urllib.parse import urlsplit

from .checksums import Checksum
from .events import Key
from .transport import ServerConnection

PIECE = 1 << 20
PAUSES = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds between two tries at a place that does not answer."""


class DataCancelled(Exception):
    """The job was killed; its data is no longer needed."""


class PlaceFailed(OSError):
    """A place has failed. `is_of_node`: this node lacks a program for it."""

    def __init__(self, reason: str, *, is_of_node: bool = False) -> None:
        super().__init__(reason)
        self.is_of_node = is_of_node


@dataclass
class DataAttempt:
    """The attempt that uses places, from one background thread."""

    key: Key
    connection: ServerConnection
    tmp: str
    """A folder of the node for temporary files."""
    is_cancelled: Callable[[], bool]
    stamp: int = field(default_factory=lambda: int(time.time()))
    """Makes the name of its folder its own: after a restore of the database, numbers of jobs are used again."""
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    clock: Callable[[], float] = time.monotonic
    """Seconds that never go back."""

    def check(self) -> None:
        """Raises DataCancelled if the job was killed."""
        if self.is_cancelled():
            raise DataCancelled

    def pause(self, failures: int) -> None:
        """Wait after this number of failures in a row. Raises DataCancelled."""
        until = self.clock() + PAUSES[min(failures, len(PAUSES)) - 1]
        while self.clock() < until:
            self.check()
            time.sleep(0.1)


class PlaceAdapter(Protocol):
    """One storage place. Each method raises OSError if the place fails, and DataCancelled."""

    def own_folder(self, prefix: str, element: int, key: Key) -> str:
        """A new folder for one attempt, relative to `prefix`, the folder of the data set."""
        ...

    def write(self, path: str, pieces: Iterable[bytes], checksum: Checksum) -> str:
        """Store a file, compare it with the checksum of its pieces, and return the mark that the place gives to it."""
        ...

    def withdraw(self, prefix: str, names: Iterable[str], folder: str) -> None:
        """Remove files below `prefix`, and the folder of the attempt, as far as that is possible."""
        ...

    def read(self, path: str) -> Iterator[bytes]:
        """The bytes of a file."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file. A file that is missing is removed."""
        ...

    def sweep(self, root: str, folder: str, kept: Set[str]) -> List[str]:
        """Remove the files of `root`/`folder`, except the kept names below `root`; returns failures."""
        ...


def is_url(path: str) -> bool:
    return not path.startswith("/") and bool(urlsplit(path).scheme)
