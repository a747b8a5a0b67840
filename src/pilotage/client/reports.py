"""Methods of the client for shares, use, costs and duties."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pilotage import wire
from pilotage.client.transport import Query
from pilotage.client.typed_requests import TypedRequests

if TYPE_CHECKING:
    from pilotage.wire.costs import CostReport
    from pilotage.wire.duties import DutyList
    from pilotage.wire.shares import AccountRow, FairnessReport, ShareTable


class ReportMethods(TypedRequests):
    """Methods of the client that report on the use of resources, and on the server's duties."""

    def shares(self) -> ShareTable:
        """Return share, usage and correction factor of every group and owner."""
        return self._get("/v1/shares", wire.shares.ShareTable)

    def fairness(self, since: float = 604800.0) -> FairnessReport:
        """Compare usage over the last `since` seconds with the shares."""
        return self._get("/v1/fairness", wire.shares.FairnessReport, {"since": since})

    def accounting(self, begin: float | None = None, end: float | None = None) -> list[AccountRow]:
        """Return usage by month, site, group and owner, of attempts that ended in [begin, end) (seconds since 1970)."""
        asked: Query = {key: value for key, value in (("begin", begin), ("end", end)) if value is not None}
        return self._get("/v1/accounting", list[wire.shares.AccountRow], asked)

    def duties(self) -> DutyList:
        """Return the server's duties, and the rows that they cannot process. Administrators see rows and errors."""
        return self._get("/v1/duties", wire.duties.DutyList)

    def costs(self, *, ce: str = "", since: float | None = None, by: str = "ce") -> CostReport:
        """Return where the core-seconds of pilots went: payload, start-up, idle or lost.

        `ce`: only this CE. `since`: only the last seconds, in whole hours. `by`: "ce", "owner", "group" or "month".
        Administrators see everything, others the core-seconds of their own jobs and pilots.
        """
        span: Query = {} if since is None else {"since": since}
        return self._get("/v1/costs", wire.costs.CostReport, {"by": by, **({"ce": ce} if ce else {}), **span})
