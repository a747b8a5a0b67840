"""The calls whose changes are in the audit log, and the others with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pilotage.server.context import Context
from pilotage.server.tokens import Caller
from pilotage.services.audit import AuditedCall
from pilotage.wire.call import ENROLLING, PILOT, ApiCall

AUDITED = frozenset(
    {
        "POST /v1/agents/drain",
        "POST /v1/agents/enable",
        "POST /v1/agents/remove",
        "POST /v1/bans",
        "POST /v1/bans/lift",
        "POST /v1/ces/disable",
        "POST /v1/ces/enable",
        "POST /v1/ces/probe",
        "POST /v1/datasets/close",
        "POST /v1/datasets/files",
        "POST /v1/datasets/remove",
        "POST /v1/datasets/replicas",
        "POST /v1/jobs/{verb}",
        "POST /v1/pilots/kill",
        "POST /v1/policy/rollback",
        "POST /v1/requests/{request}/abort",
        "POST /v1/requests/{request}/announce",
        "POST /v1/requests/{request}/approve",
        "POST /v1/requests/{request}/archive",
        "POST /v1/requests/{request}/assign",
        "POST /v1/requests/{request}/close-out",
        "POST /v1/requests/{request}/force-complete",
        "POST /v1/requests/{request}/pause",
        "POST /v1/requests/{request}/priority",
        "POST /v1/requests/{request}/reject",
        "POST /v1/requests/{request}/resume",
        "POST /v1/requests/{request}/sites",
        "POST /v1/shutdown",
        "POST /v1/sites/state",
        "POST /v1/storage/{storage}/unclaimed/remove",
        "POST /v1/submissions/{submission_id}/parallel",
        "POST /v1/tokens",
        "POST /v1/tokens/exchange",
        "POST /v1/tokens/revoke",
        "POST /v1/tokens/rotate-key",
        "PUT /v1/policy",
    }
)
"""Changes of jobs, submissions, requests and data sets have a row if these belong to another user.

An exchange has one if it adds a user to the policy.
"""

_OWN_WORK = "makes work of the caller, which the events of submissions and requests record"
_UPLOAD = "stores files for work of the caller"
_READS = "changes nothing"
_ASKS = "asks another service, and stores how it answers"
_AGENT = "is the protocol of a program, an agent"
_SIGN_IN = "gives the caller a token of their own rights"

NOT_AUDITED: Mapping[str, str] = {
    "POST /v1/agents/join": _AGENT,
    "POST /v1/agents/{agent}/elements/{element}/jobs": _AGENT,
    "POST /v1/agents/{agent}/sync": _AGENT,
    "POST /v1/catalogues/{catalogue}/test": _ASKS,
    "POST /v1/ces/check": _READS,
    "POST /v1/ces/record": "submits two batch jobs that sleep, and stores nothing",
    "POST /v1/datasets": _OWN_WORK,
    "POST /v1/datasets/follow": _OWN_WORK,
    "POST /v1/issuers/{issuer}/test": _ASKS,
    "POST /v1/matchmaking": _READS,
    "POST /v1/outputs": _READS,
    "POST /v1/requests": _OWN_WORK,
    "POST /v1/requests/check": _READS,
    "POST /v1/requests/{request}/clone": _OWN_WORK,
    "POST /v1/requests/{request}/resubmit": _OWN_WORK,
    "POST /v1/storage/{storage}/test": _ASKS,
    "POST /v1/submissions": _OWN_WORK,
    "POST /v1/submissions/check": _READS,
    "POST /v1/submissions/graph": _OWN_WORK,
    "POST /v1/submissions/open": _OWN_WORK,
    "POST /v1/submissions/open/check": _READS,
    "POST /v1/submissions/{submission_id}/close": _OWN_WORK,
    "POST /v1/tokens/home": "renews the token of the home's owner in their own file",
    "POST /v1/tokens/refresh": _SIGN_IN,
    "POST /v1/uploads": _READS,
    "POST /v1/web/codes": _SIGN_IN,
    "PUT /v1/submissions/{submission_id}/chunks/{number}": _OWN_WORK,
    "PUT /v1/uploads": _UPLOAD,
    "POST /v1/uploads/{digest}/address": _UPLOAD,
    "POST /v1/uploads/{digest}/object": _UPLOAD,
    "PUT /v1/uploads/{digest}": _UPLOAD,
}
"""Changing methods without a row in the audit log, each with its reason."""


def check_audit_rule(call: ApiCall[Any, Any]) -> None:
    """Raise `LookupError` for a call that may change something and is in neither table."""
    if call.method in ("GET", "HEAD") or call.access in (PILOT, ENROLLING):
        return
    if (call.key in AUDITED) == (call.key in NOT_AUDITED):
        raise LookupError(f"{call.key} must be in one of AUDITED and NOT_AUDITED (server/http/auditing.py)")


def utc_text(at: float) -> str:
    """An instant in a row of the audit log."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"


def audited_call(
    context: Context, caller: Caller, call: ApiCall[Any, Any], target: str, reason: str = ""
) -> AuditedCall:
    """The facts that a row of the audit log has besides the states."""
    assert call.key in AUDITED, call.key
    return AuditedCall(caller.user, caller.group, caller.address, call.key, target, reason, context.clock())
