"""Checks of data sets: contents that differ from the rows, and places of blocks that differ from their replicas."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final

from pilotage.core.datasets.facts import ANYWHERE, common_sites, sorted_sites
from pilotage.core.workqueue.states import ElementState
from pilotage.store.engine.connection import Connection, bounded_sum, in_list
from pilotage.store.integrity.check import Check, quoted
from pilotage.store.tables import datasets, location_sets, replicas

_BATCH: Final = 500
_UNSPLIT: Final = quoted({ElementState.AVAILABLE, ElementState.NEGOTIATING, ElementState.ACQUIRED})

Sites = tuple[str, ...] | None
"""None: not known."""


def _differing_totals(connection: Connection) -> str:
    kinds = ("files", "events", "size")
    sums = ", ".join(f"{bounded_sum(connection, kind)} AS {kind}" for kind in kinds)
    counted = f"SELECT dataset_id, count(*) AS blocks, {sums} FROM blocks WHERE open = 0 GROUP BY dataset_id"
    differ = " OR ".join(f"d.closed_{kind} <> coalesce(c.{kind}, 0)" for kind in ("blocks", *kinds))
    return (
        f"SELECT d.id FROM datasets d LEFT JOIN ({counted}) AS c ON c.dataset_id = d.id"
        f" WHERE d.removed IS NULL AND ({differ})"
    )


def _differing_blocks(connection: Connection) -> str:
    kinds = ("events", "size")
    sums = ", ".join(f"{bounded_sum(connection, kind)} AS {kind}" for kind in kinds)
    counted = f"SELECT block_id, count(*) AS files, {sums} FROM files GROUP BY block_id"
    differ = " OR ".join(f"b.{kind} <> coalesce(c.{kind}, 0)" for kind in ("files", *kinds))
    return (
        f"SELECT b.id FROM blocks b JOIN datasets d ON d.id = b.dataset_id LEFT JOIN ({counted}) AS c"
        f" ON c.block_id = b.id WHERE b.open = 0 AND d.removed IS NULL AND ({differ})"
    )


def _moved_blocks(connection: Connection) -> Iterator[int]:
    """Blocks whose location is not that of their replicas."""
    after = 0
    while True:
        sql = "SELECT id, location_set, located FROM blocks WHERE id > ? ORDER BY id LIMIT ?"
        rows = connection.execute(sql, (after, _BATCH)).fetchall()
        places = replicas.of_blocks(connection, [row[0] for row in rows])
        sets = location_sets.sites_of(connection, sorted({row[1] for row in rows}))
        for block, number, located in rows:
            has = None if number == location_sets.UNKNOWN else sets.get(number, frozenset())
            wanted = sorted_sites(row.replica for row in places.get(block, ()))
            is_known = located is not None or bool(wanted)
            if has != (frozenset(wanted) if is_known else None):
                yield block
        if len(rows) < _BATCH:
            return
        after = rows[-1][0]


class _SettledPlaces:
    """The sites of the blocks of elements, without blocks that are on their way."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._moving = {row[0] for row in connection.execute("SELECT block_id FROM moved_blocks")}

    def sites_of(self, number: int) -> Sites:
        known = location_sets.sites_of(self._connection, [number]).get(number)
        return None if known is None else tuple(sorted(known))

    def is_settled(self, blocks: Sequence[int]) -> bool:
        """Whether the blocks exist, and the location of their elements may be compared with theirs."""
        return not self._moving & set(blocks) and len(self._blocks(blocks)) == len(set(blocks))

    def of_blocks(self, blocks: Sequence[int]) -> Sites:
        return common_sites([self.sites_of(row.location_set) for row in self._blocks(blocks).values()])

    def _blocks(self, blocks: Sequence[int]) -> dict[int, datasets.BlockRow]:
        return datasets.blocks_by_ids(self._connection, blocks)


def _elements_elsewhere(connection: Connection) -> Iterator[int]:
    """Elements that are not split, and whose location is not that of their blocks."""
    locations = _SettledPlaces(connection)
    rows = connection.execute(
        f"SELECT id, location_set, blocks FROM elements WHERE state IN ({_UNSPLIT}) AND blocks <> '[]' ORDER BY id"
    ).fetchall()
    for element, number, text in rows:
        blocks = json.loads(text)
        if locations.is_settled(blocks) and locations.of_blocks(blocks) != locations.sites_of(number):
            yield element


def _jobs_elsewhere(connection: Connection) -> Iterator[int]:
    """Made jobs of elements whose blocks are at sites, none of which the jobs may use."""
    locations = _SettledPlaces(connection)
    groups = connection.execute(
        "SELECT DISTINCT j.location_set, e.blocks FROM element_jobs j JOIN elements e ON e.id = j.element_id"
        " WHERE j.state IN ('made', 'cooloff') AND e.blocks <> '[]'"
    ).fetchall()
    wrong: list[int] = []
    for number, blocks in groups:
        if not locations.is_settled(json.loads(blocks)):
            continue
        has, wanted = locations.sites_of(number) or (), locations.of_blocks(json.loads(blocks)) or ()
        fits = set(has) & set(wanted) or ANYWHERE in has or (has and ANYWHERE in wanted)
        if wanted and not fits:
            sql = (
                "SELECT j.id FROM element_jobs j JOIN elements e ON e.id = j.element_id"
                " WHERE j.state IN ('made', 'cooloff') AND j.location_set = ? AND e.blocks = ?"
            )
            wrong += [row[0] for row in connection.execute(sql, (number, blocks))]
    yield from sorted(wrong)


def sites_of_jobs(connection: Connection, jobs: Sequence[int]) -> dict[tuple[str, ...], list[int]]:
    """Made jobs by the sites of all blocks of their elements. Jobs of blocks that are nowhere are left out."""
    locations = _SettledPlaces(connection)
    them, value = in_list(connection, "j.id", jobs)
    rows = connection.execute(
        f"SELECT j.id, e.blocks FROM element_jobs j JOIN elements e ON e.id = j.element_id WHERE {them} ORDER BY j.id",
        (value,),
    ).fetchall()
    by_sites: dict[tuple[str, ...], list[int]] = {}
    for job, blocks in rows:
        if sites := locations.of_blocks(json.loads(blocks)):
            by_sites.setdefault(sites, []).append(job)
    return by_sites


CHECKS: Final = (
    Check(
        "blocks-closed-or-not",
        "blocks that are closed without a number, or have a number and are open",
        "No step takes a closed block without a number.",
        "SELECT id FROM blocks WHERE (open = 0) <> (closed_number IS NOT NULL)",
    ),
    Check(
        "block-contents",
        "closed blocks whose contents are not those of their files",
        "Elements are made too large or too small.",
        _differing_blocks,
    ),
    Check(
        "dataset-contents",
        "data sets whose contents are not those of their closed blocks",
        "`dataset list` tells wrong numbers.",
        _differing_totals,
    ),
    Check(
        "block-locations",
        "blocks whose location is not that of their replicas",
        "Jobs go to sites that lack the block, or not to sites that have it.",
        search=_moved_blocks,
    ),
    Check(
        "element-locations",
        "elements whose location is not that of their blocks",
        "Agents split them for sites that lack their input, or nobody gets them.",
        search=_elements_elsewhere,
    ),
    Check(
        "made-jobs-without-sites",
        "made jobs of elements whose blocks are at none of the sites of the job",
        "They are never released, and their request runs for ever.",
        search=_jobs_elsewhere,
    ),
    Check(
        "rows-of-deleted-blocks",
        "deleted blocks that have left replicas or files",
        "Nothing refers to these rows.",
        "SELECT r.block_id FROM replicas r WHERE NOT EXISTS (SELECT 1 FROM blocks b WHERE b.id = r.block_id) UNION"
        " SELECT f.block_id FROM files f WHERE NOT EXISTS (SELECT 1 FROM blocks b WHERE b.id = f.block_id)",
    ),
)
