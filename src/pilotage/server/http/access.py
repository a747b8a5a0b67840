"""Who may call each route: one table, which the routes themselves obey.

A route without an entry cannot be built. The entry is checked before the body is read. Rights on single objects, such
as the jobs of one owner, are checked behind the route.
"""

from __future__ import annotations

from collections.abc import Collection, MutableMapping
from dataclasses import dataclass
from typing import Any

from pilotage.core.errors import Forbidden
from pilotage.core.policy.model import (
    ADMINISTRATOR,
    AGENT,
    JOB_ADMINISTRATOR,
    NORMAL_USER,
    PRODUCTION_MANAGEMENT,
)
from pilotage.server.context import identity_of
from pilotage.server.tokens import Caller


@dataclass(frozen=True, slots=True)
class Access:
    """The senders that a route accepts."""

    meaning: str
    """For the documents: "anybody", "NORMAL_USER" ..."""
    properties: frozenset[str] | None = None
    """One of these is needed, or ADMINISTRATOR. None: every person with a token."""
    token: bool = True
    """False: no token is needed."""

    def check(self, scope: MutableMapping[str, Any]) -> None:
        """Raise NotAuthenticated or Forbidden for a sender that is not accepted."""
        if not self.token:
            return
        identity = identity_of(scope)
        if self.properties is None or not isinstance(identity, Caller):
            return
        if not identity.properties & (self.properties | {ADMINISTRATOR}):
            raise Forbidden(
                f"{identity.user} ({identity.group}) may not do this",
                hint=f"the group needs the property {self.meaning} in the policy",
            )


def _with(*properties: str) -> Access:
    return Access(" or ".join(properties or (ADMINISTRATOR,)), frozenset(properties))


ANYBODY = Access("anybody, without a token", token=False)
PERSON = Access("every user")
PILOT = Access("the pilot that has the job")
USER = _with(NORMAL_USER)
JOBS = _with(NORMAL_USER, JOB_ADMINISTRATOR)
DATA = _with(NORMAL_USER, PRODUCTION_MANAGEMENT)
AGENTS = _with(AGENT)
ADMINISTRATORS = _with()

ACCESS: dict[str, Access] = {
    "GET /live": ANYBODY,
    "GET /ready": ANYBODY,
    "GET /metrics": ANYBODY,
    "GET /v1/pilot.pyz": ANYBODY,
    "POST /v1/tokens/home": ANYBODY,
    "GET /v1/whoami": PERSON,
    "POST /v1/shutdown": ADMINISTRATORS,
    "GET /v1/duties": PERSON,
    # Agents. Everybody lists and drains their own.
    "POST /v1/agents/join": AGENTS,
    "POST /v1/agents/{agent}/sync": AGENTS,
    "GET /v1/agents/{agent}/elements/{element}/files": AGENTS,
    "GET /v1/agents/{agent}/elements/{element}/jobs": AGENTS,
    "POST /v1/agents/{agent}/elements/{element}/jobs": AGENTS,
    "GET /v1/agents": PERSON,
    "POST /v1/agents/drain": PERSON,
    "POST /v1/agents/enable": PERSON,
    "POST /v1/agents/remove": PERSON,
    # Bans and sites: administrators of the site, too.
    "GET /v1/bans": PERSON,
    "POST /v1/bans": PERSON,
    "POST /v1/bans/lift": PERSON,
    "GET /v1/sites": PERSON,
    "POST /v1/sites/state": PERSON,
    "GET /v1/trace": PERSON,
    # CEs, pilots and the director.
    "POST /v1/ces/probe": ADMINISTRATORS,
    "GET /v1/ces/probe": ADMINISTRATORS,
    "GET /v1/batch-systems/{name}": ADMINISTRATORS,
    "POST /v1/ces/check": ADMINISTRATORS,
    "GET /v1/ces/jobs": ADMINISTRATORS,
    "GET /v1/ces": PERSON,
    "GET /v1/ces/report": PERSON,
    "GET /v1/ces/ad": PERSON,
    "POST /v1/ces/enable": ADMINISTRATORS,
    "POST /v1/ces/disable": ADMINISTRATORS,
    "GET /v1/director": ADMINISTRATORS,
    "GET /v1/pilots": PERSON,
    "GET /v1/pilots/{pilot}": PERSON,
    "GET /v1/pilots/{pilot}/log": ADMINISTRATORS,
    "POST /v1/pilots/kill": ADMINISTRATORS,
    # Data sets.
    "GET /v1/datasets": PERSON,
    "POST /v1/datasets": DATA,
    "GET /v1/datasets/report": PERSON,
    "GET /v1/datasets/blocks": PERSON,
    "GET /v1/datasets/files": PERSON,
    "POST /v1/datasets/files": DATA,
    "POST /v1/datasets/replicas": DATA,
    "POST /v1/datasets/close": DATA,
    "POST /v1/datasets/remove": DATA,
    # Jobs and submissions.
    "GET /v1/jobs": PERSON,
    "GET /v1/counts": PERSON,
    "GET /v1/jobs/{job}": PERSON,
    "GET /v1/jobs/{job}/ad": PERSON,
    "GET /v1/jobs/{job}/events": PERSON,
    "GET /v1/jobs/{job}/outputs": PERSON,
    "GET /v1/jobs/{job}/outputs/{name:path}": PERSON,
    "GET /v1/jobs/{job}/logs/{stream}": PERSON,
    "GET /v1/jobs/{job}/why": PERSON,
    "POST /v1/outputs": PERSON,
    "POST /v1/jobs/{verb}": JOBS,
    "POST /v1/matchmaking": PERSON,
    "POST /v1/submissions": USER,
    "POST /v1/submissions/check": USER,
    "POST /v1/submissions/open": USER,
    "POST /v1/submissions/open/check": USER,
    "GET /v1/submissions/{id_}": PERSON,
    "GET /v1/submissions/{id_}/chunks": PERSON,
    "GET /v1/submissions/{submission_id}/source": PERSON,
    "PUT /v1/submissions/{id_}/chunks/{number}": USER,
    "POST /v1/submissions/{id_}/close": USER,
    "POST /v1/uploads": DATA,
    "PUT /v1/uploads": DATA,
    "HEAD /v1/uploads/{digest}": PERSON,
    "PUT /v1/uploads/{digest}": DATA,
    # The pilots' files.
    "GET /v1/pilot/jobs/{job}/inputs/{digest}": PILOT,
    "PUT /v1/pilot/jobs/{job}/{epoch}/outputs/{name:path}": PILOT,
    "PUT /v1/pilot/jobs/{job}/{epoch}/streams/{stream}": PILOT,
    "POST /v1/pilot/jobs/{job}/tail": PILOT,
    # The policy.
    "GET /v1/policy": ADMINISTRATORS,
    "PUT /v1/policy": ADMINISTRATORS,
    "GET /v1/policy/versions": ADMINISTRATORS,
    "GET /v1/policy/versions/{version}": ADMINISTRATORS,
    "POST /v1/policy/rollback": ADMINISTRATORS,
    # Requests.
    "GET /v1/requests": PERSON,
    "POST /v1/requests": DATA,
    "POST /v1/requests/check": DATA,
    "GET /v1/requests/{id_}": PERSON,
    "GET /v1/requests/{id_}/history": PERSON,
    "GET /v1/requests/{id_}/elements": PERSON,
    "GET /v1/requests/{request}/why": PERSON,
    "GET /v1/elements/{element}/why": PERSON,
    "POST /v1/requests/{id_}/approve": _with(PRODUCTION_MANAGEMENT),
    "POST /v1/requests/{id_}/reject": _with(PRODUCTION_MANAGEMENT),
    "POST /v1/requests/{id_}/abort": DATA,
    "POST /v1/requests/{id_}/force-complete": DATA,
    "POST /v1/requests/{id_}/pause": DATA,
    "POST /v1/requests/{id_}/resume": DATA,
    "POST /v1/requests/{id_}/announce": _with(PRODUCTION_MANAGEMENT),
    "POST /v1/requests/{id_}/archive": DATA,
    "POST /v1/requests/{id_}/close-out": _with(PRODUCTION_MANAGEMENT),
    "POST /v1/requests/{id_}/assign": DATA,
    "POST /v1/requests/{id_}/priority": DATA,
    "POST /v1/requests/{id_}/sites": DATA,
    "POST /v1/requests/{id_}/clone": DATA,
    "POST /v1/requests/{id_}/resubmit": DATA,
    # Shares and queues.
    "GET /v1/accounting": PERSON,
    "GET /v1/costs": PERSON,
    "GET /v1/fairness": PERSON,
    "GET /v1/queues": PERSON,
    "GET /v1/queues/{queue}/why": PERSON,
    "GET /v1/shares": PERSON,
    # Tokens. Everybody may revoke and renew their own.
    "POST /v1/tokens": ADMINISTRATORS,
    "GET /v1/tokens": PERSON,
    "POST /v1/tokens/revoke": PERSON,
    "POST /v1/tokens/rotate-key": ADMINISTRATORS,
    "POST /v1/tokens/refresh": PERSON,
}


def access_of(methods: Collection[str], path: str) -> Access:
    """The entry of a route, which has one method. Raises LookupError if there is none."""
    [method] = methods
    key = f"{method} {path}"
    if key not in ACCESS:
        raise LookupError(f"{key} has no entry in ACCESS (server/http/access.py): say who may call it")
    return ACCESS[key]
