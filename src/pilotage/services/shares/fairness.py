"""Compares the shares with the use of a period."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pilotage.core.policy import Policy
from pilotage.core.queues.fairness import bound, covered, expected_use, judge, reaches_shares
from pilotage.core.shares.corrector import CorrectorInstance
from pilotage.core.shares.priorities import Entitled
from pilotage.core.shares.use import Entity, Unit, Use
from pilotage.services.shares.corrections import UseBook
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import usage as use_rows
from pilotage.wire.shares import FairnessReport, FairnessRow, UsePoint, UseReport


@dataclass(frozen=True, slots=True)
class Period:
    """Facts about a period: average use, number of attempts, and demand.

    `demand` maps (owner, group) to the part of the period in which jobs waited. A missing entity had no waiting jobs.
    """

    begin: float
    end: float
    use: Use
    starts: Mapping[Entity, int]
    demand: Mapping[Entity, float]


def period(connection: Connection, book: UseBook, policy: Policy, begin: float, end: float) -> Period:
    """Read the facts about [begin, end). Reader's connection, any thread."""
    intervals: dict[Entity, list[tuple[float, float]]] = {}
    for owner, group, since, until in use_rows.waiting_times(connection, begin):
        interval = (max(since, begin), end if until is None else min(until, end))
        for entity in {(owner, group), policy.entity(owner, group)}:
            intervals.setdefault(entity, []).append(interval)
    demand = {entity: covered(theirs) / max(end - begin, 1.0) for entity, theirs in intervals.items()}
    return Period(
        begin, end, book.between(begin, end), use_rows.attempt_counts(connection, begin, end), demand
    )


ALWAYS = 0.95
"""An entity with waiting jobs for this part of the time counts as one that always had waiting jobs."""


def fairness_report(policy: Policy, entitled: Sequence[Entitled], period: Period) -> FairnessReport:
    """Groups against each other, and the owners of each group that is not JOB_SHARING."""
    waiting = {(entity.owner, entity.group): entity.waiting for entity in entitled}
    by_group = _Groups(policy, period, waiting)
    report = FairnessReport(
        begin=period.begin,
        end=period.end,
        rule=policy.matching.rule,
        unit=_unit(policy.correction.between("")),
        assumptions=_assumptions(policy),
        rows=by_group.rows(),
    )
    for group in sorted(policy.groups):
        if not policy.sharing(group):
            report.rows += by_group.owners(group)
    return report


def _unit(instances: Sequence[CorrectorInstance]) -> Unit:
    """The unit of the first instance; that of several may differ."""
    return instances[0].unit if instances else "jobs"


def _assumptions(policy: Policy) -> list[str]:
    said = ["an entity counts as one with demand if work of it was waiting for 95 % of the time"]
    if policy.matching.rule == "dirac":
        said.append(
            "rule dirac: expected for one task queue each in one CPU bucket, jobs of equal lengths; more queues or"
            " buckets move it"
        )
    elif not reaches_shares(policy.correction.between("")):
        said.append("without form integral the expectation holds for jobs of equal lengths")
    return said


@dataclass(frozen=True, slots=True)
class _Groups:
    policy: Policy
    period: Period
    waiting: Mapping[Entity, int]

    def rows(self) -> list[FairnessRow]:
        instances = self.policy.correction.between("")
        used = self.period.use.of_groups(_unit(instances))
        shares = {
            group: share
            for group, share in self.policy.shares().items()
            if share and (used.get(group) or self._sum(self.waiting, group))
        }
        return self._compared(
            instances,
            shares,
            used,
            starts=lambda group: self._sum(self.period.starts, group),
            waits=lambda group: self._sum(self.waiting, group),
            demand=lambda group: max(
                (d for (_, g), d in self.period.demand.items() if g == group), default=0.0
            ),
            pair_of=lambda group: ("", group),
        )

    def owners(self, group: str) -> list[FairnessRow]:
        instances = self.policy.correction.between(group)
        used = self.period.use.of_owners(group, _unit(instances))
        names = {owner for owner in used if self.policy.admits(owner, group)}
        names |= {owner for owner, theirs in self.waiting if theirs == group}
        return self._compared(
            instances,
            dict.fromkeys(sorted(names), 1.0),
            used,
            starts=lambda owner: self.period.starts.get((owner, group), 0),
            waits=lambda owner: self.waiting.get((owner, group), 0),
            demand=lambda owner: self.period.demand.get((owner, group), 0.0),
            pair_of=lambda owner: (owner, group),
        )

    @staticmethod
    def _sum(numbers: Mapping[Entity, int], group: str) -> int:
        return sum(number for (_, theirs), number in numbers.items() if theirs == group)

    def _compared(
        self,
        instances: Sequence[CorrectorInstance],
        shares: Mapping[str, float],
        running: Mapping[str, float],
        *,
        starts: Callable[[str], int],
        waits: Callable[[str], int],
        demand: Callable[[str], float],
        pair_of: Callable[[str], Entity],
    ) -> list[FairnessRow]:
        if not shares:
            return []
        whole = sum(running.get(entity, 0.0) for entity in shares)
        used = {entity: running.get(entity, 0.0) / whole if whole else 0.0 for entity in shares}
        expected = expected_use(shares, self.policy.matching.rule, instances)
        total = sum(starts(entity) for entity in shares)
        bounds = {entity: bound(expected[entity], total, instances) for entity in shares}
        verdicts = judge(used, expected, bounds, {entity: demand(entity) >= ALWAYS for entity in shares})
        share = sum(shares.values())
        return [
            FairnessRow(
                *pair_of(entity),
                entitled=shares[entity] / share,
                expected=expected[entity],
                used=used[entity],
                bound=bounds[entity],
                running=running.get(entity, 0.0),
                waiting=waits(entity),
                demand=demand(entity),
                verdict=str(verdicts[entity]),
            )
            for entity in shares
        ]


OWNERS_NAMED = 50
"""Owners of a group that a report on its use names; the others are one row."""


def use_report(book: UseBook, begin: float, end: float, points: int, group: str) -> UseReport:
    """The use in equal parts of a period: of all groups, or of the owners of one."""
    span = (end - begin) / points
    named = _most_used(book.between(begin, end), group) if group else frozenset[str]()
    rows = list[UsePoint]()
    for part in range(points):
        since, until = begin + part * span, begin + (part + 1) * span
        use, sums = book.between(since, until), dict[Entity, UsePoint]()
        for owner, theirs in use.jobs:
            if group and theirs != group:
                continue
            key = (owner if owner in named else "", theirs)
            row = sums.setdefault(key, UsePoint(since, until, *key, 0.0, 0.0))
            row.jobs += use.jobs[owner, theirs]
            row.cores += use.cores.get((owner, theirs), 0.0)
        rows += [sums[key] for key in sorted(sums)]
    return UseReport(begin, end, span, rows)


def _most_used(use: Use, group: str) -> frozenset[str]:
    """The owners of a group that have used the most."""
    owners = use.of_owners(group, "jobs")
    return frozenset(sorted(owners, key=lambda owner: (-owners[owner], owner))[:OWNERS_NAMED])
