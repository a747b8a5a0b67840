"""Data sets as users see them: totals, blocks with replicas, and the part of a data set at each site."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pilotage.store.engine.connection import Connection
from pilotage.store.tables import dataset_totals, datasets, replicas
from pilotage.store.tables.dataset_totals import Totals
from pilotage.wire.datasets import BlockSummary, DataSetSite, FileSummary, ReplicaSummary


class Places(NamedTuple):
    """Where a data set is."""

    sites: list[DataSetSite]
    unknown: int
    """Blocks whose location is not known."""
    nowhere: int
    """Blocks that are known to be at no site."""


def places(connection: Connection, dataset: int) -> Places:
    """The part of a data set at each site."""
    sites = [DataSetSite(*row) for row in replicas.by_site(connection, dataset)]
    return Places(sites, *replicas.unplaced(connection, dataset))


def live_totals(connection: Connection, dataset: int) -> Totals:
    """The totals of a data set, with the open blocks that jobs write."""
    totals = dataset_totals.totals(connection, [dataset]).get(dataset, Totals())
    uncounted = [block.id for block in datasets.open_blocks(connection, dataset) if not block.files]
    for contents in datasets.contents_of(connection, uncounted).values():
        totals = totals._replace(
            files=totals.files + contents.files,
            events=totals.events + contents.events,
            size=totals.size + contents.size,
        )
    return totals


def blocks(
    connection: Connection, dataset: int, after: int, limit: int
) -> Iterator[tuple[int, BlockSummary]]:
    """Blocks by id, with their replicas."""
    rows = datasets.block_page(connection, dataset, after, limit)
    known = replicas.of_blocks(connection, [row.id for row in rows])
    uncounted = [row.id for row in rows if row.open and not row.files]
    contents = datasets.contents_of(connection, uncounted) if uncounted else {}
    for row in rows:
        counts = contents.get(row.id, Totals(1, 1, row.files, row.events, row.size))
        yield (
            row.id,
            BlockSummary(
                row.id,
                row.name,
                row.created,
                row.open,
                counts.files,
                counts.events,
                counts.size,
                row.located,
                [ReplicaSummary(place.site, place.prefix, place.known) for place in known.get(row.id, ())],
            ),
        )


def files(connection: Connection, block: int, after: int, limit: int) -> Iterator[tuple[int, FileSummary]]:
    """The files of a block by id."""
    for row in datasets.file_page(connection, block, after, limit):
        lumis = datasets.lumis_of(row)
        yield (
            row.id,
            FileSummary(row.id, row.name, row.size, row.events, row.checksum, lumis, row.element_job),
        )
