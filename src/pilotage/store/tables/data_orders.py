"""Facts of the data orders of jobs: masks, steps, and files with their replicas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pilotage.store.engine.connection import Connection, in_list
from pilotage.store.engine.decisions import decision, hint
from pilotage.store.engine.rows import columns


class OrderRow(NamedTuple):
    """An element job and its step."""

    element_job: int
    element: int
    request: int
    step: int
    mask: str
    """JSON."""
    events: int
    output_dataset: int | None
    dataset: str | None
    """The name of the output data set."""
    type: str
    """The type of the step."""
    log_dataset: int | None
    logs: str | None
    """The name of the data set of its logs."""


_COLUMNS = columns(
    OrderRow,
    "e.",
    element_job="e.id",
    element="e.element_id",
    request="e.request_id",
    output_dataset="s.output_dataset",
    dataset="d.name",
    type="s.type",
    log_dataset="s.log_dataset",
    logs="l.name",
)
_ORDER = (
    f"SELECT {_COLUMNS} FROM element_jobs e"
    " JOIN request_steps s ON s.request_id = e.request_id AND s.position = e.step"
    " LEFT JOIN datasets d ON d.id = s.output_dataset LEFT JOIN datasets l ON l.id = s.log_dataset WHERE "
)


@decision("the data sets of a step never change; a removed one is refused where it is written")
def by_element_jobs(connection: Connection, element_jobs: Sequence[int]) -> dict[int, OrderRow]:
    condition, value = in_list(connection, "e.id", element_jobs)
    return {row[0]: OrderRow(*row) for row in connection.execute(_ORDER + condition, (value,))}


class RequestText(NamedTuple):
    """A request and its specification as JSON."""

    id: int
    name: str
    specification: str


_REQUEST_TEXT = columns(RequestText)


@decision("the facts of a step that a job needs never change after its elements are made")
def requests(connection: Connection, ids: Sequence[int]) -> dict[int, RequestText]:
    condition, value = in_list(connection, "id", ids)
    sql = f"SELECT {_REQUEST_TEXT} FROM requests WHERE {condition}"
    return {row[0]: RequestText(*row) for row in connection.execute(sql, (value,))}


class ReplicaOfFile(NamedTuple):
    """A file at one site; site and prefix are None if it has no replica."""

    file: int
    name: str
    size: int
    events: int
    checksum: str
    lumis: str
    """JSON; empty: none are known."""
    site: str | None
    prefix: str | None


_REPLICA = columns(ReplicaOfFile, "f.", file="f.id", site="r.site", prefix="r.prefix")


@hint("a job whose input has moved meanwhile fails to read it, and is tried again")
def files_with_replicas(connection: Connection, files: Sequence[int]) -> list[ReplicaOfFile]:
    """All replicas of these files."""
    condition, value = in_list(connection, "f.id", files)
    sql = (
        f"SELECT {_REPLICA} FROM files f"
        f" LEFT JOIN replicas r ON r.block_id = f.block_id WHERE {condition} ORDER BY f.id, r.site"
    )
    return [ReplicaOfFile(*row) for row in connection.execute(sql, (value,))]


@decision("a file never changes its block")
def blocks_of_files(connection: Connection, files: Sequence[int]) -> list[int]:
    """The blocks that these files belong to."""
    condition, value = in_list(connection, "id", files)
    rows = connection.execute(f"SELECT DISTINCT block_id FROM files WHERE {condition} ORDER BY 1", (value,))
    return [row[0] for row in rows]
