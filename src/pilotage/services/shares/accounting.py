"""Use by month, site, group and owner."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from pilotage.core.errors import Overloaded
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import usage as use_rows
from pilotage.wire.shares import AccountRow

SETTLED = 60.0
"""Seconds after which no server commits an end of that time: the database ends transactions that idle for longer."""


def check_settled(end: float, now: float) -> None:
    """Refuse a period that has just ended: the records of its last attempts may not be committed yet."""
    rest = end + SETTLED - now
    if 0.0 < rest <= SETTLED:
        raise Overloaded(
            "the period ended less than a minute ago: the ends of its last attempts may not be stored yet",
            hint=f"try again in {rest:.0f} s",
            retry_after=rest,
        )


def months(begin: float, end: float) -> list[tuple[str, float, float]]:
    """("2026-11", from, until) of every month of [begin, end), in UTC; the first and last are cut.

    >>> [name for name, _, _ in months(0.0, 40 * 86400.0)]
    ['1970-01', '1970-02']
    """
    months_found = []
    at = begin
    while at < end:
        day = datetime.fromtimestamp(at, UTC)
        following = datetime(day.year + day.month // 12, day.month % 12 + 1, 1, tzinfo=UTC).timestamp()
        months_found.append((f"{day:%Y-%m}", at, min(following, end)))
        at = following
    return months_found


def accounts(
    connect: Callable[[], Connection], begin: float | None, end: float | None, owner: str | None
) -> Iterator[list[AccountRow]]:
    """Use by site, group and owner in one month after the other, of attempts that ended in [begin, end).

    `owner` None: everybody's. `connect` is asked for each month, since another thread may read that.
    An attempt counts whole in the month in which it ended, as APEL and EGI account for jobs.
    """
    known = use_rows.first_and_last_end(connect())
    if known is None:
        return
    first, last = known
    since = first if begin is None else max(begin, first)
    until = last + 1 if end is None else min(end, last + 1)
    for month, start, stop in months(since, until):
        yield [
            AccountRow(month, *account)
            for account in use_rows.usage_by_account(connect(), start, stop, owner)
        ]
