"""The protocol of a catalogue: data sets, their closed blocks, files, and replicas with the time of the knowledge.

The work queue reads our own tables only. Another catalogue, such as Rucio, is copied into them through this protocol
(services/catalogue/mirror.py). So a catalogue that is slow or down delays news, and nothing else.

Each method raises `Unreachable` if the catalogue does not answer. It never answers with less than it knows: a caller
takes a missing block as unknown, and an empty list of replicas as nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from pilotage.core.datasets.facts import FileEntry, Replica


class CatalogueBlock(NamedTuple):
    """A closed block of a data set."""

    cursor: int
    """Its place in the order of closing, from 1. Later blocks have higher ones."""
    name: str
    files: int


class KnownReplicas(NamedTuple):
    """Where a block is."""

    replicas: tuple[Replica, ...]
    """Empty: known to be nowhere."""
    known: float
    """When this was last known to be true."""


class Catalogue(Protocol):
    """One catalogue. Of one thread at a time."""

    def is_open(self, dataset: str) -> bool | None:
        """Whether more blocks may come; None: there is no such data set."""
        ...

    def blocks(self, dataset: str, after: int, limit: int) -> Sequence[CatalogueBlock]:
        """Closed blocks with a cursor above `after`, in the order of their cursors."""
        ...

    def files(self, dataset: str, block: str) -> Sequence[FileEntry]:
        """All files of a closed block."""
        ...

    def replicas(self, dataset: str, blocks: Sequence[str]) -> Mapping[str, KnownReplicas]:
        """The replicas of these blocks. A block that is not in the answer has an unknown location."""
        ...
