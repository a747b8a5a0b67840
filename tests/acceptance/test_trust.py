"""Who may see, run and change what."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest

from pilotage.agent.calls import AgentCalls
from pilotage.client import Client
from pilotage.core.errors import Forbidden, InvalidInput, NotAuthenticated, NotFound, Superseded
from pilotage.wire.agents import JoinRequest, SyncRequest
from pilotage.wire.jobs import Selection
from pilotage.wire.matchmaking import MatchRequest
from tests.deadlines import PATIENCE
from tests.instance import Instance, descendants, running, until

pytestmark = pytest.mark.slow

NOBODY = 65534


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """A server whose local CE runs anybody's jobs."""
    with running(tmp_path_factory.mktemp("shared"), owners="any", idle=1) as instance:
        yield instance


def test_a_plain_user_neither_sees_nor_changes_jobs_of_others(shared: Instance, tmp_path: Path) -> None:
    alice, bob = shared.client("alice"), shared.client("bob")
    job = alice.submit({"executable": "echo", "arguments": ["private"], "cpu_time": 1000}).first
    shared.reaches(job, "Done")
    for ask in (bob.job, bob.events, bob.outputs, bob.log):
        with pytest.raises(NotFound):
            ask(job)
    with pytest.raises(NotFound):
        bob.download(job, tmp_path)
    assert job not in [seen.id for seen in bob.jobs()]
    assert bob.counts(Selection(ids=[job])).total == 0
    for act in (bob.kill, bob.delete, bob.reschedule):
        assert act([job]).matched == 0
    assert alice.log(job).data == b"private\n"
    until(lambda: "alice" in [row.name for row in shared.client().costs(by="owner").rows], what="a booking")
    assert {row.name for row in bob.costs(by="owner").rows} <= {"bob"}


READ_ENVIRONMENTS = """\
import glob, sys
for path in glob.glob("/proc/[0-9]*/environ"):
    try:
        found = open(path, "rb").read()
    except OSError:
        continue
    if ("zq" + "secret").encode() in found:
        print("secret in", path, open(path[:-7] + "cmdline").read())
print("server", set(open(f"/proc/{sys.argv[1]}/environ", "rb").read()))
"""
"""Run by a job under the account of the server."""


def test_a_job_of_the_account_reads_no_key_in_an_environment(tmp_path: Path) -> None:
    """Keys that came by the environment are in that of no process: not of the server, and of none that it starts."""
    names = ("AWS_SECRET_ACCESS_KEY", "BEARER_TOKEN", "PGPASSWORD", "PILOTAGE_ANY")
    pool = Instance(tmp_path)
    pool.forked, pool.environment = False, dict.fromkeys(names, "zqsecret")
    try:
        pool.start()
        pool.apply()
        assert pool.process is not None
        words = ["-c", READ_ENVIRONMENTS, str(pool.process.pid)]
        job = pool.client().submit({"executable": "python3", "arguments": words}).first
        pool.reaches(job, "Done")
        assert pool.client().log(job).data.decode() == "server {0}\n"
    finally:
        pool.close()


def test_agents_need_a_right_and_belong_to_their_user(shared: Instance) -> None:
    bob, owner = shared.client("bob"), shared.client()
    tokens = {"bob": owner.create_token("bob").token, "": (shared.home / "token").read_text().strip()}
    calls = {user: AgentCalls(bob.url, token) for user, token in tokens.items()}
    who = JoinRequest("one", "home", "nonce")
    with pytest.raises(Forbidden, match="may not do this"):
        calls["bob"].join(who)
    agent = calls[""].join(who).agent
    with pytest.raises(Forbidden, match="may not do this"):
        calls["bob"].sync(agent, SyncRequest("nonce"))
    assert calls[""].sync(agent, SyncRequest("nonce", 1, 5, {"here": 9})).elements == []
    assert "one" in [row.name for row in owner.agents()]
    assert bob.agents() == []
    for act in (bob.drain_agent, bob.enable_agent, bob.remove_agent, bob.agent):
        with pytest.raises(NotFound):
            act("one")
    assert owner.drain_agent("one").state == "draining"
    assert calls[""].sync(agent, SyncRequest("nonce", 2)).drain
    assert owner.enable_agent("one").state == "live"
    assert owner.remove_agent("one").state == "ended"
    with pytest.raises(Superseded):
        calls[""].sync(agent, SyncRequest("nonce", 3))
    for call in calls.values():
        call.close()


def test_agents_serve_the_teams_of_their_group_only(tmp_path: Path) -> None:
    with running(tmp_path) as instance:
        instance.policy = instance.policy.replace(
            "[groups.others]\n", '[groups.others]\nproperties = ["NORMAL_USER", "AGENT"]\nteams = ["east"]\n'
        )
        instance.apply()
        bob = AgentCalls(instance.client("bob").url, instance.client().create_token("bob").token)
        agent = bob.join(JoinRequest("one", "east", "nonce")).agent
        with pytest.raises(Forbidden, match="no agent of team home"):
            bob.join(JoinRequest("two", "home", "nonce"))
        instance.policy = instance.policy.replace('["east"]', '["west"]')
        instance.apply()
        with pytest.raises(Forbidden, match="no agent of team east"):
            bob.sync(agent, SyncRequest("nonce"))
        bob.close()


def test_the_ad_and_the_match_of_a_job_are_its_owners(shared: Instance) -> None:
    bob, owner = shared.client("bob"), shared.client()
    job = owner.submit({"executable": "true", "requirements": "other.nothing > 1"}).first
    assert "nothing" in owner.job_ad(job).ad
    assert "nothing" in owner.match_ces(MatchRequest(job=job)).requirements
    for ask in (
        lambda: bob.job_ad(job),
        lambda: bob.match_ces(MatchRequest(job=job)),
        lambda: bob.match_ces(MatchRequest(description={"executable": "true"}, owner="alice")),
        lambda: bob.match_ces(MatchRequest(description={"executable": "true"}, owner="nobody")),
    ):
        with pytest.raises(NotFound):
            ask()
    assert bob.ce_ad("local").problem == ""
    with pytest.raises(InvalidInput, match="exactly one"):
        bob.match_ces(MatchRequest())
    owner.kill([job])


def test_values_of_the_environment_are_the_owners_alone(shared: Instance) -> None:
    sent = shared.client("alice").submit({"executable": "true", "environment": {"SECRET": "s3cret"}})
    assert shared.client("alice").job(sent.first).description["environment"] == {"SECRET": "s3cret"}
    seen = shared.client().job(sent.first)
    assert seen.description["environment"] == {"SECRET": "(hidden)"}
    assert "s3cret" not in repr(seen)


def test_a_plain_user_is_no_administrator(shared: Instance) -> None:
    bob = shared.client("bob")
    for ask in (
        bob.policy,
        lambda: bob.apply_policy("x = 1"),
        lambda: bob.create_token("alice"),
        lambda: bob.set_site_state("here", "down"),
        bob.shutdown,
        lambda: bob.ce_jobs("local"),
        lambda: bob.describe_batch_system("local"),
    ):
        with pytest.raises(Forbidden):
            ask()
    with pytest.raises(Forbidden):
        bob.submit({"executable": "true"}, group="home")


def test_a_file_is_not_reached_by_its_digest(shared: Instance, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("alice's data")
    alice, bob = shared.client("alice"), shared.client("bob")
    sent = alice.submit({"executable": "true", "input_sandbox": ["secret.txt"]}, folder=tmp_path)
    shared.reaches(sent.first, "Done")
    digest = hashlib.sha256(b"alice's data").hexdigest()
    token = shared.client().create_token("bob").token
    with httpx.Client(
        base_url=bob.url, headers={"Authorization": f"Bearer {token}"}, timeout=PATIENCE
    ) as raw:
        assert raw.head(f"/v1/uploads/{digest}").status_code == 404
        body = {
            "description": {"executable": "cat", "input_sandbox": ["secret.txt"]},
            "inputs": [{"name": "secret.txt", "digest": digest, "size": 12}],
        }
        assert raw.post("/v1/submissions", json=body).status_code == 400


def test_a_pilot_serves_one_owner_only(shared: Instance) -> None:
    script = {"executable": "sh", "arguments": ["-c", "sleep 0.02"]}
    jobs = {}
    for user in ("alice", "bob"):
        sent = shared.client(user).submit(script, values=list(range(40)))
        jobs[user] = Selection(submission=sent.submission)
    for user, selection in jobs.items():
        until(lambda user=user, s=selection: shared.client(user).counts(s).final == 40, what=f"{user}'s jobs")
    owner = shared.client()
    ran = {user: {job.pilot for job in owner.jobs(selection)} for user, selection in jobs.items()}
    assert not ran["alice"] & ran["bob"]


def test_the_local_ce_runs_only_its_owners_jobs_unless_the_policy_says_otherwise(tmp_path: Path) -> None:
    with running(tmp_path) as instance:
        alices = instance.client("alice").submit({"executable": "true"}).first
        own = instance.client().submit({"executable": "true"}).first
        instance.reaches(own, "Done")
        assert instance.job(alices).state == "Waiting"
        instance.policy = instance.policy.replace('owners = "home"', 'owners = "any"')
        assert any("any" in warning for warning in instance.client().apply_policy(instance.policy).warnings)
        instance.reaches(alices, "Done")


def test_bad_tokens_are_refused(shared: Instance) -> None:
    url = shared.client().url
    key = (shared.home / "secrets" / "signing.key").read_text().strip()
    own = (shared.home / "token").read_text().strip()
    claims, names = jwt.decode(own, key, ["HS256"]), jwt.get_unverified_header(own)

    def signed(claims: dict[str, Any], key: str, algorithm: str = "HS256") -> str:
        """A token that names the server's key, as its own tokens do."""
        return jwt.encode(claims, key, algorithm, headers={"kid": names["kid"]})

    with Client(url, signed(claims, key)) as client:
        assert client.whoami().user
    bad = {
        "expired": signed({**claims, "exp": 1_000_000_000}, key),
        "of another key": signed(claims, "k" * 48),
        "of another server": signed({**claims, "iss": "somebody"}, key),
        "unsigned": signed(claims, "", "none"),
        "no token at all": "x",
    }
    for what, token in bad.items():
        with Client(url, token) as client:
            try:
                client.whoami()
            except NotAuthenticated:
                continue
        pytest.fail(f"taken although {what}")
    gone = signed({**claims, "sub": "mallory", "own": False}, key)
    with Client(url, gone) as client, pytest.raises(Forbidden):
        client.whoami()


OPEN = {"/live", "/ready", "/metrics", "/v1/pilot.pyz", "/v1/tokens/home", "/v1/issuers"}
"""What anybody may ask: signs of life, counts without names, the program of the pilot, and where people sign in."""
PROOFS = {"/v1/tokens/exchange": {"token": "a.guessed.token"}}
"""Bodies of calls that prove in the body who asks."""


def test_every_route_asks_for_a_token(shared: Instance) -> None:
    with httpx.Client(base_url=shared.client().url, timeout=PATIENCE) as raw:
        paths = raw.get("/openapi.json").json()["paths"]
        assert len(paths) > 20
        asked = 0
        for path, verbs in paths.items():
            place = re.sub(
                r"\{(\w+)\}", lambda name: {"stream": "stdout", "verb": "kill"}.get(name[1], "1"), path
            )
            for verb in verbs:
                for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic x"}):
                    answer = raw.request(verb, place, headers=headers, json=PROOFS.get(path, {}))
                    if path in OPEN:
                        assert answer.status_code in (200, 204), path
                    else:
                        assert answer.status_code == 401, (verb, path, answer.status_code, answer.text)
                    asked += 1
        assert asked > 60
        for hot in ("/v1/pilot/exchange", "/v1/pilot/enrol"):
            body = {"incarnation": 1, "secret": "guess", "index": 0, "nonce": "n"}
            assert raw.post(hot, json=body).status_code == 401
            assert raw.post(hot, json=body, headers={"Authorization": "Bearer wrong"}).status_code == 401


def test_a_persons_token_is_no_pilots_and_the_other_way_round(shared: Instance) -> None:
    token = (shared.home / "token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=shared.client().url, headers=headers, timeout=PATIENCE) as raw:
        assert raw.post("/v1/pilot/exchange", json={"incarnation": 1}).status_code == 401
        assert raw.get(f"/v1/pilot/jobs/1/inputs/{'0' * 64}").status_code == 401
        assert raw.get("/v1/pilot/jobs/1/outputs/x").status_code == 401
        assert raw.put("/v1/pilot/jobs/1/1/outputs/x", content=b"x").status_code == 401


def test_private_files_are_private(shared: Instance) -> None:
    for name in ("token", "secrets/signing.key", "pilotage.db", "server.json"):
        assert (shared.home / name).stat().st_mode & 0o077 == 0, name
    assert shared.home.stat().st_mode & 0o077 == 0
    said = shared.log() + "".join(path.read_text() for path in (shared.home / "pilots").iterdir())
    assert (shared.home / "token").read_text().strip() not in said
    assert (shared.home / "secrets" / "signing.key").read_text().strip() not in said


def test_a_hostile_payload_finds_no_token(tmp_path: Path) -> None:
    """Under an account without privileges: root may read everything, whatever a program does."""
    if os.getuid() != 0:
        _hostile(tmp_path, None)
        return
    folder = Path(tempfile.mkdtemp(prefix="hostile-"))
    folder.chmod(0o711)
    try:
        _hostile(folder, NOBODY)
    finally:
        shutil.rmtree(folder)


def _hostile(folder: Path, user: int | None) -> None:
    with running(folder, user=user) as instance:
        client = instance.client()
        neighbour = client.submit({"executable": "sh", "arguments": ["-c", "pwd; sleep 600"]}).first
        instance.reaches(neighbour, "Running")
        other_payload = until(
            lambda: client.log(neighbour).data.decode().strip(), what="the neighbour's folder"
        )
        other_account = folder / "other-account"
        other_account.mkdir(mode=0o700)
        script = Path(__file__).with_name("hostile.py")
        sent = client.submit(
            {
                "executable": "python3",
                "arguments": ["hostile.py"],
                "input_sandbox": ["hostile.py"],
                "environment": {
                    "SERVER": client.url,
                    "SERVER_HOME": str(instance.home),
                    "OTHER_ACCOUNT": str(other_account),
                    "OTHER_PAYLOAD": other_payload,
                },
            },
            folder=script.parent,
        )
        done = instance.reaches(sent.first, "Done", "Failed")
        assert done.state == "Done", client.log(sent.first, stream="stderr").data
        report = json.loads(client.log(sent.first).data)
        client.kill([neighbour])
        _finds_no_token(report)
        if user is not None:
            assert report["others"][str(other_account)] == "PermissionError"
        _same_account_is_open(report, other_payload)


def _finds_no_token(report: dict[str, Any]) -> None:
    assert len(report["pilots"]) == 2, report
    for found in report["pilots"].values():
        assert found["environ"] == found["memory"] == found["files"] == "PermissionError", found
        parts = [part for word in found["arguments"] for part in re.split("[=,]", word)]
        assert not [part for part in parts if len(part) >= 40], "a secret in the arguments"
    ours = [value for key, value in report["environment"].items() if key.startswith("PILOTAGE_")]
    assert not [value for value in ours if len(value) > 20], "a secret in the environment"
    assert report["leftovers"] == []
    http = report["http"]
    assert http["/v1/pilot.pyz"] == 200, "the program is no secret"
    assert {http[path] for path in ("/v1/jobs", "/v1/policy", "guessed token")} == {401}


def _same_account_is_open(report: dict[str, Any], other_payload: str) -> None:
    """What isolation `none` does not stop, as docs/explanation/trust.md says: this is why a pilot serves one owner
    and the local CE the home's owner only. When an isolation that stops it is there, this must be turned round.
    """
    assert all(outcome.startswith("read") for outcome in report["server"].values()), report["server"]
    assert report["others"][other_payload].startswith("read"), report["others"]


def test_the_last_words_of_a_pilot_are_not_for_others(shared: Instance) -> None:
    """They are the end of its log, which has a line with job, owner and group for every payload."""
    alice, bob, owner = shared.client("alice"), shared.client("bob"), shared.client()
    job = alice.submit({"executable": "sleep", "arguments": ["600"], "job_name": "confidential"}).first
    shared.reaches(job, "Running")
    pilot = alice.job(job).job.pilot
    [batch_id] = [one.batch_id for one in owner.pilots() if one.id == pilot]

    def log() -> str | None:
        """The log of the pilot, once it has a line of the job: the pilot confirms the job first."""
        texts = (path.read_text() for path in shared.home.rglob("*.log"))
        return next((text for text in texts if f"job={job} " in text), None)

    assert "alice" in until(log, what="the line of the job")
    guardian = int(batch_id.partition(":")[0])
    for pid in [*descendants(guardian), guardian]:
        os.kill(pid, signal.SIGKILL)

    def reason(client: Client) -> str:
        return next(one.reason for one in client.pilots() if one.id == pilot)

    until(lambda: reason(owner), what="the end of the pilot")
    assert "alice" in reason(owner), "an administrator is told"
    assert "alice" in reason(alice), "and whom it served"
    assert reason(bob) == "its batch job has ended without a word"
    alice.kill([job])
