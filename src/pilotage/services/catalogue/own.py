"""Our own catalogue behind the protocol of all catalogues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pilotage.core.datasets.facts import FileEntry
from pilotage.outside.catalogue.adapter import CatalogueBlock, KnownReplicas
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import datasets, replicas
from pilotage.store.tables.datasets import BlockRow, DataSetRow

FILES_PER_READ = 1000


class OwnCatalogue:
    """The catalogue in the store of this pool."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def is_open(self, dataset: str) -> bool | None:
        row = datasets.by_name(self._connection, dataset)
        return None if row is None else row.open

    def blocks(self, dataset: str, after: int, limit: int) -> Sequence[CatalogueBlock]:
        row = datasets.by_name(self._connection, dataset)
        if row is None:
            return []
        rows = datasets.closed_blocks(self._connection, row.id, after, limit)
        return [CatalogueBlock(block.closed_number or 0, block.name, block.files) for block in rows]

    def files(self, dataset: str, block: str) -> Sequence[FileEntry]:
        row = datasets.by_name(self._connection, dataset)
        known = None if row is None else self._block(row, block)
        files: list[FileEntry] = []
        after = 0
        while known is not None:
            part = datasets.file_page(self._connection, known.id, after, FILES_PER_READ)
            files += [
                FileEntry(
                    file.name,
                    file.size,
                    file.events,
                    file.checksum,
                    tuple((run, first, last) for run, first, last in datasets.lumis_of(file)),
                )
                for file in part
            ]
            if len(part) < FILES_PER_READ:
                break
            after = part[-1].id
        return files

    def replicas(self, dataset: str, blocks: Sequence[str]) -> Mapping[str, KnownReplicas]:
        row = datasets.by_name(self._connection, dataset)
        if row is None:
            return {}
        located = {
            block.id: block
            for name in blocks
            if (block := self._block(row, name)) is not None and block.located is not None
        }
        rows = replicas.of_blocks(self._connection, sorted(located))
        return {
            block.name: KnownReplicas(
                tuple(place.replica for place in rows.get(block.id, ())),
                min((place.known for place in rows.get(block.id, ())), default=block.located or 0.0),
            )
            for block in located.values()
        }

    def _block(self, row: DataSetRow, name: str) -> BlockRow | None:
        return datasets.block_named(self._connection, row.id, name)
