"""Stores the outputs of a job at the first storage place that takes them.

A file with its final name is complete. Each attempt makes a folder of its own, which no other attempt ever uses: a late
attempt overwrites nothing.
"""

from __future__ import annotations

import contextlib
import os
from functools import partial
from typing import Callable, Dict, Iterator, List, Tuple

from pilotage.wire.data import MAX_LUMI_RANGES_OF_JOB, MAX_STORED_FILES, DataOrder, StoragePlace, StoredFile

from .checksums import Checksum
from .data_report import DataReport, OutputFacts
from .log import log
from .output_search import find_outputs
from .outputs import open_output
from .place import PIECE, DataCancelled, PlaceFailed
from .places import OpenPlaces

Pieces = Callable[[], Iterator[bytes]]
"""Opens a file from its beginning; called once for each place that is tried."""


class DataFailed(Exception):
    """The job's outputs cannot be stored. `failure` is the failure class."""

    def __init__(self, message: str, failure: str = "output") -> None:
        super().__init__(message)
        self.failure = failure


class OutputStore:
    """Stores the output files of one attempt, each at the first place that takes it."""

    def __init__(self, order: DataOrder, places: OpenPlaces) -> None:
        self._order = order
        self._key = places.attempt.key
        self._places = places
        self._failed: Dict[str, str] = {}
        """The reason why a place takes no file, by its name. This attempt does not try the place again."""
        self._folders: Dict[str, str] = {}
        """The folder of this attempt at each place, relative to the data set's."""
        self._lumis = 0
        self._is_of_node = True
        """Each place that has failed lacks a program on this node."""
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
                self._is_of_node = self._is_of_node and isinstance(error, PlaceFailed) and error.is_of_node
                log("storage place failed", place=place.path, reason=reason, job=self._key[0])
            else:
                return
        reasons = "; ".join(
            f"{place.path}: {self._failed[place.name]}"
            for place in self._order.places
            if place.name in self._failed
        )
        failure = "node" if self._failed and self._is_of_node else "output"
        raise DataFailed(
            f"no storage place took {name}: {reasons or 'this site has none for this job'}", failure
        )

    def _store_at(
        self, place: StoragePlace, name: str, pattern: str, pieces: Pieces, facts: OutputFacts
    ) -> StoredFile:
        prefix = os.path.join(place.path, self._order.folder)
        opened = self._places.open(place)
        folder = self._folders.get(place.name)
        if folder is None:
            folder = self._folders[place.name] = opened.own_folder(prefix, self._order.element, self._key)
        relative = f"{folder}/{name}"
        checksum = Checksum(self._order.checksum)
        etag = opened.write(f"{prefix}/{relative}", pieces(), checksum)
        return StoredFile(
            name=relative,
            pattern=pattern,
            place=place.name,
            prefix=prefix,
            size=checksum.size,
            checksum=checksum.text,
            events=facts.events,
            lumis=facts.lumis,
            etag=etag,
        )

    def withdraw(self) -> None:
        """Remove the stored files, since the attempt failed. A cleanup finds any that remain."""
        for place in self._order.places:
            folder = self._folders.get(place.name)
            if folder is not None:
                names = [file.name for file in self.stored if file.place == place.name]
                with contextlib.suppress(OSError, DataCancelled):
                    prefix = os.path.join(place.path, self._order.folder)
                    self._places.open(place).withdraw(prefix, names, folder)
        self.stored = []


def store_outputs(order: DataOrder, folder: str, report: DataReport, places: OpenPlaces) -> List[StoredFile]:
    """Store all files of the payload's folder that belong to the output data set.

    Raises DataFailed and DataCancelled, SearchCancelled, and OSError if the folder cannot be read.
    """
    store = OutputStore(order, places)
    outputs = _find(order, folder, places.attempt.is_cancelled)
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
