"""The tables of a study, as cells of text. With several seeds, a cell is the median over them, with its range."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median
from typing import Final

from pilotage.core.jobs.durations import format_duration
from pilotage.documents.html_file import ReportTable
from pilotage.twin.measures import CeMeasures, PartyMeasures, RunMeasures
from pilotage.twin.report.quantities import core_hours, percent
from pilotage.twin.report.study import QUANTILE_NAMES, PolicyRuns

OWNERS_SHOWN: Final = 30


def tables_of(policy: PolicyRuns) -> list[ReportTable]:
    """The tables of one policy."""
    return [_summary(policy), _waits(policy), _shares(policy), _owners(policy), _pilots(policy)]


def over_seeds(values: Iterable[float], shown: Callable[[float], str]) -> str:
    """The median, and the range if the values differ as they are shown."""
    numbers = sorted(values)
    low, middle, high = shown(numbers[0]), shown(median(numbers)), shown(numbers[-1])
    return middle if low == high else f"{middle} ({low} to {high})"


def party_name(party: PartyMeasures) -> str:
    return f"{party.owner} ({party.group})" if party.owner else party.group


def by_party(runs: Iterable[Sequence[PartyMeasures]]) -> dict[str, list[PartyMeasures]]:
    """The same party of all runs, by its name, in the order of the first run."""
    parties: dict[str, list[PartyMeasures]] = {}
    for run in runs:
        for party in run:
            parties.setdefault(party_name(party), []).append(party)
    return parties


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _summary(policy: PolicyRuns) -> ReportTable:
    runs = policy.runs
    facts: list[tuple[str, Callable[[RunMeasures], float], Callable[[float], str]]] = [
        ("jobs done", lambda run: run.outcomes.get("done", 0), _count),
        ("jobs failed", lambda run: run.outcomes.get("failed", 0), _count),
        ("jobs that run at the end", lambda run: run.outcomes.get("running", 0), _count),
        ("jobs that wait at the end", lambda run: run.outcomes.get("waiting", 0), _count),
        ("jobs with several attempts", lambda run: run.repeated, _count),
        ("virtual time", lambda run: run.until, format_duration),
        ("cores that run payloads until the last submission", lambda run: run.utilisation, percent),
        ("matches", lambda run: run.matches, _count),
        ("messages of pilots", lambda run: run.exchanges, _count),
        ("processor time of the run", lambda run: run.cpu_seconds, format_duration),
    ]
    rows = tuple((name, over_seeds(map(value, runs), shown)) for name, value, shown in facts)
    seeds = ", ".join(str(run.seed) for run in runs)
    several = len(runs) > 1
    note = f"Seeds {seeds}: median, and the range where they differ." if several else f"Seed {seeds}."
    return ReportTable("Runs", note, ("", policy.name), rows)


def _waits(policy: PolicyRuns) -> ReportTable:
    parties = by_party(run.groups for run in policy.runs)
    rows = tuple(
        (
            name,
            _count(runs[0].jobs),
            over_seeds((run.waiting for run in runs), _count),
            *(
                over_seeds((run.waits[place] for run in runs), format_duration)
                for place in range(len(QUANTILE_NAMES))
            ),
        )
        for name, runs in parties.items()
    )
    note = (
        "The part of a group's jobs that started within this time."
        " Jobs that did not start count with their wait until the end of the run."
    )
    return ReportTable("Waits by group", note, ("group", "jobs", "not started", *QUANTILE_NAMES), rows)


_SHARE_NOTE: Final = (
    "Core-hours until the last submission. Entitled: those of an ideal division of the same cores, which stops and"
    " continues jobs at will."
)
_SHARE_COLUMNS: Final = ("entitled", "used", "used of entitled")


def _shares(policy: PolicyRuns) -> ReportTable:
    rows = tuple(_share_rows(by_party(run.groups for run in policy.runs)))
    return ReportTable("Entitled and used, by group", _SHARE_NOTE, ("group", *_SHARE_COLUMNS), rows)


def _owners(policy: PolicyRuns) -> ReportTable:
    parties = by_party(run.owners for run in policy.runs)
    most_used = sorted(parties.items(), key=lambda entry: -entry[1][0].used)[:OWNERS_SHOWN]
    rows = tuple(_share_rows(dict(most_used)))
    more = len(parties) - len(rows)
    note = f"{_SHARE_NOTE} Owners of a group have equal parts of its entitlement."
    if more:
        note += f" {more:,} owners with less use are in the JSON document."
    return ReportTable("Entitled and used, by owner", note, ("owner", *_SHARE_COLUMNS), rows)


def _share_rows(parties: dict[str, list[PartyMeasures]]) -> Iterator[tuple[str, ...]]:
    for name, runs in parties.items():
        ratios = [run.used / run.entitled for run in runs if run.entitled > 0]
        yield (
            name,
            over_seeds((run.entitled for run in runs), core_hours),
            over_seeds((run.used for run in runs), core_hours),
            over_seeds(ratios, percent) if ratios else "-",
        )


def _pilots(policy: PolicyRuns) -> ReportTable:
    ces: dict[str, list[CeMeasures]] = {}
    for run in policy.runs:
        for ce in run.ces:
            ces.setdefault(ce.name, []).append(ce)
    rows = tuple(
        (
            name,
            over_seeds((ce.pilots for ce in runs), _count),
            over_seeds((ce.never_began for ce in runs), _count),
            *(
                over_seeds((getattr(ce, kind) for ce in runs), core_hours)
                for kind in ("payload", "startup", "idle", "lost")
            ),
        )
        for name, runs in ces.items()
    )
    note = "Core-hours of pilots, by what they were spent on."
    columns = ("CE", "pilots", "never began", "payload", "start-up", "idle", "lost")
    return ReportTable("Pilots", note, columns, rows)
