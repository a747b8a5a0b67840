"""The pilot's own programs for data: concatenate, archive and remove.

The pilot carries them out itself. Isolated payloads reach no storage place, and no interpreter is needed on the node.
"""

from __future__ import annotations

import os
import tarfile
from functools import partial
from typing import Iterator, List

from pilotage.wire.data import ARCHIVE, CONCATENATE, REMOVE, DataFile, DataOrder, StoredFile

from .cannot_run import CannotRun
from .data_in import check_file, read_again, read_pieces
from .data_out import DataFailed, OutputStore
from .data_report import facts_of_order
from .folders import stays_inside
from .place import is_url
from .places import OpenPlaces

_WILDCARDS = frozenset("*?[")
_DEFAULT_NAMES = {CONCATENATE: "merged", ARCHIVE: "logs.tar"}
_TAR_BLOCK = 512


def carry_out(order: DataOrder, places: OpenPlaces) -> List[StoredFile]:
    """Carry out the action of an order. Raises CannotRun, DataFailed and DataCancelled."""
    if order.action == REMOVE:
        _remove(order, places)
        return []
    if order.action not in _DEFAULT_NAMES:
        raise CannotRun(f"this pilot has no program {order.action!r}", failure="node")
    for file in order.files:
        _check_readable(places, file)
    read = _concatenated if order.action == CONCATENATE else _archived
    name = _output_name(order)
    stored: List[StoredFile] = []

    def write() -> None:
        store = OutputStore(order, places)
        pattern = order.outputs[0] if order.outputs else name
        try:
            store.store(name, pattern, partial(read, order, places), facts_of_order(order))
        except BaseException:
            store.withdraw()
            raise
        stored.extend(store.stored)

    read_again(write, places)
    return stored


def _output_name(order: DataOrder) -> str:
    """The first output of the order, if it is the name of a file."""
    name = order.outputs[0] if order.outputs else ""
    if not name or _WILDCARDS & set(name) or name.endswith("/") or not stays_inside(name):
        return _DEFAULT_NAMES[order.action]
    return os.path.normpath(name)


def _check_readable(places: OpenPlaces, file: DataFile) -> None:
    """Refuse local files outside the storage places. Raises CannotRun.

    The pilot could read files of its account that no job may see.
    """
    if is_url(file.path):
        return
    check_file(file)
    if places.of_output(file.path) is None:
        raise CannotRun(
            f"input file {file.path}: the pilot's own programs read only from the storage places of the site",
            failure="input",
        )


def _concatenated(order: DataOrder, places: OpenPlaces) -> Iterator[bytes]:
    for file in order.files:
        yield from read_pieces(file, places)


def _archived(order: DataOrder, places: OpenPlaces) -> Iterator[bytes]:
    """The bytes of a tar file with all input files."""
    for file in order.files:
        entry = tarfile.TarInfo(file.name)
        entry.size = file.size if is_url(file.path) else os.stat(file.path).st_size
        yield entry.tobuf(tarfile.PAX_FORMAT)
        written = 0
        for piece in read_pieces(file, places):
            written += len(piece)
            yield piece
        if written != entry.size:
            raise CannotRun(f"input file {file.path}: its size changed while it was read", failure="input")
        yield b"\0" * (-written % _TAR_BLOCK)
    yield b"\0" * 2 * _TAR_BLOCK


def _remove(order: DataOrder, places: OpenPlaces) -> None:
    """Remove the input files, and the leftovers of lost attempts in the folders to sweep. A missing file is removed."""
    failures = []
    for file in order.files:
        places.attempt.check()
        try:
            place = places.of_output(file.path)
            if place is None:
                failures.append(f"{file.path}: not in a storage place of the site")
            else:
                place.remove(file.path)
        except OSError as error:
            failures.append(f"{file.path}: {error.strerror or error}")
    kept = {os.path.normpath(name) for name in order.keep}
    swept = {place.path: place for place in (*order.places, *order.sources)}
    for known in swept.values():
        root = os.path.join(known.path, order.folder)
        for folder in order.sweep:
            place = places.of_output(os.path.join(root, folder)) if stays_inside(folder) else None
            if place is not None:
                failures += place.sweep(root, folder, kept)
    if failures:
        more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        raise DataFailed(f"cannot remove {failures[0]}{more}", "node")
