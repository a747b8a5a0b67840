"""Counts of the unfinished jobs that agents have made."""

from __future__ import annotations

from typing import NamedTuple

from pilotage.store.engine.connection import Connection
from pilotage.store.engine.decisions import hint


class LoadCount(NamedTuple):
    """The jobs of one agent that are alike."""

    request_id: int
    site: str
    """Where they run, or where they count until they do."""
    is_running: int
    is_released: int
    """1: they are in the pool."""
    jobs: int


@hint("it weighs sites against each other; the next synchronisation counts again")
def of_agent(connection: Connection, agent: int) -> list[LoadCount]:
    """The unfinished jobs of an agent by request and site, without jobs that pause after a failure.

    A job that pauses needs no slot. If it counted, a request that fails would keep others from an idle site.
    """
    running = "(j.state IN ('Running', 'Stalled', 'Completing'))"
    sql = (
        f"SELECT request_id, site, is_running, is_released, count(*) FROM ("
        f" SELECT e.request_id, CASE WHEN {running} THEN coalesce(p.site, e.site) ELSE e.site END AS site,"
        f" CASE WHEN {running} THEN 1 ELSE 0 END AS is_running,"
        " CASE WHEN e.state = 'released' THEN 1 ELSE 0 END AS is_released"
        " FROM elements l JOIN element_jobs e ON e.element_id = l.id"
        " LEFT JOIN jobs j ON j.id = e.job_id AND e.state = 'released' LEFT JOIN pilots p ON p.id = j.pilot_id"
        " WHERE l.agent_id = ? AND l.state IN ('Available', 'Negotiating', 'Acquired', 'Running', 'CancelRequested')"
        " AND e.state IN ('made', 'released')) AS unfinished"
        " GROUP BY request_id, site, is_running, is_released"
    )
    return [LoadCount(*row) for row in connection.execute(sql, (agent,))]
