"""How much unfinished work the work queue has, for metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pilotage.core.requests.states import UNFINISHED
from pilotage.core.state_table import StateTable
from pilotage.core.workqueue.states import ELEMENT_JOB_STATES, ELEMENT_STATES
from pilotage.store.engine.connection import Connection, in_list


class WorkQueueDepth(NamedTuple):
    """Each is the number of rows by state. Only unfinished states are counted, so ended work costs nothing."""

    requests: dict[str, int]
    elements: dict[str, int]
    jobs: dict[str, int]
    """Jobs of elements. A released one is in the pool; the pool's metrics count it too."""


def read(connection: Connection) -> WorkQueueDepth:
    """Count from indexes, without reading rows."""
    condition, value = in_list(connection, "state", UNFINISHED)
    rows = connection.execute(f"SELECT id, state FROM requests WHERE {condition}", (value,)).fetchall()
    requests = {str(state): 0 for state in UNFINISHED}
    for _, state in rows:
        requests[state] += 1
    ids = [row[0] for row in rows]
    return WorkQueueDepth(
        requests,
        _by_state(connection, "elements", ids, ELEMENT_STATES),
        _by_state(connection, "element_jobs", ids, ELEMENT_JOB_STATES),
    )


def _by_state(
    connection: Connection, table: str, requests: Sequence[int], states: StateTable[Any]
) -> dict[str, int]:
    unfinished = [str(state) for state, row in states.rows.items() if row.next]
    of_requests, ids = in_list(connection, "request_id", requests)
    in_states, names = in_list(connection, "state", unfinished)
    sql = f"SELECT state, count(*) FROM {table} WHERE {of_requests} AND {in_states} GROUP BY state"
    return dict.fromkeys(unfinished, 0) | dict(connection.execute(sql, (ids, names)).fetchall())
