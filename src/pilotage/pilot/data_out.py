"""Stores the outputs of a job at a storage place: a folder that pilots of the site can write to.

A file is copied to a temporary name, flushed, and renamed. So a file with its final name is complete. Each attempt
makes a folder of its own, which no other attempt ever uses: a late attempt overwrites nothing.
"""

from __future__ import annotations

import contextlib
import os
from functools import partial
from typing import Callable, Dict, Iterable, Iterator, List, Tuple

from pilotage.wire.data import MAX_LUMI_RANGES_OF_JOB, MAX_STORED_FILES, DataOrder, StoragePlace, StoredFile

from .checksums import Checksum
from .data_in import PIECE, DataCancelled
from .data_report import DataReport, OutputFacts
from .events import Key
from .log import log
from .output_search import find_outputs
from .outputs import open_output

TEMPORARY = ".part"
"""The end of the name of a file that is being written."""
_MAX_FOLDERS = 1000
Pieces = Callable[[], Iterator[bytes]]
"""Opens a file from its beginning; called once for each place that is tried."""


class DataFailed(Exception):
    """The job's outputs cannot be stored. `failure` is the failure class."""

    def __init__(self, message: str, failure: str = "output") -> None:
        super().__init__(message)
        self.failure = failure


class OutputStore:
    """Stores the output files of one attempt, each at the first place that takes it."""

    def __init__(self, order: DataOrder, key: Key, is_cancelled: Callable[[], bool]) -> None:
        self._order = order
        self._key = key
        self._is_cancelled = is_cancelled
        self._failed: Dict[str, str] = {}
        """The reason why a place takes no file, by its name. This attempt does not try the place again."""
        self._folders: Dict[str, str] = {}
        """The folder of this attempt at each place, relative to the data set's."""
        self._lumis = 0
        self.stored: List[StoredFile] = []

    def store(self, name: str, pattern: str, pieces: Pieces, facts: OutputFacts) -> None:
        """Store one file. Raises DataFailed and DataCancelled."""
        self._lumis += len(facts.lumis)
        if len(self.stored) >= MAX_STORED_FILES:
            raise DataFailed(f"more than {MAX_STORED_FILES:,} output files", "payload")
        if self._lumis > MAX_LUMI_RANGES_OF_JOB:
            raise DataFailed(f"more than {MAX_LUMI_RANGES_OF_JOB:,} ranges of lumis in its output", "payload")
        for place in self._order.places:
            if place.name in self._failed:
                continue
            try:
                self.stored.append(self._store_at(place, name, pattern, pieces, facts))
            except OSError as error:
                reason = error.strerror or str(error)
                self._failed[place.name] = reason
                log("storage place failed", place=place.path, reason=reason, job=self._key[0])
            else:
                return
        reasons = "; ".join(
            f"{place.path}: {self._failed[place.name]}"
            for place in self._order.places
            if place.name in self._failed
        )
        raise DataFailed(f"no storage place took {name}: {reasons or 'this site has none for this job'}")

    def _store_at(
        self, place: StoragePlace, name: str, pattern: str, pieces: Pieces, facts: OutputFacts
    ) -> StoredFile:
        prefix = os.path.join(place.path, self._order.folder)
        relative = f"{self._own_folder(place, prefix)}/{name}"
        path = os.path.join(prefix, relative)
        mode = folder_mode(place)
        make_durable_folders(os.path.dirname(path), mode)
        checksum = Checksum(self._order.checksum)
        temporary = path + TEMPORARY
        try:
            write_durably(temporary, self._summed(pieces(), checksum), mode & 0o666)
            if os.stat(temporary).st_size != checksum.size:
                raise OSError("the file is shorter than what was written")
            os.rename(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        flush_folder(os.path.dirname(path))
        return StoredFile(
            name=relative,
            pattern=pattern,
            place=place.name,
            prefix=prefix,
            size=checksum.size,
            checksum=checksum.text,
            events=facts.events,
            lumis=facts.lumis,
        )

    def _summed(self, pieces: Iterable[bytes], checksum: Checksum) -> Iterator[bytes]:
        for piece in pieces:
            if self._is_cancelled():
                raise DataCancelled
            checksum.update(piece)
            yield piece

    def _own_folder(self, place: StoragePlace, prefix: str) -> str:
        """The folder of this attempt at a place: ELEMENT/JOB-EPOCH, relative to that of the data set."""
        folder = self._folders.get(place.name)
        if folder is None:
            if not os.path.isdir(place.path):
                # It is never made here: below the mount point of a lost file system, files would be hidden later.
                raise NotADirectoryError(f"{place.path} is not a folder")
            parent = os.path.join(prefix, str(self._order.element))
            mode = folder_mode(place)
            make_durable_folders(parent, mode)
            name = _make_new_folder(parent, f"{self._key[0]}-{self._key[1]}", mode)
            folder = self._folders[place.name] = f"{self._order.element}/{name}"
        return folder

    def withdraw(self) -> None:
        """Remove the stored files, since the attempt failed. A cleanup finds any that remain."""
        for file in self.stored:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(file.prefix, file.name))
        for place in self._order.places:
            folder = self._folders.get(place.name)
            if folder is not None:
                with contextlib.suppress(OSError):
                    os.rmdir(os.path.join(place.path, self._order.folder, folder))
        self.stored = []


def folder_mode(place: StoragePlace) -> int:
    """The permissions of a place, which its folders and files get: pilots run with a private umask."""
    return os.stat(place.path).st_mode & 0o2777


def _make_new_folder(parent: str, name: str, mode: int) -> str:
    """Make a folder that did not exist. After a restore of the database, numbers of jobs are used again."""
    for number in range(1, _MAX_FOLDERS):
        candidate = name if number == 1 else f"{name}-{number}"
        try:
            os.mkdir(os.path.join(parent, candidate))
        except FileExistsError:
            continue
        os.chmod(os.path.join(parent, candidate), mode)
        flush_folder(parent)
        return candidate
    raise OSError(f"{parent} has {_MAX_FOLDERS} folders of {name}")


def make_durable_folders(path: str, mode: int) -> None:
    """Make missing folders with these permissions, each flushed to disk. Raises OSError."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    make_durable_folders(parent, mode)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)
        os.chmod(path, mode)
    flush_folder(parent)


def write_durably(path: str, pieces: Iterable[bytes], mode: int) -> None:
    """Write a new file and flush it to disk. Raises OSError."""
    with open(path, "xb") as file:
        for piece in pieces:
            file.write(piece)
        os.fchmod(file.fileno(), mode)
        file.flush()
        os.fsync(file.fileno())


def flush_folder(path: str) -> None:
    """Flush the entries of a folder. Raises OSError."""
    number = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def store_outputs(
    order: DataOrder, folder: str, key: Key, report: DataReport, is_cancelled: Callable[[], bool]
) -> List[StoredFile]:
    """Store all files of the payload's folder that belong to the output data set.

    Raises DataFailed and DataCancelled, SearchCancelled, and OSError if the folder cannot be read.
    """
    store = OutputStore(order, key, is_cancelled)
    outputs = _find(order, folder, is_cancelled)
    _check_sizes(order, folder, [source for _, _, source in outputs])
    try:
        for name, pattern, source in outputs:
            store.store(name, pattern, partial(_pieces, folder, source), report.facts_of(name, order))
    except BaseException:
        store.withdraw()
        raise
    return store.stored


def _find(order: DataOrder, folder: str, is_cancelled: Callable[[], bool]) -> List[Tuple[str, str, str]]:
    """(name, pattern, source) of each output, once. Raises DataFailed if a pattern has none."""
    outputs: Dict[str, Tuple[str, str, str]] = {}
    for pattern in order.outputs:
        result = find_outputs(folder, [pattern], is_cancelled=is_cancelled)
        if result.refused:
            first = result.refused[0]
            raise DataFailed(f"output {first.name!r} cannot be stored: {first.reason}", "payload")
        if result.missing:
            raise DataFailed(f"the program wrote no file {pattern!r}", "payload")
        for output in result.outputs:
            outputs.setdefault(output.name, (output.name, pattern, output.source))
    return list(outputs.values())


def _check_sizes(order: DataOrder, folder: str, sources: List[str]) -> None:
    """Raises DataFailed for more bytes than the order allows. Holes of a file count, since they are copied."""
    size = 0
    for source in sources:
        with open_output(folder, source) as file:
            size += os.fstat(file.fileno()).st_size
    if order.max_output and size > order.max_output:
        raise DataFailed(
            f"its outputs have {size:,} bytes: at most {order.max_output:,} are stored (max_size of the output in the"
            " request, requests.max_output_size in the policy)",
            "payload",
        )


def _pieces(folder: str, source: str) -> Iterator[bytes]:
    with open_output(folder, source) as file:
        while True:
            piece = file.read(PIECE)
            if not piece:
                return
            yield piece
