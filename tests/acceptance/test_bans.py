"""`pilotage ban` and `pilotage trace` on a real server with real pilots, and who may use them."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from pilotage.core.errors import Forbidden, InvalidInput, NotFound
from tests.instance import output_of, running, until

pytestmark = pytest.mark.slow


def test_a_banned_users_jobs_end_and_do_not_come_back(tmp_path: Path) -> None:
    with running(tmp_path, owners="any", heartbeat=0.5) as instance:
        alice, bob = instance.client("alice"), instance.client("bob")
        bad = bob.submit({"executable": "sleep", "arguments": ["600"]}).first
        good = alice.submit({"executable": "sleep", "arguments": ["600"]}).first
        instance.reaches(bad, "Running")
        instance.reaches(good, "Running")
        batch_id = next(one.batch_id for one in instance.client().pilots() if one.owner == "bob")
        said = output_of(instance, "ban", "bob", "--site", "here", "--until", "1h", "--reason", "mining")
        assert said.startswith("bob is banned from site here until")
        killed = instance.reaches(bad, "Killed")
        assert killed.reason.startswith("bob was banned from site here by")
        assert killed.reason.endswith(": mining")
        assert instance.job(good).state == "Running"
        waiting = bob.submit({"executable": "true"}).first
        until(lambda: "banned" in bob.why(waiting).summary, what="the reason")
        assert instance.job(waiting).state == "Waiting"
        [mine] = bob.bans()
        assert (mine.user, mine.site, mine.reason) == ("bob", "here", "mining")
        assert alice.bans() == [], "only of others"
        instance.stop_server()
        instance.start()
        assert "mining" in output_of(instance, "ban", "list")
        assert instance.job(waiting).state == "Waiting"
        assert "no longer banned" in output_of(instance, "unban", "bob", "--site", "here")
        instance.reaches(waiting, "Done")
        traced = json.loads(output_of(instance, "trace", "--batch-id", batch_id, "--json"))
        # The pilot was bound to bob, so it may have run the later job too.
        assert traced["jobs"][0]["job"] == bad
        assert {job["owner"] for job in traced["jobs"]} == {"bob"}
        node = traced["pilots"][0]["node"]
        seen = instance.client().trace(node=node, at=time.time())
        assert good in [job.job for job in seen.jobs]
        assert "alice" in output_of(instance, "trace", "--node", node)


def test_who_may_ban_and_trace(tmp_path: Path) -> None:
    with running(tmp_path, owners="any") as instance:
        instance.policy = instance.policy.replace("[sites.here]", '[sites.here]\nadministrators = ["alice"]')
        instance.policy += "[sites.there]\n"
        instance.apply()
        alice, bob = instance.client("alice"), instance.client("bob")
        for ask in (
            lambda: bob.ban_user("alice", site="here"),
            lambda: bob.lift_ban("alice", site="here"),
            lambda: bob.trace(node="n1"),
            lambda: alice.ban_user("bob"),
            lambda: alice.ban_user("bob", site="there"),
        ):
            with pytest.raises(Forbidden):
                ask()
        alice.ban_user("bob", site="here", until=time.time() + 5)
        with pytest.raises(NotFound):
            instance.client().ban_user("bob", site="nowhere")
        with pytest.raises(InvalidInput):
            instance.client().ban_user("bob", until=1.0)
        with pytest.raises(NotFound):
            alice.trace(batch_id="no-such")
        with pytest.raises(InvalidInput):
            alice.trace()
        until(lambda: not alice.bans(), what="the end of the ban")
        [ended] = alice.bans(everything=True)
        assert ended.ended_by == "server"
