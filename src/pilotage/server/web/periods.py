"""The periods of pages that show something over time, in at most 24 parts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from pilotage.core.errors import InvalidInput
from pilotage.core.intervals import DAY, FOUR_WEEKS, HOUR
from pilotage.server.web.visit import Visit


class PagePeriod(NamedTuple):
    """A period up to now."""

    seconds: float
    parts: int


PERIODS: Mapping[str, PagePeriod] = {
    "hour": PagePeriod(HOUR, 6),
    "day": PagePeriod(DAY, 24),
    "week": PagePeriod(7 * DAY, 14),
    "month": PagePeriod(30 * DAY, 15),
    "year": PagePeriod(13 * FOUR_WEEKS, 13),
}
USUAL = "day"


def period_name(visit: Visit) -> str:
    """The period that the query names. Raises InvalidInput."""
    name = visit.query.get("period", USUAL)
    if name not in PERIODS:
        raise InvalidInput("there is no such period", hint=", ".join(PERIODS))
    return name


def interval_of(visit: Visit) -> tuple[int, int]:
    """The begin and the end that the query names. Raises InvalidInput."""
    begin, end = visit.number("begin"), visit.number("end")
    if not begin < end:
        raise InvalidInput("there is no such time", hint="the pages of waiting jobs and shares link to times")
    return begin, end


def part_label(begin: float, span: float, whole: float) -> str:
    """The begin of a part of a period of `whole` seconds."""
    if span % DAY == 0 == begin % DAY:
        return utc_words(begin, "%Y-%m-%d")
    return utc_words(begin, "%H:%M" if whole <= DAY else "%Y-%m-%d %H:%M")


def utc_words(at: float, form: str = "%Y-%m-%d %H:%M") -> str:
    return datetime.fromtimestamp(at, UTC).strftime(form)
