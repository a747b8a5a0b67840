"""Each API call that may change something is in the audit log, or has a reason why not."""

from __future__ import annotations

import pytest

from pilotage.server.http.auditing import AUDITED, NOT_AUDITED, check_audit_rule
from pilotage.wire.call import ADMINISTRATORS, PILOT, ApiCall, NoRequest, all_calls


def test_each_changing_call_is_audited_or_has_a_reason() -> None:
    for call in all_calls().values():
        check_audit_rule(call)
    named = AUDITED | NOT_AUDITED.keys()
    assert named <= all_calls().keys(), "calls that are gone"
    assert all(len(reason.split()) > 1 for reason in NOT_AUDITED.values())


def test_a_new_call_cannot_pass_by() -> None:
    new = ApiCall("POST", "/v1/medals", NoRequest, type(None), ADMINISTRATORS)
    with pytest.raises(LookupError, match="AUDITED"):
        check_audit_rule(new)
    check_audit_rule(ApiCall("GET", "/v1/medals", NoRequest, type(None), ADMINISTRATORS))
    check_audit_rule(ApiCall("POST", "/v1/pilot/medals", NoRequest, type(None), PILOT))
