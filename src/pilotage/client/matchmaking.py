"""Methods of the client for matchmaking."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pilotage import wire
from pilotage.client.typed_requests import TypedRequests

if TYPE_CHECKING:
    from pilotage.wire.matchmaking import CeAdReport, MatchReport, MatchRequest, RequesterAd


class MatchmakingMethods(TypedRequests):
    """Methods of the client that match jobs with computing elements and show ads."""

    def match_ces(self, query: MatchRequest) -> MatchReport:
        """Match a job, or a description, with the CEs: which fit, in which order, and which sub-expression said no.

        Nothing is submitted. Raises NotFound, or InvalidInput for a description that `submit` would refuse.
        """
        return self._post("/v1/matchmaking", query, wire.matchmaking.MatchReport)

    def ce_ad(self, name: str) -> CeAdReport:
        """Return the ad of a CE as it is matched. Raises NotFound for a CE that is not in the policy."""
        return self._get("/v1/ces/ad", wire.matchmaking.CeAdReport, {"name": name})

    def job_ad(self, job: int) -> RequesterAd:
        """Return the requester's ad of a job. Raises NotFound."""
        return self._get(f"/v1/jobs/{job}/ad", wire.matchmaking.RequesterAd)
