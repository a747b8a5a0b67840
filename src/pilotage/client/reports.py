"""Methods of the client for shares, use, costs and duties."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pilotage import wire
from pilotage.client.typed_requests import TypedRequests, verb

if TYPE_CHECKING:
    pass


class ReportMethods(TypedRequests):
    """Methods of the client that report on the use of resources, and on the server's duties."""

    shares = verb(lambda: wire.shares.SHARES)

    fairness = verb(lambda: wire.shares.FAIRNESS)

    accounting = verb(lambda: wire.shares.ACCOUNTING)

    duties = verb(lambda: wire.duties.LIST_DUTIES)

    costs = verb(lambda: wire.costs.COSTS)
