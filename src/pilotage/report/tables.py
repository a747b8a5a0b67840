"""The tables of a report. Times of cores are core-hours, each with as many digits as it needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from pilotage.documents.html_file import ReportTable
from pilotage.report.figures import AttemptSums, PlaceUse

if TYPE_CHECKING:
    from pilotage.wire.costs import CostRow
    from pilotage.wire.requests import RequestDetail
    from pilotage.wire.shares import AccountRow

NOBODY: Final = "(none)"
MOST_ROWS: Final = 200
"""Rows of a table. The others are added up in its last row."""


def states_table(states: dict[str, int]) -> ReportTable:
    """The jobs by state; the rows add up to all jobs."""
    rows = [(state, f"{count:,}") for state, count in sorted(states.items(), key=lambda item: -item[1])]
    rows.append(("all", f"{sum(states.values()):,}"))
    return ReportTable("Jobs by state", "", ("state", "jobs"), tuple(rows))


def places_table(sums: AttemptSums) -> ReportTable:
    """The attempts by site and CE."""
    places = sorted(sums.places.values(), key=lambda place: -place.core_seconds)
    shown, others = places[:MOST_ROWS], places[MOST_ROWS:]
    if others:
        rest = AttemptSums(sums.now, {(place.site, place.ce): place for place in others}).total
        rest.site = "others"
        shown = [*shown, rest]
    note = (
        "Core-hours: wall time by cores of the attempts that have ended. Efficiency: CPU time by these."
        " An attempt with no result was killed, given back or lost with its pilot. A job that a pilot took ahead and"
        " gave back unstarted is none."
    )
    columns = ("site", "CE", "attempts", "done", "failed", "no result", "running", "core-hours",
               "of results", "efficiency")  # fmt: skip
    rows = tuple(map(_place_cells, [*shown, sums.total] if len(shown) > 1 else shown))
    return ReportTable("Attempts by site and CE", note, columns, rows, texts=2)


def _place_cells(place: PlaceUse) -> tuple[str, ...]:
    counts = (place.attempts, place.done, place.failed, place.without_result, place.running)
    efficiency = f"{place.cpu_seconds / place.core_seconds:.0%}" if place.core_seconds else "-"
    return (
        place.site or NOBODY,
        place.ce,
        *(f"{count:,}" for count in counts),
        core_hours(place.core_seconds),
        core_hours(place.result_core_seconds),
        efficiency,
    )


def core_hours(seconds: float) -> str:
    hours = seconds / 3600
    return (
        f"{hours:,.0f}" if hours >= 100 else f"{hours:.2f}" if hours >= 0.1 or not hours else f"{hours:.5f}"
    )


def steps_table(detail: RequestDetail) -> ReportTable:
    """The steps of a request, and how far each has come."""
    rows = tuple(
        (
            step.name,
            f"{sum(step.elements.values()):,}",
            f"{sum(step.jobs.values()) + sum(step.pool.values()):,}",
            f"{step.jobs.get('done', 0):,}",
            f"{step.jobs.get('exhausted', 0):,}",
            f"{step.done_events:,} of {step.events:,}",
            f"{step.complete} %",
            f"{step.success} %",
        )
        for step in detail.steps
    )
    columns = ("step", "elements", "jobs", "done", "failed for good", "events done", "ended", "success")
    return ReportTable("Steps", "", columns, rows)


def request_places_table(detail: RequestDetail) -> ReportTable:
    rows = tuple(
        (place.site or "not decided yet", *(f"{count:,}" for count in counts))
        for place in detail.places[:MOST_ROWS]
        for counts in [(place.pending, place.running, place.done, place.failed)]
    )
    return ReportTable("Jobs by site", "", ("site", "pending", "running", "done", "failed"), rows)


_ACCOUNTED: Final = ("attempts", "applied", "wall", "core_wall", "cpu", "normalised_wall")


def accounts_table(title: str, names: Sequence[str], rows: Iterable[AccountRow]) -> ReportTable:
    """The usage of a month, added up over the rows that have the same `names`."""
    sums: dict[tuple[str, ...], list[float]] = {}
    for row in rows:
        key = tuple(getattr(row, name) for name in names)
        before = sums.get(key, [0.0] * len(_ACCOUNTED))
        sums[key] = [old + getattr(row, name) for old, name in zip(before, _ACCOUNTED, strict=True)]
    entries = sorted(sums.items(), key=lambda entry: -entry[1][3])
    total = [sum(column) for column in zip(*sums.values(), strict=True)] or [0.0] * len(_ACCOUNTED)
    if len(entries) > MOST_ROWS:
        rest = [sum(column) for column in zip(*(entry[1] for entry in entries[MOST_ROWS:]), strict=True)]
        entries = [*entries[:MOST_ROWS], (("others", *[""] * (len(names) - 1)), rest)]
    entries.append((("total", *[""] * (len(names) - 1)), total))
    cells = tuple(
        (*(name or NOBODY for name in key[:1]), *key[1:], *_account_cells(sum_)) for key, sum_ in entries
    )
    columns = (
        *names,
        "attempts",
        "results",
        "wall hours",
        "core-hours",
        "CPU hours",
        "normalised core-hours",
    )
    note = "Attempts that ended in the month, in UTC. Normalised: to reference cores."
    return ReportTable(title, note, columns, cells, texts=len(names))


def _account_cells(sums: Sequence[float]) -> tuple[str, ...]:
    return (*(f"{count:,.0f}" for count in sums[:2]), *map(core_hours, sums[2:]))


def costs_table(row: CostRow) -> ReportTable:
    """Where the core-seconds of pilots went."""
    parts = (("payload", row.payload), ("start-up", row.startup), ("idle", row.idle), ("lost", row.lost))
    rows = tuple(
        (name, core_hours(amount), f"{amount:,.0f}") for name, amount in (*parts, ("total", row.total))
    )
    note = (
        "Payload: cores that jobs held, from the start of an attempt until the server has its end. The core-seconds"
        " of attempts are wall time of programs, as pilots measured it. `pilotage cost` has the same figures by CE,"
        " owner and group."
    )
    return ReportTable("Cost: core time of pilots", note, ("part", "core-hours", "core-seconds"), rows)
