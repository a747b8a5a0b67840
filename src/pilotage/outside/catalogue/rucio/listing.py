"""Lists of Rucio that are compared with sizes from other answers of it. A list that differs is unknown, never less.

Rucio's lists have no number of their rows, so a list that was shortened on its way looks whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from pilotage.core.errors import Unreachable
from pilotage.outside.catalogue.rucio.answers import Did, DidFile, DidMeta
from pilotage.outside.catalogue.rucio.session import RucioSession, did_path

_Row = TypeVar("_Row")

DIDS_AT_ONCE = 500
"""Names in one call."""
CONTAINER, DATASET = "CONTAINER", "DATASET"


def list_files(session: RucioSession, scope: str, name: str) -> list[DidFile]:
    """All files of a data set. Raises `Unreachable` if the list is not as long as Rucio counts it."""
    path = f"/dids/{did_path(scope, name)}"
    # Rucio counts and adds up the present files for this answer.
    counted = session.row(Did, f"{path}?dynamic_depth=FILE")
    rows = list(session.rows(DidFile, f"{path}/files"))
    count, size = len(rows), sum(row.bytes or 0 for row in rows)
    has_grown = counted.open is not False and count > (counted.length or 0)
    if len({(row.scope, row.name) for row in rows}) != count:
        raise Unreachable(f"{scope}:{name}: the list has a file twice")
    if not has_grown and (count, size) != (counted.length or 0, counted.bytes or 0):
        raise Unreachable(
            f"{scope}:{name}: the list has {count:,} files with {size:,} bytes;"
            f" Rucio counts {counted.length or 0:,} with {counted.bytes or 0:,}"
        )
    return rows


def list_datasets(session: RucioSession, top: Did) -> list[DidMeta]:
    """The facts of all data sets below a name. Raises `Unreachable` if they have fewer files than Rucio counts.

    `top`: with the sum of the lengths that Rucio has noted for these data sets.
    """
    datasets = _below(session, top)
    facts = _facts(session, datasets)
    length = sum(meta.length or 0 for meta in facts)
    if length != (top.length or 0):
        raise Unreachable(
            f"{top.did}: {len(facts):,} data sets with {length:,} files are listed; Rucio counts {top.length or 0:,}"
        )
    if top.type == CONTAINER and top.open is False and _below(session, top) != datasets:
        # A data set without files is in no sum, and no further reading would find it.
        raise Unreachable(f"{top.did}: its data sets were listed twice, and the lists differ")
    return facts


def _below(session: RucioSession, top: Did) -> list[tuple[str, str]]:
    """Scope and name of a data set, or of all data sets below a container."""
    return [(top.scope, top.name)] if top.type == DATASET else list(_walk(session, top, set()))


def _walk(session: RucioSession, container: Did, seen: set[str]) -> Iterator[tuple[str, str]]:
    seen.add(container.did)
    path = f"/dids/{did_path(container.scope, container.name)}/dids"
    for child in list(session.rows(Did, path)):
        if child.did in seen:
            continue
        if child.type == CONTAINER:
            yield from _walk(session, child, seen)
        elif child.type == DATASET:
            seen.add(child.did)
            yield child.scope, child.name


def _facts(session: RucioSession, datasets: Sequence[tuple[str, str]]) -> list[DidMeta]:
    facts: dict[tuple[str, str], DidMeta] = {}
    for part in parts_of(datasets):
        body = {"dids": [{"scope": scope, "name": name} for scope, name in part]}
        facts |= {(meta.scope, meta.name): meta for meta in session.rows(DidMeta, "/dids/bulkmeta", body)}
    if missing := [f"{scope}:{name}" for scope, name in datasets if (scope, name) not in facts]:
        raise Unreachable(
            f"Rucio tells no facts of {len(missing):,} data sets that it lists, such as {missing[0]}"
        )
    return [facts[dataset] for dataset in datasets]


def parts_of(rows: Sequence[_Row]) -> Iterator[Sequence[_Row]]:
    """Parts of a list that fit into a call."""
    for first in range(0, len(rows), DIDS_AT_ONCE):
        yield rows[first : first + DIDS_AT_ONCE]
