"""The common part of the algorithms that give lumis to jobs by their events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, ClassVar

from pilotage.core.setting import Setting
from pilotage.core.splitting.algorithm import Amount, ceil_div
from pilotage.core.splitting.lumi_algorithm import LumiAlgorithm
from pilotage.core.splitting.mask import LumiRange
from pilotage.core.splitting.pieces import Piece, count_lumis, events_between


class EventTarget(LumiAlgorithm, frozen=True, kw_only=True):
    """Whole lumis until a number of events. The events of a file are spread evenly over its lumis."""

    total_unit: ClassVar[str] = "events"
    uses_time_per_event: ClassVar[bool] = True

    events_per_job: Annotated[int, Setting("the events that a job is to have", 1, 10**12)]
    total_events: Annotated[
        int,
        Setting(
            "lumis are processed until the step has this number of events; 0: all", 1, 10**15, or_zero=True
        ),
    ] = 0

    max_lumi_time: Annotated[
        float,
        Setting(
            "seconds that one lumi may take, in all of its files; a file with longer lumis fails, and the rest of its"
            " element goes on; 0: no limit. It counts by time_per_event; where the request gives none, by the step's"
            " done jobs as soon as there are some",
            1.0,
            1e9,
            or_zero=True,
        ),
    ] = 48 * 3600.0

    def refusal(self, run: int, lumi: int, events: int) -> str:
        seconds = events * self.time_per_event
        if not self.max_lumi_time or seconds <= self.max_lumi_time:
            return ""
        return (
            f"lumi {lumi} of run {run} has about {events:,} events, which take {seconds / 3600:,.1f} h: more than the"
            f" {self.max_lumi_time / 3600:,.1f} h of max_lumi_time (give the time_per_event of the program, or a larger"
            " max_lumi_time)"
        )

    def limit(self, pieces: Iterable[Piece]) -> Iterable[Piece]:
        return _until(pieces, self.total_events) if self.total_events else pieces

    def estimate_jobs(self, amount: Amount) -> int:
        events = min(amount.events, self.total_events or amount.events)
        return max(1, ceil_div(events, self.events_per_job))


def _until(pieces: Iterable[Piece], most: int) -> Iterator[Piece]:
    """The first lumis that together have `most` events; the last one may exceed them."""
    for piece in pieces:
        if most <= 0:
            return
        lumis = count_lumis(piece.lumis)
        if piece.events <= most or not lumis:
            most -= piece.events
            yield piece
            continue
        kept = next(
            count
            for count in range(ceil_div(most * lumis, piece.events) - 1, lumis + 1)
            if events_between(piece.events, lumis, 0, count) >= most
        )
        yield _first_lumis(piece, kept, lumis)
        return


def _first_lumis(piece: Piece, kept: int, lumis: int) -> Piece:
    ranges: list[LumiRange] = []
    left = kept
    for run, first, last in piece.lumis:
        if left <= 0:
            break
        ranges.append(LumiRange(run, first, min(last, first + left - 1)))
        left -= last - first + 1
    events = events_between(piece.events, lumis, 0, kept)
    size = piece.size * kept // lumis
    return piece._replace(size=size, events=events, lumis=tuple(ranges), has_named_lumis=True)
