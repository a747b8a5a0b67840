"""The measured time of an event: the attempts of done jobs of a step, and the events that they processed."""

from __future__ import annotations

from pilotage.store.engine.connection import Connection, bounded_sum
from pilotage.store.engine.decisions import hint


@hint("it is an estimate")
def time_per_event(connection: Connection, request: int, step: int, most: int) -> float | None:
    """Seconds of a reference core for one event, from at most `most` done jobs of a step; None: not known."""
    sql = (
        f"SELECT sum(a.wall * a.processors * a.cpu_power), {bounded_sum(connection, 'e.events')}"
        " FROM (SELECT job_id, events"
        " FROM element_jobs WHERE request_id = ? AND step = ? AND state = 'done' AND events > 0 LIMIT ?) e"
        " JOIN attempts a ON a.job_id = e.job_id WHERE a.outcome = 'applied' AND a.wall > 0"
    )
    seconds, events = connection.execute(sql, (request, step, most)).fetchone()
    return float(seconds) / int(events) if events else None
