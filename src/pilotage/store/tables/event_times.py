"""The measured time of an event: the attempts of done jobs of a step, and the events that they processed."""

from __future__ import annotations

from pilotage.store.engine.connection import Connection, bounded_sum
from pilotage.store.engine.decisions import hint


@hint("it is an estimate")
def time_per_event(connection: Connection, request: int, step: int, most: int) -> float | None:
    """Seconds of a reference core for one event, from at most `most` done jobs of a step; None: not known.

    Before a resubmission has done jobs, the request tells it that it resubmits. Both count their steps alike.
    """
    asked: int | None = request
    while asked is not None:
        measured = _measured(connection, asked, step, most)
        if measured is not None:
            return measured
        sql = "SELECT origin_id FROM requests WHERE id = ? AND root_id IS NOT NULL"
        row = connection.execute(sql, (asked,)).fetchone()
        asked = row[0] if row else None
    return None


def _measured(connection: Connection, request: int, step: int, most: int) -> float | None:
    sql = (
        f"SELECT sum(a.wall * a.processors * a.cpu_power), {bounded_sum(connection, 'e.events')}"
        " FROM (SELECT job_id, events"
        " FROM element_jobs WHERE request_id = ? AND step = ? AND state = 'done' AND events > 0 LIMIT ?) e"
        " JOIN attempts a ON a.job_id = e.job_id WHERE a.outcome = 'applied' AND a.wall > 0"
    )
    seconds, events = connection.execute(sql, (request, step, most)).fetchone()
    return float(seconds) / int(events) if events else None
