"""Differences between policies, each with its spread over the seeds, and the parties without a difference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pilotage.core.jobs.durations import format_duration
from pilotage.twin.measures import QUANTILES, PartyMeasures, RunMeasures
from pilotage.twin.report.quantities import percent, signed_percent
from pilotage.twin.report.study import PolicyRuns
from pilotage.twin.report.tables import over_seeds, party_name

MEDIAN: Final = QUANTILES.index(0.5)
LEAST_PART: Final = 0.01
"""The part by which core-seconds must differ."""
LEAST_WAIT_PART: Final = 0.05
LEAST_WAIT: Final = 60.0
"""Seconds by which a median wait must differ, besides its part."""
SHOWN: Final = 25


@dataclass(frozen=True, slots=True)
class MeasureDifference:
    """One quantity of a party with two policies, seed by seed."""

    party: str
    quantity: str
    before: tuple[float, ...]
    after: tuple[float, ...]
    text: str
    """A sentence for people."""
    weight: float
    """The larger one is told first."""


@dataclass(frozen=True, slots=True)
class PolicyComparison:
    """A policy beside the first one of the study."""

    name: str
    base: str
    seeds: tuple[int, ...]
    """The seeds that both have finished."""
    differences: tuple[MeasureDifference, ...]
    """The largest ones first."""
    unchanged: tuple[str, ...]
    """Sentences about the quantities that stay as they were."""


def compare_policies(policies: Sequence[PolicyRuns]) -> list[PolicyComparison]:
    """Each further policy beside the first one."""
    return [_compare(policies[0], other) for other in policies[1:]]


def _compare(base: PolicyRuns, other: PolicyRuns) -> PolicyComparison:
    before = {run.seed: run for run in base.runs}
    after = {run.seed: run for run in other.runs}
    seeds = tuple(seed for seed in before if seed in after)
    pairs = [(before[seed], after[seed]) for seed in seeds]
    differences: list[MeasureDifference] = []
    unchanged: list[str] = []
    if pairs:
        _add_utilisation(pairs, differences, unchanged)
        for kind, attribute in (("group", "groups"), ("user", "owners")):
            parties = list(_pairs_of_parties(pairs, attribute))
            same_use, same_wait = 0, 0
            for name, runs in parties:
                use, wait = _use(f"{kind} {name}", runs), _wait(f"{kind} {name}", runs)
                differences += [difference for difference in (use, wait) if difference]
                same_use, same_wait = same_use + (use is None), same_wait + (wait is None)
            total = len(parties)
            least_wait = f"{percent(LEAST_WAIT_PART)} or {format_duration(LEAST_WAIT)}"
            for name, same, least in (
                ("core-seconds", same_use, percent(LEAST_PART)),
                ("median waits", same_wait, least_wait),
            ):
                if same:
                    unchanged.append(f"{name} of {same:,} of {total:,} {kind}s (within {least})")
    differences.sort(key=lambda difference: -difference.weight)
    return PolicyComparison(other.name, base.name, seeds, tuple(differences), tuple(unchanged))


def _add_utilisation(
    pairs: Sequence[tuple[RunMeasures, RunMeasures]],
    differences: list[MeasureDifference],
    unchanged: list[str],
) -> None:
    before = tuple(run.utilisation for run, _ in pairs)
    after = tuple(run.utilisation for _, run in pairs)
    text = f"{over_seeds(before, percent)} → {over_seeds(after, percent)}"
    name = "cores that run payloads"
    if _moved([b - a for a, b in zip(before, after, strict=True)], LEAST_PART):
        differences.append(MeasureDifference("", "utilisation", before, after, f"{name}: {text}", 1e9))
    else:
        unchanged.append(f"{name}: {text}")


def _pairs_of_parties(
    pairs: Sequence[tuple[RunMeasures, RunMeasures]], attribute: str
) -> Iterator[tuple[str, list[tuple[PartyMeasures, PartyMeasures]]]]:
    """Each party of all runs with its measures before and after, seed by seed."""
    measures: dict[str, list[tuple[PartyMeasures, PartyMeasures]]] = {}
    for before, after in pairs:
        others = {party_name(party): party for party in getattr(after, attribute)}
        for party in getattr(before, attribute):
            if (other := others.get(party_name(party))) is not None:
                measures.setdefault(party_name(party), []).append((party, other))
    yield from measures.items()


def _use(name: str, runs: Sequence[tuple[PartyMeasures, PartyMeasures]]) -> MeasureDifference | None:
    before, after = tuple(first.used for first, _ in runs), tuple(second.used for _, second in runs)
    parts = [(b - a) / a for a, b in zip(before, after, strict=True) if a > 0]
    if len(parts) < len(runs) or not _moved(parts, LEAST_PART):
        return None
    text = f"{name}: {over_seeds(parts, signed_percent)} core-seconds"
    moved = abs(sum(after) - sum(before)) / len(runs)
    return MeasureDifference(name, "used", before, after, text, moved)


def _wait(name: str, runs: Sequence[tuple[PartyMeasures, PartyMeasures]]) -> MeasureDifference | None:
    before = tuple(first.waits[MEDIAN] for first, _ in runs)
    after = tuple(second.waits[MEDIAN] for _, second in runs)
    changes = [b - a for a, b in zip(before, after, strict=True)]
    parts = [change / max(a, 1.0) for a, change in zip(before, changes, strict=True)]
    if not (_moved(changes, LEAST_WAIT) and _moved(parts, LEAST_WAIT_PART)):
        return None
    shown = f"{over_seeds(before, format_duration)} → {over_seeds(after, format_duration)}"
    moved = abs(sum(changes)) / len(runs) * runs[0][0].jobs
    return MeasureDifference(name, "median wait", before, after, f"{name}: median wait {shown}", moved)


def _moved(changes: Sequence[float], least: float) -> bool:
    """Whether all seeds change in one direction, on average by at least `least`."""
    one_way = all(change > 0 for change in changes) or all(change < 0 for change in changes)
    return one_way and abs(sum(changes)) / len(changes) >= least
