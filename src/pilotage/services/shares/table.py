"""The table of `pilotage share list`: shares, use, corrections and priorities."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pilotage.core.policy import Policy
from pilotage.core.queues.indexed_queue import IndexedQueue
from pilotage.core.shares.correction import Corrections
from pilotage.core.shares.priorities import Entitled
from pilotage.core.shares.reports import EntityReport, InstanceReport
from pilotage.services.pool.state import Pool
from pilotage.services.shares.corrections import SHOWN_ONLY
from pilotage.wire.shares import ShareFactor, ShareRow, ShareSlice, ShareTable

STRANDED = "not in the policy: its jobs stay, and do not start"


@dataclass(frozen=True, slots=True)
class Entitlements:
    """The input of the share table, all of one moment."""

    policy: Policy
    corrections: Corrections
    corrected_at: float | None
    entitled: list[Entitled]
    """The entities with waiting jobs: first the members of the policy, then all others."""


def entitlements(pool: Pool) -> Entitlements:
    """The present input of the share table. Writer's thread."""
    stranded = [entry for entry in pool.queues.index.entries.values() if entry.waiting and not entry.admitted]
    entitled = [*pool.queues.index.priorities.table(), *_without_share(stranded)]
    return Entitlements(pool.policy, pool.shares.corrections, pool.shares.corrected_at, entitled)


def share_table(entitlements: Entitlements, as_of: float | None) -> ShareTable:
    """Rows of every group of the policy, of owners with waiting jobs or use, and of waiting non-members."""
    table = _TableBuilder(entitlements.policy, entitlements.corrections, entitlements.entitled)
    return ShareTable(
        rule=entitlements.policy.matching.rule,
        correctors=list(entitlements.policy.correction.correctors),
        as_of=as_of,
        corrected_at=entitlements.corrected_at,
        rows=list(table.rows()),
    )


def _without_share(stranded: Iterable[IndexedQueue]) -> list[Entitled]:
    """Waiting jobs of groups and owners that have left the policy, by owner."""
    counts: dict[tuple[str, str], tuple[int, int]] = {}
    for entry in stranded:
        key = (entry.identity.owner, entry.identity.group)
        waiting, queues = counts.get(key, (0, 0))
        counts[key] = (waiting + entry.waiting, queues + 1)
    return [Entitled(*key, 0.0, 1.0, *entry) for key, entry in sorted(counts.items())]


@dataclass(frozen=True, slots=True)
class _Parts:
    """The reports of all instances on one entity, in the order in which they ran."""

    reports: Sequence[tuple[InstanceReport, EntityReport]] = ()

    @property
    def correction(self) -> float:
        return math.prod(entity.factor for _, entity in self.reports)

    def factors(self) -> list[ShareFactor]:
        return [
            ShareFactor(instance.corrector, instance.name, entity.factor)
            for instance, entity in self.reports
            if instance.corrector != SHOWN_ONLY
        ]

    def slices(self) -> list[ShareSlice]:
        return [
            ShareSlice(
                part.name,
                part.time_span,
                part.expected,
                part.used,
                part.running,
                part.correction,
                corrector=instance.corrector,
                instance=instance.name if instance.corrector != SHOWN_ONLY else "",
                measure=part.measure,
            )
            for instance, entity in self.reports
            for part in entity.slices
        ]


NO_PARTS = _Parts()


def _parts_of(corrections: Corrections, group: str) -> dict[str, _Parts]:
    """The reports between the owners of `group`, or between the groups if it is empty, by entity."""
    reports: dict[str, list[tuple[InstanceReport, EntityReport]]] = {}
    for instance in corrections.reports:
        if instance.group == group:
            for entity in instance.entities:
                reports.setdefault(entity.name, []).append((instance, entity))
    return {name: _Parts(parts) for name, parts in reports.items()}


@dataclass(frozen=True, slots=True)
class _TableBuilder:
    policy: Policy
    corrections: Corrections
    entitled: Sequence[Entitled]

    def rows(self) -> Iterable[ShareRow]:
        policy, parts = self.policy, _parts_of(self.corrections, "")
        shares, waiting = policy.shares(), dict[str, list[Entitled]]()
        for entity in self.entitled:
            waiting.setdefault(entity.group, []).append(entity)
        # Groups with waiting jobs or use; a group counts as soon as it has waiting jobs.
        counted = [name for name in shares if name in parts or name in waiting]
        whole = sum(shares[name] for name in counted)
        for group in sorted({*shares, *waiting}):
            entities = waiting.get(group, [])
            part = shares[group] / whole if group in counted and whole else None
            yield self._group(group, entities, part, parts.get(group, NO_PARTS))
            if not policy.sharing(group):
                yield from self._owners(group, entities)

    def _group(self, group: str, entitled: Sequence[Entitled], part: float | None, parts: _Parts) -> ShareRow:
        known = group in self.policy.groups
        return ShareRow(
            owner="",
            group=group,
            share=self.policy.shares().get(group, 0.0),
            entitled=part,
            correction=parts.correction,
            scaled=parts.correction,
            priority=sum(entity.share for entity in entitled),
            waiting=sum(entity.waiting for entity in entitled),
            queues=sum(entity.queues for entity in entitled),
            slices=parts.slices(),
            factors=parts.factors(),
            note="" if known else STRANDED,
        )

    def _owners(self, group: str, entitled: Sequence[Entitled]) -> Iterable[ShareRow]:
        policy, parts = self.policy, _parts_of(self.corrections, group)
        waiting = {entity.owner: entity for entity in entitled}
        admitted = {owner for owner in {*waiting, *parts} if policy.admits(owner, group)}
        dividing = sum(1 for owner in waiting if owner in admitted)
        for owner in sorted({*parts, *waiting}):
            now, theirs = waiting.get(owner), parts.get(owner, NO_PARTS)
            counts = owner in admitted
            yield ShareRow(
                owner=owner,
                group=group,
                share=policy.shares().get(group, 0.0) / dividing if now and counts else 0.0,
                entitled=1 / len(admitted) if counts else None,
                correction=theirs.correction,
                scaled=now.correction if now else 1.0,
                priority=now.share if now else 0.0,
                waiting=now.waiting if now else 0,
                queues=now.queues if now else 0,
                slices=theirs.slices(),
                factors=theirs.factors(),
                note="" if counts else STRANDED if now else "not in the policy any more",
            )
