"""Chains of resubmissions: requests that make failed parts of others again, and the parts that each has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pilotage.core.requests.states import RequestState
from pilotage.store.engine.connection import Connection, in_list
from pilotage.store.engine.decisions import decision
from pilotage.store.engine.rows import columns


class ResubmissionRow(NamedTuple):
    """A request of a chain, except the first."""

    id: int
    state: RequestState


_RESUBMISSION = columns(ResubmissionRow)


@decision("requests join a chain under the lock of its first request")
def of_chain(connection: Connection, root: int) -> list[ResubmissionRow]:
    """The resubmissions of a request, of these resubmissions, and so on, in order of their ids."""
    sql = f"SELECT {_RESUBMISSION} FROM requests WHERE root_id = ? ORDER BY id"
    return [ResubmissionRow(row[0], RequestState(row[1])) for row in connection.execute(sql, (root,))]


def has_other_writer(
    connection: Connection, request: int, root: int, dataset: int, states: Iterable[RequestState]
) -> bool:
    """Whether another request of a chain, in one of `states`, has a step that writes a data set and has not ended."""
    condition, value = in_list(connection, "r.state", sorted(states))
    row = connection.execute(
        "SELECT 1 FROM requests r JOIN request_steps s ON s.request_id = r.id"
        " WHERE (r.root_id = ? OR r.id = ?) AND r.id <> ? AND s.ended = 0"
        f" AND (s.output_dataset = ? OR s.log_dataset = ?) AND {condition} LIMIT 1",
        (root, root, request, dataset, dataset, value),
    ).fetchone()
    return row is not None


@decision("the elements of a resubmission are stored with it, under the lock of the chain")
def elements_of(connection: Connection, requests: Sequence[int], step: int) -> Iterator[tuple[int, str, str]]:
    """(request, blocks, mask) of all elements of these requests in one step, as JSON. No mask: the whole blocks."""
    condition, value = in_list(connection, "request_id", requests)
    sql = f"SELECT request_id, blocks, mask FROM elements WHERE {condition} AND step = ? ORDER BY id"
    if requests:
        yield from connection.execute(sql, (value, step))


@decision("the jobs of an ended request never change")
def done_masks(connection: Connection, requests: Sequence[int], step: int) -> Iterator[tuple[int, str]]:
    """(request, mask) of the done jobs of these requests in one step, as JSON."""
    condition, value = in_list(connection, "request_id", requests)
    sql = f"SELECT request_id, mask FROM element_jobs WHERE {condition} AND step = ? AND state = 'done'"
    if requests:
        yield from connection.execute(sql, (value, step))
