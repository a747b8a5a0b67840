"""Methods of the client for matchmaking."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pilotage import wire
from pilotage.client.typed_requests import TypedRequests, verb, verb_on

if TYPE_CHECKING:
    from pilotage.wire.matchmaking import MatchReport, MatchRequest


class MatchmakingMethods(TypedRequests):
    """Methods of the client that match jobs with computing elements and show ads."""

    def match_ces(self, query: MatchRequest) -> MatchReport:
        """Match a job, or a description, with the CEs: which fit, in which order, and which sub-expression said no.

        Nothing is submitted. Raises NotFound, or InvalidInput for a description that `submit` would refuse.
        """
        return self.call(wire.matchmaking.MATCH_CES, query)

    ce_ad = verb(lambda: wire.matchmaking.SHOW_CE_AD)

    job_ad = verb_on(lambda: wire.matchmaking.SHOW_JOB_AD)
