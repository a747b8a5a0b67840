"""Methods of the client for shares, use, costs and duties."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from pilotage import wire
from pilotage.client import selections
from pilotage.client.typed_requests import TypedRequests, verb

if TYPE_CHECKING:
    from pilotage.wire.accounting import AccountedAttempt
    from pilotage.wire.attempts import JobAttempt
    from pilotage.wire.audit import AuditEntry
    from pilotage.wire.intervals import PastQueue
    from pilotage.wire.jobs import Selection


class ReportMethods(TypedRequests):
    """Methods of the client that report on the use of resources, and on the server's duties."""

    shares = verb(lambda: wire.shares.SHARES)

    fairness = verb(lambda: wire.shares.FAIRNESS)

    use_of_shares = verb(lambda: wire.shares.USE)

    waiting_jobs = verb(lambda: wire.pool.COUNT_WAITING)

    waiting_history = verb(lambda: wire.intervals.WAITING_HISTORY)

    share_history = verb(lambda: wire.intervals.SHARE_HISTORY)

    accounting = verb(lambda: wire.shares.ACCOUNTING)

    duties = verb(lambda: wire.duties.LIST_DUTIES)

    costs = verb(lambda: wire.costs.COSTS)

    def accounted_attempts(self, begin: float, end: float) -> Iterator[AccountedAttempt]:
        """Iterate over the attempts that ended in [begin, end), by their end, with the names that accounting uses."""
        asked = wire.accounting.AccountedQuery(begin, end)
        while True:
            page = self.call(wire.accounting.LIST_ACCOUNTED, asked)
            yield from page.attempts
            if page.next is None:
                return
            asked = replace(asked, **vars(page.next))

    def audit(self, *, since: float = 0.0, user: str = "") -> Iterator[AuditEntry]:
        """Iterate over the changes that people made since an instant, newest first. `user`: by this user only."""
        asked = wire.audit.AuditQuery(since=since, user=user)
        return self._pages(wire.audit.LIST_AUDIT, asked, lambda answer: answer.entries)

    def attempts(self, which: Selection) -> Iterator[JobAttempt]:
        """Iterate over the attempts of the selected jobs, by ascending id of the job."""
        asked = wire.attempts.AttemptsQuery(**selections.given_conditions(which))
        return self._pages(wire.attempts.LIST_ATTEMPTS, asked, lambda answer: answer.attempts)

    def past_queues(self, begin: float, end: float, *, reason: str = "") -> Iterator[PastQueue]:
        """Iterate over the queues that waited in [begin, end), by id. `reason`: only queues that waited for it."""
        asked = wire.intervals.PastQueuesQuery(begin=begin, end=end, reason=reason)
        return self._pages(wire.intervals.PAST_QUEUES, asked, lambda answer: answer.queues)
