"""The pilot's own programs for data: concatenate, archive and remove.

The pilot carries them out itself. Isolated payloads reach no storage place, and no interpreter is needed on the node.
"""

from __future__ import annotations

import contextlib
import os
import tarfile
from functools import partial
from typing import Callable, Iterator, List, Set

from pilotage.wire.data import ARCHIVE, CONCATENATE, REMOVE, DataFile, DataOrder, StoredFile

from .data_in import DataCancelled, check_file, is_in_place, is_url, read_pieces
from .data_out import DataFailed, OutputStore
from .data_report import facts_of_order
from .events import Key
from .folders import stays_inside
from .launch import CannotRun

_WILDCARDS = frozenset("*?[")
_DEFAULT_NAMES = {CONCATENATE: "merged", ARCHIVE: "logs.tar"}
_TAR_BLOCK = 512
Cancelled = Callable[[], bool]


def carry_out(order: DataOrder, key: Key, is_cancelled: Cancelled) -> List[StoredFile]:
    """Carry out the action of an order. Raises CannotRun, DataFailed and DataCancelled."""
    if order.action == REMOVE:
        _remove(order, is_cancelled)
        return []
    if order.action not in _DEFAULT_NAMES:
        raise CannotRun(f"this pilot has no program {order.action!r}", failure="node")
    for file in order.files:
        _check_readable(order, file)
    read = _concatenated if order.action == CONCATENATE else _archived
    name = _output_name(order)
    store = OutputStore(order, key, is_cancelled)
    try:
        store.store(
            name,
            order.outputs[0] if order.outputs else name,
            partial(read, order, is_cancelled),
            facts_of_order(order),
        )
    except BaseException:
        store.withdraw()
        raise
    return store.stored


def _output_name(order: DataOrder) -> str:
    """The first output of the order, if it is the name of a file."""
    name = order.outputs[0] if order.outputs else ""
    if not name or _WILDCARDS & set(name) or name.endswith("/") or not stays_inside(name):
        return _DEFAULT_NAMES[order.action]
    return os.path.normpath(name)


def _check_readable(order: DataOrder, file: DataFile) -> None:
    """Refuse local files outside the storage places. Raises CannotRun.

    The pilot could read files of its account that no job may see.
    """
    if is_url(file.path):
        return
    check_file(file)
    if not is_in_place(order, file.path):
        raise CannotRun(
            f"input file {file.path}: the pilot's own programs read only from the storage places of the site",
            failure="input",
        )


def _concatenated(order: DataOrder, is_cancelled: Cancelled) -> Iterator[bytes]:
    for file in order.files:
        yield from read_pieces(file, is_cancelled)


def _archived(order: DataOrder, is_cancelled: Cancelled) -> Iterator[bytes]:
    """The bytes of a tar file with all input files."""
    for file in order.files:
        entry = tarfile.TarInfo(file.name)
        entry.size = file.size if is_url(file.path) else os.stat(file.path).st_size
        yield entry.tobuf(tarfile.PAX_FORMAT)
        written = 0
        for piece in read_pieces(file, is_cancelled):
            written += len(piece)
            yield piece
        if written != entry.size:
            raise CannotRun(f"input file {file.path}: its size changed while it was read", failure="input")
        yield b"\0" * (-written % _TAR_BLOCK)
    yield b"\0" * 2 * _TAR_BLOCK


def _remove(order: DataOrder, is_cancelled: Cancelled) -> None:
    """Remove the input files, and the leftovers of lost attempts in the folders to sweep. A missing file is removed."""
    failures = []
    for file in order.files:
        if is_cancelled():
            raise DataCancelled
        if not is_in_place(order, file.path):
            failures.append(f"{file.path}: not in a storage place of the site")
            continue
        try:
            _remove_file(order, file.path)
        except OSError as error:
            failures.append(f"{file.path}: {error.strerror or error}")
    kept = {os.path.normpath(name) for name in order.keep}
    for place in order.places:
        root = os.path.join(place.path, order.folder)
        for folder in order.sweep:
            if stays_inside(folder) and is_in_place(order, os.path.join(root, folder)):
                failures += _sweep(root, folder, kept, is_cancelled)
    if failures:
        more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        raise DataFailed(f"cannot remove {failures[0]}{more}", "node")


def _remove_file(order: DataOrder, path: str) -> None:
    """Remove a file, and the folders that become empty, up to the place."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    tops = {os.path.realpath(place.path) for place in order.places}
    parent = os.path.dirname(path)
    while os.path.realpath(parent) not in tops and len(parent) > 1:
        try:
            os.rmdir(parent)
        except OSError:
            return
        parent = os.path.dirname(parent)


def _sweep(root: str, folder: str, kept: Set[str], is_cancelled: Cancelled) -> List[str]:
    """Remove the files of a folder that are not kept, and empty folders. Links are removed, not followed."""
    failures = []
    for parent, folders, names in os.walk(os.path.join(root, folder), topdown=False):
        if is_cancelled():
            raise DataCancelled
        links = [name for name in folders if os.path.islink(os.path.join(parent, name))]
        for name in [*names, *links]:
            path = os.path.join(parent, name)
            if os.path.relpath(path, root) in kept:
                continue
            try:
                os.unlink(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                failures.append(f"{path}: {error.strerror or error}")
        with contextlib.suppress(OSError):
            os.rmdir(parent)
    return failures
