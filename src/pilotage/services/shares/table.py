"""What people are shown of shares: entitled, used, corrected, and what comes of it."""

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
    """What the share table is made of, all of one moment."""

    policy: Policy
    corrections: Corrections
    corrected_at: float | None
    entitled: list[Entitled]
    """The entities with waiting jobs that the policy knows, then those that it does not."""


def entitlements(pool: Pool) -> Entitlements:
    """As of now. In the writer's turn."""
    stranded = [entry for entry in pool.index.entries.values() if entry.waiting and not entry.admitted]
    entitled = [*pool.index.priorities.table(), *_without_share(stranded)]
    return Entitlements(pool.policy, pool.corrections, pool.corrected_at, entitled)


def share_table(found: Entitlements, as_of: float | None) -> ShareTable:
    """Every group of the policy, and every owner with waiting jobs or use; and whoever waits without being in it."""
    table = _Table(found.policy, found.corrections, found.entitled)
    return ShareTable(
        rule=found.policy.matching.rule,
        correctors=list(found.policy.correction.correctors),
        as_of=as_of,
        corrected_at=found.corrected_at,
        rows=list(table.rows()),
    )


def _without_share(stranded: Iterable[IndexedQueue]) -> list[Entitled]:
    """Jobs of groups or owners that are not in the policy any more, by owner."""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for entry in stranded:
        key = (entry.identity.owner, entry.identity.group)
        waiting, queues = found.get(key, (0, 0))
        found[key] = (waiting + entry.waiting, queues + 1)
    return [Entitled(*key, 0.0, 1.0, *counts) for key, counts in sorted(found.items())]


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
    return {name: _Parts(found) for name, found in reports.items()}


@dataclass(frozen=True, slots=True)
class _Table:
    policy: Policy
    found: Corrections
    entitled: Sequence[Entitled]

    def rows(self) -> Iterable[ShareRow]:
        policy, parts = self.policy, _parts_of(self.found, "")
        shares, waiting = policy.shares(), dict[str, list[Entitled]]()
        for one in self.entitled:
            waiting.setdefault(one.group, []).append(one)
        # Of those that wait or have used something; whoever begins to wait counts at once.
        counted = {name for name in shares if name in parts or name in waiting}
        whole = sum(shares[name] for name in counted)
        for group in sorted({*shares, *waiting}):
            theirs = waiting.get(group, [])
            part = shares[group] / whole if group in counted and whole else None
            yield self._group(group, theirs, part, parts.get(group, NO_PARTS))
            if not policy.sharing(group):
                yield from self._owners(group, theirs)

    def _group(self, group: str, entitled: Sequence[Entitled], part: float | None, parts: _Parts) -> ShareRow:
        known = group in self.policy.groups
        return ShareRow(
            owner="",
            group=group,
            share=self.policy.shares().get(group, 0.0),
            entitled=part,
            correction=parts.correction,
            scaled=parts.correction,
            priority=sum(one.share for one in entitled),
            waiting=sum(one.waiting for one in entitled),
            queues=sum(one.queues for one in entitled),
            slices=parts.slices(),
            factors=parts.factors(),
            note="" if known else STRANDED,
        )

    def _owners(self, group: str, entitled: Sequence[Entitled]) -> Iterable[ShareRow]:
        policy, parts = self.policy, _parts_of(self.found, group)
        waiting = {one.owner: one for one in entitled}
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
