"""The audit log on a real server: each audited call leaves its row, without secrets; one's own work leaves none."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pilotage import wire
from pilotage.client import Client
from pilotage.core.errors import Conflict, Forbidden
from pilotage.server.http.auditing import AUDITED
from pilotage.wire.audit import AuditEntry
from pilotage.wire.jobs import Selection
from tests.deadlines import PATIENCE
from tests.instance import Instance, running

pytestmark = pytest.mark.slow

REQUEST: dict[str, Any] = {
    "name": "waits",
    "events": 1000,
    "program": {"executable": "/bin/true"},
    "splitting": {"algorithm": "EventBased", "events_per_job": 100},
}

NOT_TRIED = {
    "POST /v1/requests/{request}/force-complete": "needs work under way; its route is made as that of abort",
    "POST /v1/requests/{request}/close-out": "needs a completed request; its route is made as that of abort",
    "POST /v1/requests/{request}/announce": "needs a completed request; its route is made as that of abort",
    "POST /v1/tokens/exchange": "needs an issuer; tests/acceptance/test_sign_in.py",
    "POST /v1/shutdown": "a test of its own below",
    "POST /v1/storage/{storage}/unclaimed/remove": "needs an S3 service; tests/acceptance/test_s3.py",
}


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running(tmp_path_factory.mktemp("audit"), owners="any") as one:
        yield one


def rows_of(client: Client) -> list[AuditEntry]:
    """Oldest first."""
    return list(client.audit())[::-1]


def change_requests(admin: Client, alice: Client) -> None:
    first = alice.submit_request(REQUEST | {"team": "nobody"}).request.id
    admin.approve_request(first, "good")
    admin.set_request_priority(first, 7)
    admin.set_request_sites(first, wire.requests.RequestSites(trust_input=True))
    admin.pause_request(first)
    admin.resume_request(first)
    admin.abort_request(first)
    second = alice.submit_request(REQUEST).request.id
    admin.approve_request(second)
    admin.assign_request(second, wire.requests.RequestAssignment(team="nobody"))
    third = alice.submit_request(REQUEST).request.id
    admin.reject_request(third)
    admin.archive_request(third)


def change_data(admin: Client, alice: Client) -> None:
    alice.create_dataset("/alice/x")
    here = wire.datasets.ReplicaLocation("here", "/data")
    files = wire.datasets.FilesAdd("/alice/x", "one", [wire.datasets.DataSetFile("f", 1)], [here])
    admin.call(wire.datasets.ADD_FILES, files)
    admin.call(wire.datasets.CHANGE_REPLICAS, wire.datasets.ReplicasChange("/alice/x", forget=True))
    admin.close_dataset("/alice/x")
    admin.remove_dataset("/alice/x")


def change_jobs(admin: Client, alice: Client) -> None:
    sent = alice.submit({"executable": "true", "tags": ["nowhere"]}, values=[1, 2, 3])
    admin.limit_submission(sent.submission, 2)
    admin.kill(Selection(submission=sent.submission), dry_run=True)
    admin.kill([sent.first, sent.last], reason="too many")


def change_places(admin: Client, instance: Instance) -> None:
    admin.disable_ce("local", reason="repair")
    admin.enable_ce("local")
    admin.probe_ce("local")
    admin.set_site_state("here", "drain", time.time() + 3600, "power")
    admin.set_site_state("here", "normal")
    admin.kill_pilots([999])
    admin.ban_user("bob", "here", reason="mining")
    admin.lift_ban("bob", "here")
    admin.call(wire.agents.JOIN, wire.agents.JoinRequest("one", "team", "nonce"))
    for call in (wire.agents.DRAIN_AGENT, wire.agents.ENABLE_AGENT, wire.agents.REMOVE_AGENT):
        admin.call(call, wire.agents.AgentAction("one"))
    text = instance.policy + "\n# another\n"
    before = admin.call(wire.policy.SHOW_POLICY).version
    admin.call(wire.policy.CHANGE_POLICY, wire.policy.PolicyChange(text=text, reason="try"))
    admin.call(wire.policy.ROLL_BACK, wire.policy.PolicyRollback(version=before, reason="back"))


def test_each_audited_call_leaves_its_row_without_secrets(instance: Instance) -> None:
    admin, alice = instance.client(), instance.client("alice")
    made = admin.create_token("alice")
    admin.revoke_token(made.id)
    admin.call(wire.identity.ROTATE_KEY, wire.identity.RotateKeyRequest(3600.0))
    change_places(admin, instance)
    change_jobs(admin, alice)
    change_requests(admin, alice)
    change_data(admin, alice)
    rows = rows_of(admin)
    assert {row.call for row in rows} == AUDITED - NOT_TRIED.keys()
    assert NOT_TRIED.keys() <= AUDITED
    assert {row.address for row in rows} == {"127.0.0.1"}
    assert {row.user for row in rows} == {admin.whoami().user}
    told = {(row.call, row.target, row.before, row.after, row.reason) for row in rows}
    assert ("POST /v1/ces/disable", "CE local", "enabled", "disabled", "repair") in told
    applied = next(row for row in rows if row.reason == "try")
    assert (applied.call, applied.before, applied.after) == ("PUT /v1/policy", "version 2", "version 3")
    assert ("POST /v1/bans/lift", "bob at site here", "banned", "not banned", "") in told
    [killed] = [row for row in rows if row.call == "POST /v1/jobs/{verb}"]
    assert killed.target.startswith("kill 2 jobs of alice: ")
    assert (killed.after, killed.reason) == ("2 Killed", "too many")
    text = json.dumps([vars(row) for row in rows])
    assert made.token not in text
    assert made.token.rpartition(".")[2] not in text


def test_own_work_and_refused_changes_leave_no_row(instance: Instance) -> None:
    admin, alice = instance.client(), instance.client("alice")
    before = rows_of(admin)
    sent = alice.submit({"executable": "true", "tags": ["nowhere"]})
    alice.limit_submission(sent.submission, 3)
    alice.kill(sent.first)
    alice.create_dataset("/alice/own")
    alice.close_dataset("/alice/own")
    with pytest.raises(Forbidden):
        alice.disable_ce("local", reason="mine")
    with pytest.raises(Conflict):
        admin.call(
            wire.policy.CHANGE_POLICY,
            wire.policy.PolicyChange(text=instance.policy, reason="late", expect=99),
        )
    assert rows_of(admin) == before
    with pytest.raises(Forbidden):
        list(alice.audit())


def test_the_command_selects_and_exports(instance: Instance) -> None:
    instance.client().disable_ce("local", reason='=cmd("x")')
    instance.client().enable_ce("local")
    shown = instance.cli("audit", "--limit", "2")
    assert shown.returncode == 0, shown.stderr
    assert len(shown.stdout.splitlines()) == 3
    exported = instance.cli("audit", "--csv", "--since", "1h")
    rows = list(csv.DictReader(io.StringIO(exported.stdout)))
    assert rows[1]["reason"] == '\'=cmd("x")'
    assert (rows[1]["before"], rows[1]["after"]) == ("enabled", "disabled")
    assert json.loads(instance.cli("audit", "--json", "--user", "nobody").stdout) == {"entries": []}


def test_who_stopped_the_server_is_known_after_its_next_start(tmp_path: Path) -> None:
    with running(tmp_path) as instance:
        assert instance.cli("down").returncode == 0
        assert instance.process is not None
        assert instance.process.wait(PATIENCE) == 0
        instance.start()
        [row] = [row for row in rows_of(instance.client()) if row.call == "POST /v1/shutdown"]
        assert row.after == "stopped; pilots: keep"
