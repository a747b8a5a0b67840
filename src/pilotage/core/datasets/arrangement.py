"""Arranges files in blocks: by the folder that they lie in, with a limit of files in a block."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pilotage.core.datasets.facts import BlockEntry, FileEntry, Replica

BLOCK_SIZE: Final = 1000
"""Files of a block, unless the user gives another number."""
TOP: Final = "."
"""The block of files that lie in no folder."""


def by_folder(
    files: Iterable[FileEntry], replicas: tuple[Replica, ...] = (), depth: int = 0
) -> Iterator[BlockEntry]:
    """A block for each folder, both sorted by name. `depth`: only the first parts of a folder count; 0: all."""
    blocks: dict[str, list[FileEntry]] = {}
    for file in files:
        blocks.setdefault(_folder(file.name, depth), []).append(file)
    for name in sorted(blocks):
        yield BlockEntry(name, tuple(sorted(blocks[name])), replicas)


def _folder(name: str, depth: int) -> str:
    folder = posixpath.dirname(name)
    if depth:
        folder = "/".join(folder.split("/")[:depth])
    return folder or TOP


def in_sizes(blocks: Iterable[BlockEntry], size: int) -> Iterator[BlockEntry]:
    """Cut blocks with more than `size` files. The parts have the same name; the catalogue numbers them."""
    for block in blocks:
        for first in range(0, len(block.files), size):
            yield block._replace(files=block.files[first : first + size])


def common_folder(names: Sequence[str]) -> str:
    """The longest folder or URL, without a slash at its end, that all of these absolute names lie in."""
    if not names:
        return ""
    first, last = min(names), max(names)
    length = 0
    for number, (letter, other) in enumerate(zip(first, last, strict=False)):
        if letter != other:
            break
        if letter == "/":
            length = number
    return first[:length]


def slices_of(files: Sequence[FileEntry], most: int, records: int) -> Iterator[Sequence[FileEntry]]:
    """The files in slices of at most `most` files and about `records` lumis; one empty slice if there are no files."""
    first = count = 0
    for place, file in enumerate(files):
        count += len(file.lumis)
        if place > first and (place - first == most or count > records):
            yield files[first:place]
            first, count = place, len(file.lumis)
    yield files[first:]
