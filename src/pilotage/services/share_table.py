"""What people are shown of shares: entitled, used, corrected, and what comes of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pilotage.core.policy import Policy
from pilotage.core.shares.correction import Corrections
from pilotage.core.shares.priorities import Entitled
from pilotage.core.shares.reports import EntityReport, InstanceReport
from pilotage.services.pool import Pool
from pilotage.wire.shares import ShareRow, ShareSlice, ShareTable


def share_table(pool: Pool, entitled: Sequence[Entitled], as_of: float | None) -> ShareTable:
    """Every group of the policy, and every owner with waiting jobs or use. `entitled` are those with waiting jobs."""
    policy, found = pool.policy, pool.corrections
    rows: list[ShareRow] = []
    groups = _reports(found, "")
    for group in sorted({*policy.groups, *groups, *(one.group for one in entitled)}):
        theirs = [one for one in entitled if one.group == group]
        rows.append(_group_row(policy, group, theirs, groups.get(group)))
        if not policy.sharing(group):
            rows += _owner_rows(policy, found, group, theirs)
    return ShareTable(
        rule=policy.matching.rule,
        correctors=list(policy.correction.correctors),
        as_of=as_of,
        corrected_at=pool.corrected_at,
        rows=rows,
    )


def _reports(found: Corrections, group: str) -> dict[str, EntityReport]:
    instance: InstanceReport | None = next((one for one in found.reports if one.group == group), None)
    return {} if instance is None else {entity.name: entity for entity in instance.entities}


def _group_row(
    policy: Policy, group: str, entitled: Sequence[Entitled], report: EntityReport | None
) -> ShareRow:
    share = policy.shares().get(group)
    return ShareRow(
        owner="",
        group=group,
        share=share or 0.0,
        entitled=_entitled(report),
        correction=report.factor if report else 1.0,
        scaled=report.factor if report else 1.0,
        priority=sum(one.share for one in entitled),
        waiting=sum(one.waiting for one in entitled),
        queues=sum(one.queues for one in entitled),
        slices=_slices(report),
        note="" if share is not None else "not in the policy",
    )


def _owner_rows(
    policy: Policy, found: Corrections, group: str, entitled: Sequence[Entitled]
) -> Iterable[ShareRow]:
    reports = _reports(found, group)
    waiting = {one.owner: one for one in entitled}
    share = policy.shares().get(group, 0.0)
    for owner in sorted({*reports, *waiting}):
        now, report = waiting.get(owner), reports.get(owner)
        yield ShareRow(
            owner=owner,
            group=group,
            share=share / len(waiting) if now else 0.0,
            entitled=_entitled(report),
            correction=report.factor if report else 1.0,
            scaled=now.correction if now else 1.0,
            priority=now.share if now else 0.0,
            waiting=now.waiting if now else 0,
            queues=now.queues if now else 0,
            slices=_slices(report),
            note="" if policy.admits(owner, group) else "not in the policy",
        )


def _entitled(report: EntityReport | None) -> float | None:
    """The expected part in the longest slice in which the entity counts."""
    counted = [one for one in report.slices if one.expected is not None] if report else []
    return max(counted, key=lambda one: one.time_span).expected if counted else None


def _slices(report: EntityReport | None) -> list[ShareSlice]:
    return [
        ShareSlice(one.name, one.time_span, one.expected, one.used, one.running, one.correction)
        for one in (report.slices if report else ())
    ]
