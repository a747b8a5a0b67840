"""Methods of the client for data sets, and the files that a data set is made of."""

from __future__ import annotations

import fnmatch
import hashlib
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pilotage import wire
from pilotage.client.text_files import read_text
from pilotage.client.typed_requests import TypedRequests, verb
from pilotage.core.datasets.arrangement import BLOCK_SIZE, by_folder, in_sizes, slices_of
from pilotage.core.datasets.facts import BlockEntry, FileEntry, Replica, check_entry_name
from pilotage.core.errors import InvalidInput

if TYPE_CHECKING:
    from pilotage.core.datasets.manifest import Manifest
    from pilotage.wire.catalogues import CatalogueReport, CatalogueSummary
    from pilotage.wire.datasets import (
        BlockSummary,
        DataSetSummary,
        FilesAdded,
        FileSummary,
        ReplicasChanged,
    )
    from pilotage.wire.storage import StorageSummary, UnclaimedObject

FILES_PER_REQUEST = 600
LUMIS_PER_REQUEST = 20_000
"""Records of all files of one request. The server refuses very long messages."""

Progress = Callable[[int], None]
"""Called with the number of files that the server has stored so far."""


class DataSetMethods(TypedRequests):
    """Methods of the client for data sets."""

    def datasets(self, *, contains: str = "", owner: str = "") -> Iterator[DataSetSummary]:
        """Iterate over the data sets by id. `contains`: only names with this text in them."""
        asked = wire.datasets.DataSetsQuery(contains=contains, owner=owner)
        return self._pages(wire.datasets.LIST_DATASETS, asked, lambda answer: answer.datasets)

    dataset = verb(lambda: wire.datasets.REPORT_DATASET)

    def dataset_blocks(self, name: str) -> Iterator[BlockSummary]:
        """Iterate over the blocks of a data set, with their replicas. Raises NotFound."""
        asked = wire.datasets.BlocksQuery(name)
        return self._pages(wire.datasets.LIST_BLOCKS, asked, lambda answer: answer.blocks)

    def dataset_files(self, name: str, block: str) -> Iterator[FileSummary]:
        """Iterate over the files of a block. Raises NotFound."""
        asked = wire.datasets.FilesQuery(name, block)
        return self._pages(wire.datasets.LIST_FILES, asked, lambda answer: answer.files)

    follow_dataset = verb(lambda: wire.catalogues.FOLLOW_DATASET)

    def catalogues(self) -> list[CatalogueSummary]:
        """The outside catalogues of the policy, and how they answer."""
        return self.call(wire.catalogues.LIST_CATALOGUES)

    def catalogue(self, name: str) -> CatalogueReport:
        """One outside catalogue with its data sets. Raises NotFound."""
        return self.call(wire.catalogues.SHOW_CATALOGUE, catalogue=name)

    def storage(self) -> list[StorageSummary]:
        """The tables `storage` of the policy, and how S3 services answer."""
        return self.call(wire.storage.LIST_STORAGE)

    def unclaimed(self, name: str, *, remove: bool = False) -> Iterator[UnclaimedObject]:
        """The outputs in an S3 service that refused attempts have stored. `remove`: they are removed page by page."""
        call = wire.storage.REMOVE_UNCLAIMED if remove else wire.storage.LIST_UNCLAIMED
        asked = wire.storage.UnclaimedQuery()
        while True:
            page = self.call(call, asked, storage=name)
            yield from page.objects
            if not page.next:
                return
            asked.after = page.next

    def test_storage(self, name: str) -> StorageSummary:
        """Ask an S3 service now. The answer has the problem, if there is one."""
        return self.call(wire.storage.TEST_STORAGE, storage=name)

    def test_catalogue(self, name: str) -> CatalogueSummary:
        """Log in to an outside catalogue now. The answer has the problem, if there is one."""
        return self.call(wire.catalogues.TEST_CATALOGUE, catalogue=name)

    create_dataset = verb(lambda: wire.datasets.CREATE_DATASET)

    def add_to_dataset(
        self, name: str, blocks: Iterable[BlockEntry], progress: Progress | None = None
    ) -> FilesAdded:
        """Add the files of blocks to a data set. Files that are registered already change nothing.

        Each block is closed with its last file. Raises Conflict if the data set is closed, or if a registered file has
        another size, number of events or checksum.
        """
        total, sent = wire.datasets.FilesAdded(0, 0, 0), 0
        for block in blocks:
            of_block = 0
            for files in slices_of(block.files, FILES_PER_REQUEST, LUMIS_PER_REQUEST):
                of_block += len(files)
                request = wire.datasets.FilesAdd(
                    name,
                    block.name,
                    [
                        wire.datasets.DataSetFile(
                            file[0], file[1], file[2], file[3], [list(lumi) for lumi in file.lumis]
                        )
                        for file in files
                    ],
                    [wire.datasets.ReplicaLocation(*place) for place in block.replicas],
                    of_block == len(block.files),
                )
                added = self.call(wire.datasets.ADD_FILES, request)
                total.files += added.files
                total.known += added.known
                total.closed += added.closed
                total.warnings = list(dict.fromkeys([*total.warnings, *added.warnings]))
                sent += len(files)
                if progress is not None:
                    progress(sent)
        return total

    close_dataset = verb(lambda: wire.datasets.CLOSE_DATASET)

    remove_dataset = verb(lambda: wire.datasets.REMOVE_DATASET)

    def change_replicas(
        self,
        name: str,
        *,
        block: str | None = None,
        add: Sequence[Replica] = (),
        remove: Sequence[str] = (),
        forget: bool = False,
    ) -> ReplicasChanged:
        """Change the replicas of a data set, or of one block.

        A new replica with an empty prefix gets the prefix that the block has elsewhere. A block that loses its last
        replica is known to be nowhere; `forget` makes its location unknown instead.
        """
        places = [wire.datasets.ReplicaLocation(*place) for place in add]
        request = wire.datasets.ReplicasChange(name, block, places, list(remove), forget)
        return self.call(wire.datasets.CHANGE_REPLICAS, request)


# --- the files of a data set


@dataclass(frozen=True, slots=True)
class FileOptions:
    """How files on this machine become files of a data set."""

    patterns: tuple[str, ...] = ()
    """Only files whose name or path fits one of these; none: all that do not begin with a dot."""
    events_per_file: int = 0
    checksum: str = ""
    """An algorithm to compute the checksum of each file; empty: none."""
    block_size: int = BLOCK_SIZE
    block_depth: int = 0
    """Parts of a folder that name a block; 0: all."""


def blocks_of_folder(root: Path, places: Sequence[Replica], options: FileOptions) -> list[BlockEntry]:
    """The files below a folder: a block for each folder. Raises `InvalidInput` if there are none."""
    files = [_file(root, name, options) for name in _names_below(root, options.patterns)]
    if not files:
        chosen = f" that fit {', '.join(options.patterns)}" if options.patterns else ""
        raise InvalidInput(f"{root} has no files{chosen}")
    return arrange(files, places, options)


def arrange(files: Iterable[FileEntry], places: Sequence[Replica], options: FileOptions) -> list[BlockEntry]:
    """Files as blocks: one for each folder, cut to the block size."""
    return list(in_sizes(by_folder(files, tuple(places), options.block_depth), options.block_size))


def _names_below(root: Path, patterns: Sequence[str]) -> Iterator[str]:
    def report(error: OSError) -> None:
        raise InvalidInput(f"cannot read {error.filename}: {error.strerror}") from error

    for folder, folders, names in os.walk(root, onerror=report):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        relative = os.path.relpath(folder, root)
        for name in sorted(names):
            path = name if relative == "." else f"{relative}/{name}"
            if name.startswith(".") or not os.path.isfile(os.path.join(folder, name)):
                continue
            if not patterns or any(
                fnmatch.fnmatchcase(text, pattern) for pattern in patterns for text in (name, path)
            ):
                yield path


def _file(root: Path, name: str, options: FileOptions) -> FileEntry:
    path = root / name
    check_entry_name(name, "the file name")
    try:
        checksum = compute_checksum(path, options.checksum) if options.checksum else ""
        return FileEntry(name, path.stat().st_size, options.events_per_file, checksum)
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}") from error


def compute_checksum(path: Path, algorithm: str) -> str:
    """The checksum of a file as ALGORITHM:HEX."""
    with path.open("rb") as stream:
        if algorithm in ("adler32", "crc32"):
            update = zlib.adler32 if algorithm == "adler32" else zlib.crc32
            value = 1 if algorithm == "adler32" else 0
            while part := stream.read(1 << 20):
                value = update(part, value)
            return f"{algorithm}:{value:08x}"
        return f"{algorithm}:{hashlib.file_digest(stream, algorithm).hexdigest()}"


def read_manifest(path: Path) -> Manifest:
    """The manifest in a file; its format follows from the ending of its name."""
    from pilotage.core.datasets.manifest import KINDS, parse_manifest

    kind = KINDS.get(path.suffix.lower())
    if kind is None:
        raise InvalidInput(
            f"{path}: the ending {path.suffix or '(none)'} is not that of a manifest",
            hint=f"a manifest ends in {', '.join(KINDS)}; a data set of files is given as their folder",
        )
    return parse_manifest(read_text(path, "a manifest"), kind)


def blocks_of_manifest(
    manifest: Manifest, places: Sequence[Replica], options: FileOptions
) -> list[BlockEntry]:
    """The blocks of a manifest at these places, or at its own. Sizes that it does not tell are looked up."""
    where = tuple(places) or manifest.replicas
    named = [block._replace(replicas=block.replicas or where) for block in manifest.blocks]
    loose = arrange(manifest.loose, where, options)
    prefix = manifest.prefix
    return [block._replace(files=_with_sizes(prefix, block.files, options)) for block in (*named, *loose)]


def _with_sizes(
    prefix: str | None, files: Sequence[FileEntry], options: FileOptions
) -> tuple[FileEntry, ...]:
    """Sizes of files below a local prefix, if they are there, and the events of the options."""
    local = prefix is not None and prefix.startswith("/")
    completed = []
    for file in files:
        size = file.size
        if local and not size:
            try:
                size = os.stat(f"{prefix}/{file.name}").st_size
            except OSError:
                size = 0
        completed.append(file._replace(size=size, events=file.events or options.events_per_file))
    return tuple(completed)
