"""A clock that was set back: what is due at a stored instant would come late by the whole step."""

from __future__ import annotations

from pilotage.store.engine.connection import Connection

SETTLING_TIME = 30.0
"""Seconds. What is due sooner than this may have been written after the step, and is left as it is."""


def shift_deadlines(connection: Connection, seconds: float, now: float) -> None:
    """Move what is due later by `seconds`, which is negative: it then comes when it would have come.

    These are the ends of retry delays and of duties' locks, the last signs of life of other servers, and the start of
    the allowance of a limit. Leases, offers and takes are moved by every outage, and not here.
    """
    soon = now + SETTLING_TIME
    for sql, after in (
        ("UPDATE jobs SET not_before = not_before + ? WHERE not_before > ?", soon),
        ("UPDATE duties SET until = until + ? WHERE until > ?", soon),
        ("UPDATE servers SET alive_at = alive_at + ? WHERE alive_at > ?", now),
        ("UPDATE limit_states SET since = since + ? WHERE since > ?", now),
    ):
        connection.execute(sql, (seconds, after))
