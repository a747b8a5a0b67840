"""The figures of one run: small enough to be kept for each seed, and enough for all tables and pictures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from pilotage.core.policy import Policy
from pilotage.twin.ces import TwinCe
from pilotage.twin.columns import Array
from pilotage.twin.entitlement import entitled_cores
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
    """Core-seconds that it is entitled to until the last submission, while it has work."""
    used_with_work: float
    """Core-seconds that it used meanwhile."""


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
    use = _group_use(result)
    names, counts = np.unique(rows["outcome"], return_counts=True)
    return RunMeasures(
        seed=result.seed,
        until=result.until,
        last_submission=last,
        outcomes={TwinOutcome(name).name.lower(): int(n) for name, n in zip(names, counts, strict=True)},
        repeated=int(np.count_nonzero(rows["attempts"] > 1)),
        groups=tuple(_groups(result, use, last)),
        owners=tuple(_owners(result, policy, last)),
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

    spans: Array
    """Seconds."""
    used: Array
    """Cores, a column for each group."""
    entitled: Array
    """Cores: the group's share of all used cores, at most as many as its jobs can use."""
    has_work: Array
    """Whether the group has jobs that wait or run at both samples."""


def _group_use(result: TwinResult) -> GroupUse:
    samples, jobs = result.samples, result.jobs
    rows = samples.rows
    spans = np.diff(rows["time"])
    used = np.diff(rows["used"], axis=0) / np.maximum(spans, 1e-9)[:, None]
    demands = np.zeros((len(rows), len(samples.groups)))
    for place, group in enumerate(samples.groups):
        if group in jobs.groups.names:
            own = jobs.rows[jobs.rows["group"] == jobs.groups.place(group)]
            demands[:, place] = _demand(own, rows["time"])
    entitled = np.zeros_like(used)
    for step, cores in enumerate(used.sum(axis=1).tolist()):
        weights = dict(zip(samples.groups, rows["entitled"][step].tolist(), strict=True))
        demand = (demands[step] + demands[step + 1]) / 2
        now = dict(zip(samples.groups, demand.tolist(), strict=True))
        for group, part in entitled_cores(cores, weights, now).items():
            entitled[step, samples.groups.index(group)] = part
    return GroupUse(spans, used, entitled, (demands[:-1] > 0) & (demands[1:] > 0))


def _groups(result: TwinResult, use: GroupUse, last: float) -> list[PartyMeasures]:
    rows, samples = result.jobs.rows, result.samples
    counted = samples.rows["time"][1:] <= last
    measured = []
    for place, group in enumerate(samples.groups):
        known = group in result.jobs.groups.names
        own = rows[rows["group"] == (result.jobs.groups.place(group) if known else -1)]
        waits, waiting = _waits(own, result.until)
        busy = counted & use.has_work[:, place]
        used, entitled = use.used[:, place] * use.spans, use.entitled[:, place] * use.spans
        measured.append(
            PartyMeasures(
                group=group,
                owner="",
                jobs=len(own),
                waiting=waiting,
                waits=waits,
                used=float(used[counted].sum()),
                entitled=float(entitled[busy].sum()),
                used_with_work=float(used[busy].sum()),
            )
        )
    return sorted((group for group in measured if group.jobs), key=lambda group: -group.jobs)


def _owners(result: TwinResult, policy: Policy, last: float) -> list[PartyMeasures]:
    rows, jobs = result.jobs.rows, result.jobs
    grid = _grid(result, last)
    measured = []
    for place, group in enumerate(jobs.groups.names):
        own = rows[rows["group"] == place]
        cores = _group_cores(result, group, grid)
        parties = {jobs.owners.names[owner]: own[own["owner"] == owner] for owner in np.unique(own["owner"])}
        demands = {owner: _demand(of_owner, grid) for owner, of_owner in parties.items()}
        entitled = {} if policy.sharing(group) else _entitled(cores, demands)
        for owner, of_owner in parties.items():
            waits, waiting = _waits(of_owner, result.until)
            used = np.diff(_used(of_owner, grid, result.until))
            busy = (demands[owner][:-1] > 0) & (demands[owner][1:] > 0)
            parts = entitled.get(owner, np.zeros(len(grid)))
            mean = (parts[:-1] + parts[1:]) / 2 * np.diff(grid)
            measured.append(
                PartyMeasures(
                    group=group,
                    owner=owner,
                    jobs=len(of_owner),
                    waiting=waiting,
                    waits=waits,
                    used=float(used.sum()),
                    entitled=float(mean[busy].sum()),
                    used_with_work=float(used[busy].sum()),
                )
            )
    return sorted(measured, key=lambda party: -party.jobs)


def _grid(result: TwinResult, last: float) -> Array:
    """The instants at which owners are looked at: some of the samples' instants."""
    times = result.samples.rows["time"]
    times = times[times <= last]
    chosen = np.unique(np.linspace(0, len(times) - 1, min(len(times), POINTS)).astype(int))
    grid: Array = times[chosen] if len(times) else times
    return grid


def _group_cores(result: TwinResult, group: str, grid: Array) -> Array:
    """The cores that the group uses at each instant, as a mean over the time until the next one."""
    if group not in result.samples.groups or len(grid) < 2:
        return np.zeros(len(grid))
    rows, place = result.samples.rows, result.samples.groups.index(group)
    used = np.interp(grid, rows["time"], rows["used"][:, place])
    rates = np.diff(used) / np.diff(grid)
    return np.append(rates, rates[-1])


def _demand(rows: Array, grid: Array) -> Array:
    """Processors of the jobs that wait or run at each instant."""
    ends = np.where(np.isnan(rows["end"]), math.inf, rows["end"])
    return _sums_before(rows["submit"], rows["processors"], grid) - _sums_before(
        ends, rows["processors"], grid
    )


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


def _entitled(cores: Array, demands: dict[str, Array]) -> dict[str, Array]:
    """The part of the group's used cores that each of its owners is entitled to."""
    weights = dict.fromkeys(demands, 1.0)
    entitled = {owner: np.zeros(len(cores)) for owner in demands}
    for place, available in enumerate(cores.tolist()):
        now = {owner: float(demand[place]) for owner, demand in demands.items() if demand[place] > 0}
        for owner, part in entitled_cores(available, weights, now).items():
            entitled[owner][place] = part
    return entitled


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
    rows, groups = result.samples.rows[:-1], result.samples.groups
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
        entitled=tuple(map(tuple, mean(use.entitled))),
        used=tuple(map(tuple, mean(use.used))),
    )
