"""Share corrections: correctors that run in order, each with instances, on what was used lately.

See docs/reference/rules.md, section 5.

A corrector looks at the shares as corrected so far and gives a factor for each group, or for each owner of a group
that is not JOB_SHARING. Group factors are not renormalised; owner factors are scaled by `Priorities` so that the
owners add up to their group's corrected share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Protocol

from pilotage.core.shares.history import Memory, correct_by_history
from pilotage.core.shares.reports import InstanceReport
from pilotage.core.shares.settings import HistoryInstance
from pilotage.core.shares.use import Entity, Use


@dataclass(frozen=True)
class Facts:
    """What correctors look at. `owners` are (owner, group) pairs with waiting jobs; `elapsed` is seconds of up-time
    since the last correction; `use(span)` is the use of the last `span` seconds of up-time.
    """

    shares: Mapping[str, float]
    owners: frozenset[Entity]
    admits: Callable[[str, str], bool]
    use: Callable[[float], Use]
    elapsed: float

    @cached_property
    def waiting(self) -> dict[str, set[str]]:
        """The owners with waiting jobs, by group."""
        found: dict[str, set[str]] = {}
        for owner, group in self.owners:
            found.setdefault(group, set()).add(owner)
        return found


@dataclass(slots=True)
class Corrections:
    """The factors in force; 1 where none is named."""

    groups: dict[str, float] = field(default_factory=dict)
    owners: dict[Entity, float] = field(default_factory=dict)
    reports: list[InstanceReport] = field(default_factory=list)
    memory: Memory = field(default_factory=dict)
    """What integral correctors carry from one correction to the next."""

    def take(self, report: InstanceReport) -> None:
        for entity in report.entities:
            if report.group:
                owner = (entity.name, report.group)
                self.owners[owner] = self.owners.get(owner, 1.0) * entity.factor
            else:
                self.groups[entity.name] = self.groups.get(entity.name, 1.0) * entity.factor
        self.reports.append(report)


class Corrector(Protocol):
    def __call__(
        self, name: str, instance: HistoryInstance, facts: Facts, shares: Mapping[str, float], memory: Memory
    ) -> tuple[InstanceReport, Memory]: ...


def _by_history(
    name: str, instance: HistoryInstance, facts: Facts, shares: Mapping[str, float], memory: Memory
) -> tuple[InstanceReport, Memory]:
    if instance.group:
        waiting = facts.waiting.get(instance.group, set())
        return correct_by_history(
            name,
            instance,
            shares=None,
            waiting=waiting,
            known=lambda owner: owner in waiting or facts.admits(owner, instance.group),
            use=lambda span: facts.use(span).of_owners(instance.group, instance.unit),
            memory=memory,
            elapsed=facts.elapsed,
        )
    return correct_by_history(
        name,
        instance,
        shares=shares,
        waiting=facts.waiting,
        known=lambda group: group in shares,
        use=lambda span: facts.use(span).of_groups(instance.unit),
        memory=memory,
        elapsed=facts.elapsed,
    )


CORRECTORS: dict[str, Corrector] = {"WMSHistory": _by_history}
"""By the name that the policy gives."""


def correct(
    names: Sequence[str],
    instances: Mapping[str, Mapping[str, HistoryInstance]],
    facts: Facts,
    memory: Memory,
) -> Corrections:
    """Run the correctors `names` in order. `instances` are those of each corrector, by name."""
    result = Corrections()
    # Instances look at the same spans.
    facts = replace(facts, use=cache(facts.use))
    for corrector in names:
        shares = {group: share * result.groups.get(group, 1.0) for group, share in facts.shares.items()}
        for name, instance in instances[corrector].items():
            report, remembered = CORRECTORS[corrector](name, instance, facts, shares, memory)
            result.take(report)
            result.memory.update(remembered)
    return result
