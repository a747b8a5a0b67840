"""The figures of one run: small enough to be kept for each seed, and enough for all tables and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from pilotage.core.policy import Policy
from pilotage.twin.ces import TwinCe
from pilotage.twin.columns import Array
from pilotage.twin.ideal import IdealUse, ideal_use
from pilotage.twin.result import TwinOutcome, TwinResult

QUANTILES: Final = (0.1, 0.5, 0.9, 0.99)
POINTS: Final = 300
"""Points of a curve at most."""


@dataclass(frozen=True, slots=True)
class PartyMeasures:
    """A group, or an owner in a group."""

    group: str
    owner: str
    """Empty: the whole group."""
    jobs: int
    waiting: int
    """Jobs that did not start before the end of the run."""
    waits: tuple[float, ...]
    """Seconds from submission to start, at `QUANTILES`. Jobs that did not start count with their wait so far."""
    used: float
    """Core-seconds until the last submission."""
    entitled: float
    """Core-seconds that an ideal division would have given it until the last submission."""


@dataclass(frozen=True, slots=True)
class CeMeasures:
    name: str
    cores: int
    pilots: int
    never_began: int
    payload: float
    startup: float
    idle: float
    lost: float
    """Core-seconds of its pilots."""


@dataclass(frozen=True, slots=True)
class TwinCurves:
    """Values over time. Between two instants, they are the mean."""

    times: tuple[float, ...]
    busy: tuple[float, ...]
    idle: tuple[float, ...]
    starting: tuple[float, ...]
    waiting: tuple[float, ...]
    groups: tuple[str, ...]
    entitled: tuple[tuple[float, ...], ...]
    """The cores that each group is entitled to."""
    used: tuple[tuple[float, ...], ...]
    """The cores that each group uses."""


@dataclass(frozen=True, slots=True)
class RunMeasures:
    seed: int
    until: float
    last_submission: float
    outcomes: dict[str, int]
    repeated: int
    """Jobs with more than one attempt."""
    groups: tuple[PartyMeasures, ...]
    owners: tuple[PartyMeasures, ...]
    ces: tuple[CeMeasures, ...]
    curves: TwinCurves
    matches: int
    exchanges: int
    cpu_seconds: float
    not_simulated: tuple[str, ...]
    standstill: str = ""
    """Why the run was ended although jobs wait; empty: it was not."""

    @property
    def utilisation(self) -> float:
        """The part of the cores that runs payloads, until the last submission."""
        cores = sum(ce.cores for ce in self.ces)
        used = sum(group.used for group in self.groups)
        return used / (cores * self.last_submission) if cores and self.last_submission else 0.0


def measure_run(result: TwinResult, policy: Policy, ces: Sequence[TwinCe]) -> RunMeasures:
    rows = result.jobs.rows
    last = float(rows["submit"].max()) if len(rows) else 0.0
    use = _group_use(result, policy)
    names, counts = np.unique(rows["outcome"], return_counts=True)
    return RunMeasures(
        seed=result.seed,
        until=result.until,
        last_submission=last,
        outcomes={TwinOutcome(name).name.lower(): int(n) for name, n in zip(names, counts, strict=True)},
        repeated=int(np.count_nonzero(rows["attempts"] > 1)),
        groups=tuple(_groups(result, use, last)),
        owners=tuple(_owners(result, use, last)),
        ces=tuple(_ces(result, ces)),
        curves=_curves(result, use),
        matches=result.counts.matches,
        exchanges=result.counts.exchanges,
        cpu_seconds=result.cpu_seconds,
        not_simulated=result.not_simulated,
        standstill=result.standstill,
    )


def _waits(rows: Array, until: float) -> tuple[tuple[float, ...], int]:
    """The quantiles of the waits, and the number of jobs that did not start."""
    open_waits = np.isnan(rows["start"])
    waits = np.where(open_waits, until, rows["start"]) - rows["submit"]
    quantiles = np.quantile(np.maximum(waits, 0.0), QUANTILES) if len(rows) else np.full(len(QUANTILES), 0.0)
    return tuple(float(value) for value in quantiles), int(np.count_nonzero(open_waits))


@dataclass(frozen=True, slots=True)
class GroupUse:
    """Entitlement and use of the groups, from each sample to the next one."""

    used: Array
    """Core-seconds, a column for each group of the samples."""
    ideal: IdealUse
    places: dict[str, int]
    """The place of each group among the groups of the jobs."""

    def entitled(self, group: str) -> Array:
        """The core-seconds of a group in the ideal division."""
        return self.ideal.of_group(self.places.get(group, -1))


def _group_use(result: TwinResult, policy: Policy) -> GroupUse:
    samples, jobs = result.samples.rows, result.jobs
    used = np.diff(samples["used"], axis=0)
    ideal = ideal_use(jobs, samples["time"], used.sum(axis=1), policy)
    return GroupUse(used, ideal, {group: place for place, group in enumerate(jobs.groups.names)})


def _groups(result: TwinResult, use: GroupUse, last: float) -> list[PartyMeasures]:
    rows, samples = result.jobs.rows, result.samples
    counted = samples.rows["time"][1:] <= last
    measured = []
    for place, group in enumerate(samples.groups):
        own = rows[rows["group"] == use.places.get(group, -1)]
        waits, waiting = _waits(own, result.until)
        measured.append(
            PartyMeasures(
                group=group,
                owner="",
                jobs=len(own),
                waiting=waiting,
                waits=waits,
                used=float(use.used[counted, place].sum()),
                entitled=float(use.entitled(group)[counted].sum()),
            )
        )
    return sorted((group for group in measured if group.jobs), key=lambda group: -group.jobs)


def _owners(result: TwinResult, use: GroupUse, last: float) -> list[PartyMeasures]:
    """The owners of each group. The owners of a group that shares its share have no entitlement of their own."""
    rows, jobs = result.jobs.rows, result.jobs
    times = result.samples.rows["time"]
    counted = times[1:] <= last
    grid = times[times <= last]
    entitled = dict(zip(use.ideal.parties, use.ideal.core_seconds[counted].sum(axis=0).tolist(), strict=True))
    measured = []
    for group, owner in np.unique(np.stack([rows["group"], rows["owner"]]), axis=1).T.tolist():
        own = rows[(rows["group"] == group) & (rows["owner"] == owner)]
        waits, waiting = _waits(own, result.until)
        measured.append(
            PartyMeasures(
                group=jobs.groups.names[group],
                owner=jobs.owners.names[owner],
                jobs=len(own),
                waiting=waiting,
                waits=waits,
                used=float(np.diff(_used(own, grid, result.until)).sum()),
                entitled=entitled.get((group, owner), 0.0),
            )
        )
    return sorted(measured, key=lambda party: -party.jobs)


def _sums_before(times: Array, values: Array, grid: Array) -> Array:
    """The sum of the values whose time is at most each instant."""
    order = np.argsort(times, kind="stable")
    sums = np.concatenate([[0.0], np.cumsum(values[order])])
    at_instants: Array = sums[np.searchsorted(times[order], grid, side="right")]
    return at_instants


def _used(rows: Array, grid: Array, until: float) -> Array:
    """Core-seconds until each instant. The core-seconds of a job are spread evenly from its start to its end."""
    started = rows[~np.isnan(rows["start"])]
    ends = np.where(np.isnan(started["end"]), until, started["end"])
    lengths = np.maximum(ends - started["start"], 1e-9)
    rates = started["used"] / lengths
    total: Array = np.zeros(len(grid))
    for times, sign in ((started["start"], 1.0), (ends, -1.0)):
        rate = _sums_before(times, rates, grid)
        shift = _sums_before(times, rates * times, grid)
        total += sign * (rate * grid - shift)
    return total


def _ces(result: TwinResult, ces: Sequence[TwinCe]) -> list[CeMeasures]:
    rows = result.pilots.rows
    measured = []
    for ce in ces:
        known = ce.name in result.pilots.ces.names
        own = rows[rows["ce"] == (result.pilots.ces.place(ce.name) if known else -1)]
        sums = (float(own[name].sum()) for name in ("payload", "startup", "idle", "lost"))
        began = int(np.count_nonzero(~np.isnan(own["started"])))
        measured.append(CeMeasures(ce.name, ce.cores, len(own), len(own) - began, *sums))
    return measured


def _curves(result: TwinResult, use: GroupUse) -> TwinCurves:
    rows, groups, spans = (
        result.samples.rows[:-1],
        result.samples.groups,
        np.diff(result.samples.rows["time"]),
    )
    if not len(rows):
        return TwinCurves((), (), (), (), (), groups, ((),) * len(groups), ((),) * len(groups))
    bounds = np.unique(np.linspace(0, len(rows), min(len(rows), POINTS), endpoint=False).astype(int))
    sizes = np.diff(np.append(bounds, len(rows)))

    def mean(values: Array) -> list[Any]:
        reduced: list[Any] = (np.add.reduceat(values, bounds, axis=0).T / sizes).tolist()
        return reduced

    return TwinCurves(
        times=tuple(rows["time"][bounds].tolist()),
        busy=tuple(mean(rows["busy"])),
        idle=tuple(mean(rows["idle"])),
        starting=tuple(mean(rows["starting"])),
        waiting=tuple(mean(rows["waiting"])),
        groups=groups,
        entitled=tuple(tuple(mean(use.entitled(group) / spans)) for group in groups),
        used=tuple(map(tuple, mean(use.used / spans[:, None]))),
    )
