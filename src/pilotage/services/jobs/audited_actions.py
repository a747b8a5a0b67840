"""Actions on jobs of other people, each with its rows of the audit log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pilotage.core.plurals import plural
from pilotage.services.audit import AuditedCall, record_change
from pilotage.services.jobs.actions import ActionOutcome, act
from pilotage.services.pool.state import Pool
from pilotage.store.tables import listing
from pilotage.store.writer.transaction import Transaction


def act_audited(
    pool: Pool,
    tx: Transaction,
    verb: str,
    ids: Sequence[int],
    *,
    called: AuditedCall,
    dry_run: bool,
    priority: int | None = None,
) -> ActionOutcome:
    """Apply `verb` to at most CHUNK jobs, with a row for each other owner of changed jobs. A dry run has none.

    `priority`: as for `act`.
    """
    before = {} if dry_run else listing.jobs_of_others(tx.connection, ids, called.user)
    outcome = act(
        pool,
        tx,
        verb,
        ids,
        actor=f"user:{called.user}",
        reason=called.reason,
        now=called.at,
        dry_run=dry_run,
        priority=priority,
    )
    changed = [job for job in outcome.done if job in before]
    if changed:
        words = verb if priority is None else f"{verb} {priority}:"
        after = listing.jobs_of_others(tx.connection, changed, called.user)
        for owner in sorted({before[job].owner for job in changed}):
            jobs = [job for job in changed if before[job].owner == owner]
            target = f"{words} {plural(len(jobs), 'job')} of {owner}: {ranges_text(jobs)}"
            states = [_states(known[job].state for job in jobs if job in known) for known in (before, after)]
            record_change(tx, replace(called, target=target), before=states[0], after=states[1])
    return outcome


def _states(states: Iterable[str]) -> str:
    return ", ".join(f"{count:,} {state}" for state, count in sorted(Counter(states).items()))


def ranges_text(numbers: Iterable[int]) -> str:
    """Such as "1-3, 7"."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
