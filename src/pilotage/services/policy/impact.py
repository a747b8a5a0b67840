"""What a policy leaves without work: waiting jobs that it does not admit, pilots where it has no CE."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from pilotage.core.policy import Policy
from pilotage.core.queues.indexed_queue import IndexedQueue

MOST = 1000
"""So many lines are told, those of most jobs; the count of all is told besides."""


@dataclass(frozen=True, slots=True)
class StrandedQueue:
    group: str
    owner: str
    """"" where the policy does not have the group at all."""
    waiting: int


@dataclass(frozen=True, slots=True)
class StrandedWork:
    jobs: int
    """Waiting jobs that would not start: they stay, flagged."""
    stranded: tuple[StrandedQueue, ...]
    pilots: tuple[tuple[str, str, int], ...]
    """(site, CE, live pilots)."""


def stranded_work(
    policy: Policy, entries: Iterable[IndexedQueue], pilots: Iterable[tuple[str, str, int]]
) -> StrandedWork:
    """What does not go on under `policy`, whether it is in force already or not.

    `pilots`: (site, CE, live pilots).
    """
    waiting: Counter[tuple[str, str]] = Counter()
    for entry in entries:
        owner, group = entry.identity.owner, entry.identity.group
        if entry.waiting and not policy.admits(owner, group):
            waiting[group, owner if group in policy.groups else ""] += entry.waiting
    most = tuple(StrandedQueue(group, owner, count) for (group, owner), count in waiting.most_common(MOST))
    gone = (
        (site, ce, count) for site, ce, count in pilots if site not in policy.sites or ce not in policy.ces
    )
    return StrandedWork(waiting.total(), most, tuple(gone))
