"""The seam to outside catalogues: one protocol for all adapters, and the facts that cross it.

The work queue reads our own tables only; a duty copies an outside catalogue into them. So a catalogue that is slow or
down delays news, and nothing else. A *block* is a group of files that lie at the same places.

Each call may block for minutes. It raises `Unreachable` if the catalogue gives no clear answer, and `NotAuthenticated`
or `Forbidden` if it refuses the server. `NotFound` says that it does not know the name. A block that is missing in an
answer is unknown; one without replicas is known to be nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from pilotage.core.datasets.facts import FileEntry, Replica


class CatalogueBlock(NamedTuple):
    """A block as the catalogue lists it."""

    name: str
    is_open: bool
    """More files may come."""
    files: int | None = None
    """The number of its files, if the catalogue tells it."""


class CatalogueContents(NamedTuple):
    """The blocks of a name in the catalogue."""

    is_open: bool
    """More blocks may come."""
    blocks: tuple[CatalogueBlock, ...]


class BlockPlaces(NamedTuple):
    """Where all files of a block can be read."""

    replicas: tuple[Replica, ...]
    """Empty: known to be nowhere."""
    unused: tuple[str, ...] = ()
    """Places that have the block too, each with the reason why no site reads it there."""


class OutgoingBlock(NamedTuple):
    """A closed block of an output data set, which the catalogue does not have."""

    collection: str
    """The name of its data set in the catalogue."""
    name: str
    """Its name in our tables, unique in the data set."""
    replicas: tuple[Replica, ...]
    files: tuple[FileEntry, ...]


class CatalogueAdapter(Protocol):
    """An outside catalogue. Several threads may use it."""

    def greet(self) -> str:
        """Log in; returns the software with its version, and the account."""
        ...

    def check(self, name: str) -> None:
        """Return if the name can be copied. Raises `NotFound` or `InvalidInput`."""
        ...

    def contents(self, name: str) -> CatalogueContents:
        """The blocks below a name, in a fixed order. A block has itself as its only block."""
        ...

    def files(self, block: str) -> Sequence[FileEntry]:
        """All files of a block."""
        ...

    def places(self, blocks: Sequence[str]) -> Mapping[str, BlockPlaces]:
        """The places of these blocks."""
        ...

    def register(self, block: OutgoingBlock) -> None:
        """Make the catalogue know a block with all of its files, and keep it at its place. May be repeated.

        Raises `Conflict` if the catalogue has other files under these names, or no place for them.
        """
        ...

    def finish(self, collection: str) -> None:
        """Tell the catalogue that no more blocks of a data set will come. May be repeated."""
        ...

    def close(self) -> None:
        """End the connections. Calls under way fail."""
        ...
