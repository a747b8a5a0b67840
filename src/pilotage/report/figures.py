"""The figures of a report, added up from the answers of API calls."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pilotage.core.jobs.states import GIVEN_BACK, TAKEN_AHEAD
from pilotage.documents.html_file import ReportTable

if TYPE_CHECKING:
    from pilotage.wire.attempts import JobAttempt

APPLIED: Final = "applied"
DONE, FAILED, WITHOUT_RESULT, RUNNING = range(4)
KIND_NAMES: Final = ("done", "failed", "no result", "running")
"""An attempt with no result was killed, or lost with its pilot."""


@dataclass
class PlaceUse:
    """The attempts at one CE."""

    site: str
    ce: str
    attempts: int = 0
    done: int = 0
    failed: int = 0
    without_result: int = 0
    running: int = 0
    core_seconds: float = 0.0
    """Wall time by cores of the attempts that have ended."""
    cpu_seconds: float = 0.0
    result_core_seconds: float = 0.0
    """The part of `core_seconds` of attempts whose result counts."""


@dataclass
class Timeline:
    """The attempts by time, each as three numbers: a report may have a million."""

    started: array[float] = field(default_factory=lambda: array("d"))
    ended: array[float] = field(default_factory=lambda: array("d"))
    kinds: bytearray = field(default_factory=bytearray)
    labels: list[str] = field(default_factory=list)
    """The names of the first attempts: such as "12.1", the first attempt of job 12."""


LABELS: Final = 60
"""The most attempts that a timeline shows one by one."""


@dataclass
class AttemptSums:
    """All attempts of a report, added up."""

    now: float
    places: dict[tuple[str, str], PlaceUse] = field(default_factory=dict)
    timeline: Timeline = field(default_factory=Timeline)

    def add_all(self, attempts: Iterable[JobAttempt]) -> None:
        for attempt in attempts:
            if attempt.outcome not in (TAKEN_AHEAD, GIVEN_BACK):
                self.add(attempt)

    def add(self, attempt: JobAttempt) -> None:
        kind = kind_of(attempt)
        key = attempt.site, attempt.ce
        place = self.places.get(key)
        if place is None:
            place = self.places[key] = PlaceUse(*key)
        core_seconds = attempt.wall * attempt.processors
        place.attempts += 1
        place.core_seconds += core_seconds
        place.cpu_seconds += attempt.cpu
        if attempt.outcome == APPLIED:
            place.result_core_seconds += core_seconds
        counted = ("done", "failed", "without_result", "running")[kind]
        setattr(place, counted, getattr(place, counted) + 1)
        line = self.timeline
        line.started.append(attempt.started)
        line.ended.append(max(attempt.started, self.now if attempt.ended is None else attempt.ended))
        line.kinds.append(kind)
        if len(line.labels) < LABELS:
            line.labels.append(f"{attempt.job}.{attempt.attempt}")

    @property
    def total(self) -> PlaceUse:
        whole = PlaceUse("total", "")
        for place in self.places.values():
            for name in vars(whole):
                if name not in ("site", "ce"):
                    setattr(whole, name, getattr(whole, name) + getattr(place, name))
        return whole


def kind_of(attempt: JobAttempt) -> int:
    """DONE, FAILED, WITHOUT_RESULT or RUNNING."""
    if attempt.ended is None:
        return RUNNING
    if attempt.failure or attempt.exit_code:
        return FAILED
    return DONE if attempt.outcome == APPLIED else WITHOUT_RESULT


@dataclass
class FailureCause:
    """Failed jobs with one cause."""

    cause: str
    count: int
    example: str
    """Such as "job 12"."""
    last_line: str
    """The end of the standard error of the example; empty: not known."""


@dataclass
class WorkReport:
    """The contents of one report."""

    title: str
    facts: list[tuple[str, str]]
    states: dict[str, int]
    """Jobs by state."""
    causes: list[FailureCause]
    causes_note: str
    tables: list[ReportTable]
    sums: AttemptSums | None = None
    """None: single attempts are not read, as for a month."""
    document: Mapping[str, object] = field(default_factory=dict)
    """The document of `--json`."""
