"""After the clock was set back: without a correction, everything due at a stored time would be late by the step."""

from __future__ import annotations

from pilotage.store.engine.connection import Connection
from pilotage.store.engine.decisions import overwrites

SETTLING_TIME = 30.0
"""Seconds. An earlier deadline may have been stored after the step, and is not changed."""


@overwrites("each deadline moves by the same step of the clock")
def shift_deadlines(connection: Connection, seconds: float, now: float) -> None:
    """Add `seconds`, which is negative, to all later deadlines, so that they are met in time.

    These are the ends of retry delays and of duties' locks, the heartbeats of other servers, and the start of the
    allowance of a limit. Leases, offers and takes are extended by every outage, not here.
    """
    soon = now + SETTLING_TIME
    for sql, after in (
        ("UPDATE jobs SET not_before = not_before + ? WHERE not_before > ?", soon),
        ("UPDATE duties SET until = until + ? WHERE until > ?", soon),
        ("UPDATE servers SET alive_at = alive_at + ? WHERE alive_at > ?", now),
        ("UPDATE limit_states SET since = since + ? WHERE since > ?", now),
    ):
        connection.execute(sql, (seconds, after))
