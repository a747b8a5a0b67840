"""The impact of a policy: waiting jobs that it does not admit, and live pilots of CEs that it does not have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from pilotage.core.policy import Policy
from pilotage.core.queues.indexed_queue import IndexedQueue

MAX_LINES = 1000
"""Groups and owners listed, in the order of their waiting jobs. The total includes the others."""


@dataclass(frozen=True, slots=True)
class StrandedQueue:
    group: str
    owner: str
    """"" if the policy does not have the group."""
    waiting: int


@dataclass(frozen=True, slots=True)
class StrandedWork:
    jobs: int
    """Waiting jobs that cannot start under the policy. They are kept and flagged."""
    stranded: tuple[StrandedQueue, ...]
    pilots: tuple[tuple[str, str, int], ...]
    """(site, CE, live pilots)."""


def stranded_work(
    policy: Policy, entries: Iterable[IndexedQueue], pilots: Iterable[tuple[str, str, int]]
) -> StrandedWork:
    """The waiting jobs and live pilots that `policy` strands. It need not be in force.

    `pilots`: (site, CE, live pilots).
    """
    waiting: Counter[tuple[str, str]] = Counter()
    for entry in entries:
        owner, group = entry.identity.owner, entry.identity.group
        if entry.waiting and not policy.admits(owner, group):
            waiting[group, owner if group in policy.groups else ""] += entry.waiting
    most = tuple(
        StrandedQueue(group, owner, count) for (group, owner), count in waiting.most_common(MAX_LINES)
    )
    gone = (
        (site, ce, count) for site, ce, count in pilots if site not in policy.sites or ce not in policy.ces
    )
    return StrandedWork(waiting.total(), most, tuple(gone))
