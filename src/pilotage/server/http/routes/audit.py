"""The route of the audit log."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import Response

from pilotage.server.http.call_router import CallRouter
from pilotage.server.http.callers import TheCaller, TheContext
from pilotage.server.http.pages import page
from pilotage.store.tables import audit_log
from pilotage.wire.audit import LIST_AUDIT, AuditEntry, AuditQuery

router = CallRouter("administration")


@router.call(LIST_AUDIT)
def list_audit(asked: AuditQuery, context: TheContext, caller: TheCaller) -> Response:
    """The changes that people made, newest first: by whom, from where, before and after. Administrators only."""
    rows = audit_log.page(context.readers.connection(), asked.after, asked.limit, asked.since, asked.user)
    return page("entries", ((id_, AuditEntry(id_, **asdict(row))) for id_, row in rows), asked.limit)
