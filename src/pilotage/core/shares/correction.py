"""Share corrections: correctors run in order, each with instances, on the use of the past.

See docs/reference/rules.md, section 5.

A corrector sees the shares as corrected by the correctors before it. Its instances give a factor for each group, or
for each owner of a group that is not JOB_SHARING. The factors of several instances between the same entities multiply.
Group factors are not renormalised; `Priorities` scales owner factors so that the owners add up to their group's
corrected share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property

from pilotage.core.shares.corrector import Competition, CorrectorInstance, InstanceMemory
from pilotage.core.shares.reports import InstanceReport
from pilotage.core.shares.use import Entity, Use

Memory = dict[tuple[str, str, str, str], float]
"""(corrector, instance, part, entity) → a number that the instance carries on."""


@dataclass(frozen=True)
class Facts:
    """The input of all correctors.

    `owners` are (owner, group) pairs with waiting jobs. `elapsed` is seconds of up-time since the last correction.
    `use(span)` is the use of the last `span` seconds of up-time. `decayed_use(half_life)` weighs use by its age.
    """

    shares: Mapping[str, float]
    owners: frozenset[Entity]
    admits: Callable[[str, str], bool]
    use: Callable[[float], Use]
    decayed_use: Callable[[float], Use]
    elapsed: float

    @cached_property
    def waiting(self) -> dict[str, set[str]]:
        """The owners with waiting jobs, by group."""
        waiting: dict[str, set[str]] = {}
        for owner, group in sorted(self.owners):
            waiting.setdefault(group, set()).add(owner)
        return waiting


@dataclass(slots=True)
class Corrections:
    """The factors in force; an entity without one has the factor 1."""

    groups: dict[str, float] = field(default_factory=dict)
    owners: dict[Entity, float] = field(default_factory=dict)
    reports: list[InstanceReport] = field(default_factory=list)
    memory: Memory = field(default_factory=dict)
    """The numbers that instances carry from one correction to the next."""

    def add(self, report: InstanceReport) -> None:
        """Multiply the factors of one more instance into the factors in force."""
        for entity in report.entities:
            if report.group:
                owner = (entity.name, report.group)
                self.owners[owner] = self.owners.get(owner, 1.0) * entity.factor
            else:
                self.groups[entity.name] = self.groups.get(entity.name, 1.0) * entity.factor
        self.reports.append(report)


def correct(
    names: Sequence[str],
    instances: Mapping[str, Mapping[str, CorrectorInstance]],
    facts: Facts,
    memory: Memory,
) -> Corrections:
    """Run the correctors `names` in order. `instances` holds the instances of each corrector, by name."""
    result = Corrections()
    # Several instances look at the same spans.
    facts = replace(facts, use=cache(facts.use), decayed_use=cache(facts.decayed_use))
    remembered: dict[tuple[str, str], InstanceMemory] = {}
    for (corrector, name, part, entity), value in memory.items():
        remembered.setdefault((corrector, name), {})[part, entity] = value
    for corrector in names:
        groups, owners = dict(result.groups), dict(result.owners)
        for name, instance in instances[corrector].items():
            competition = _competition(facts, instance, groups, owners)
            entities, carried = instance.correct(competition, remembered.get((corrector, name), {}))
            result.add(InstanceReport(name, instance.group, entities, corrector))
            for (part, entity), value in carried.items():
                result.memory[corrector, name, part, entity] = value
    return result


def _competition(
    facts: Facts,
    instance: CorrectorInstance,
    groups: Mapping[str, float],
    owners: Mapping[Entity, float],
) -> Competition:
    """The entities of one instance. `groups` and `owners` are the factors of the correctors before it."""
    group, unit = instance.group, instance.unit
    if group:
        waiting = frozenset(facts.waiting.get(group, ()))
        return Competition(
            waiting=waiting,
            share_of=lambda owner: owners.get((owner, group), 1.0),
            is_known=lambda owner: owner in waiting or facts.admits(owner, group),
            use_over=lambda span: facts.use(span).of_owners(group, unit),
            decayed_use=lambda half_life: facts.decayed_use(half_life).of_owners(group, unit),
            elapsed=facts.elapsed,
        )
    return Competition(
        waiting=frozenset(facts.waiting) & facts.shares.keys(),
        share_of=lambda name: facts.shares[name] * groups.get(name, 1.0),
        is_known=facts.shares.__contains__,
        use_over=lambda span: facts.use(span).of_groups(unit),
        decayed_use=lambda half_life: facts.decayed_use(half_life).of_groups(unit),
        elapsed=facts.elapsed,
    )
