"""Every address that only reads, as ten senders: each is shown nothing of another's jobs, in the whole of an answer."""

from __future__ import annotations

import contextlib
import html
import itertools
import re
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import jwt
import pytest

from pilotage.core.intervals import pieces
from pilotage.server.web.page import page_routers
from pilotage.services.pilots.enrolment import secret_hash
from pilotage.wire.requests import RequestAssignment
from tests.deadlines import PATIENCE
from tests.instance import Instance, until

pytestmark = pytest.mark.slow

PEOPLE = """
[groups.physics]
properties = ["NORMAL_USER"]
[groups.shared]
properties = ["NORMAL_USER", "JOB_SHARING"]
[groups.operators]
properties = ["NORMAL_USER", "JOB_ADMINISTRATOR"]
[users.mallory]
groups = ["physics"]
[users.victim]
groups = ["physics", "shared"]
[users.partner]
groups = ["shared"]
[users.operator]
groups = ["operators"]
[users.gone]
groups = ["physics"]
"""
OPEN = ("/v1/pilot.pyz", "/v1/issuers")
"""What everybody is told."""
SECRET_WORDS = ("zq-name", "zq-group", "zq-argument", "zq-output", "zq-tag", "zq-request")
"""Of the victim's jobs and request; nobody else may be told one of them."""
OPEN_TO_ALL = {"/v1/shares", "/v1/shares/use", "/v1/shares/history", "/v1/fairness"}
"""Who is entitled to what and has used how much is the same for all who ask: docs/reference/api.md."""


@dataclass(frozen=True)
class Sender:
    token: str
    sees: bool = False
    """Whether the victim's job is for them to see."""
    known: bool = True
    """Whether the token is a person's that is good."""


class World:
    """A pool in which the victim has a job that ran, one that waits, and a request that no agent serves."""

    def __init__(self, pool: Instance) -> None:
        self.pool = pool
        owner = pool.client()
        self.url = owner.url
        issue = owner.create_token
        key = (pool.home / "secrets" / "signing.key").read_text().strip()
        own = (pool.home / "token").read_text().strip()
        claims = {**jwt.decode(own, key, ["HS256"]), "exp": 1_000_000_000}
        expired = jwt.encode(claims, key, "HS256", headers=jwt.get_unverified_header(own))
        gone = issue("gone").token
        pool.policy = pool.policy.replace('[users.gone]\ngroups = ["physics"]\n', "")
        pool.apply()
        self.senders = {
            "nobody": Sender("", known=False),
            "a guess": Sender("guess", known=False),
            "an expired token": Sender(expired, known=False),
            "a user who is gone": Sender(gone, known=False),
            "a pilot": Sender(self._pilot(), known=False),
            "a stranger": Sender(issue("alice").token),
            "one of the same group, which does not share": Sender(issue("mallory").token),
            "the victim": Sender(issue("victim", group="physics").token, sees=True),
            "an administrator of jobs": Sender(issue("operator").token, sees=True),
            "an administrator": Sender(own, sees=True),
        }
        self.partner = issue("partner").token
        self._submit()

    def _pilot(self) -> str:
        sql = (
            "INSERT INTO pilots (id, stamp, secret_hash, idx, state, site, ce, pilot_type, processors, memory,"
            " submitted) VALUES (999, 'spoken', ?, 0, 'Submitted', 'here', 'local', 'generic', 1, 0, 1e12)"
        )
        with (
            contextlib.closing(
                sqlite3.connect(self.pool.home / "pilotage.db", timeout=PATIENCE)
            ) as connection,
            connection,
        ):
            connection.execute(sql, (secret_hash("s"),))
        answer = httpx.post(
            f"{self.url}/v1/pilot/enrol", json={"secret": "s", "index": 0, "nonce": "n"}, timeout=PATIENCE
        )
        return str(answer.json()["token"])

    def _submit(self) -> None:
        self._record_wait()
        victim = self.pool.client("victim")
        common = {"job_name": "zq-name", "job_group": "zq-group", "output_sandbox": ["zq-output"]}
        ran = victim.submit(
            {"executable": "sh", "arguments": ["-c", "echo zq-argument | tee zq-output"], **common}
        )
        self.pool.reaches(ran.first, "Done")
        waits = victim.submit({"executable": "true", "tags": ["zq-tag"], **common}, values=[1, 2])
        self.job, self.waiting, self.submission = ran.first, waits.first, waits.submission
        self.queue = victim.job(waits.first).job.queue
        self.pilot = victim.job(ran.first).job.pilot
        program = {"executable": "sh", "arguments": ["-c", "echo zq-argument"]}
        splitting = {"algorithm": "EventBased", "events_per_job": 10}
        request = {"name": "zq-request", "team": "none", "events": 20, "program": program}
        self.request = victim.submit_request({**request, "splitting": splitting}).request.id
        self.pool.client().approve_request(self.request)
        self.pool.client().assign_request(self.request, RequestAssignment(team="none"))
        until(lambda: victim.request(self.request).request.state == "acquired", what="its elements")

    def _record_wait(self) -> None:
        """An hour in which jobs of the victim waited, in all lengths of intervals."""
        hour = int(time.time() - 3600) // 3600 * 3600
        added = pieces(hour, hour + 3600)
        waiting = [
            (*part[:2], owner, "zq-group", "slots", 3600.0) for part in added for owner in ("", "victim")
        ]
        with (
            contextlib.closing(
                sqlite3.connect(self.pool.home / "pilotage.db", timeout=PATIENCE)
            ) as connection,
            connection,
        ):
            intervals = [(*part, hour + 3600) for part in added]
            connection.executemany("INSERT OR IGNORE INTO recorded_intervals VALUES (?, ?, ?, ?)", intervals)
            connection.executemany(
                "INSERT OR IGNORE INTO waiting_intervals VALUES (?, ?, ?, ?, ?, ?)", waiting
            )

    def addresses(self) -> Iterator[str]:
        """All that the document has for reading, filled with what is the victim's."""
        paths = httpx.get(f"{self.url}/openapi.json", timeout=PATIENCE).json()["paths"]
        values: dict[str, list[Any]] = {
            "job": [self.job, self.waiting],
            "id_": [self.submission, self.request],
            "submission_id": [self.submission],
            "queue": [self.queue],
            "pilot": [self.pilot],
            "request": [self.request],
            "element": [1],
            "agent": [1],
            "version": [1, 2],
            "stream": ["stdout", "stderr"],
            "name": ["zq-output", "stdout"],
            "catalogue": ["rucio"],
            "storage": ["results"],
            "digest": ["0" * 64],
        }
        for path, methods in paths.items():
            if "get" not in methods or path in OPEN_TO_ALL:
                continue
            names = re.findall(r"\{(\w+)\}", path)
            for chosen in itertools.product(*(values[name] for name in names)):
                yield path.format(**dict(zip(names, chosen, strict=True)))
        yield "/v1/waiting/queues?reason=needs"
        yield "/v1/waiting/history?since=7200&points=2"
        yield f"/v1/jobs?submission={self.submission}"
        yield f"/v1/jobs?ids={self.job}"
        yield "/v1/jobs?owner=victim"
        yield "/v1/jobs?name=zq-name"
        yield "/v1/jobs?job_group=zq-group"
        yield "/v1/counts?owner=victim"
        yield "/v1/requests?owner=victim"
        yield "/v1/requests?name=zq-request"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    instance = Instance(tmp_path_factory.mktemp("identities"), owners="any", idle=1)
    instance.policy = PEOPLE + instance.policy
    try:
        instance.start()
        instance.apply()
        yield World(instance)
        assert "Traceback" not in instance.log()
    finally:
        instance.close()


def test_no_answer_tells_of_the_jobs_of_another(world: World) -> None:
    told: dict[str, set[str]] = {}
    asked = 0
    for who, sender in world.senders.items():
        headers = {"Authorization": f"Bearer {sender.token}"} if sender.token else {}
        with httpx.Client(base_url=world.url, headers=headers, timeout=PATIENCE) as raw:
            for address in world.addresses():
                answer = raw.get(address)
                asked += 1
                assert answer.status_code < 500, (who, address, answer.text)
                words = {word for word in SECRET_WORDS if word in answer.text.replace(address, "")}
                if sender.sees:
                    told.setdefault(who, set()).update(words)
                    continue
                named = re.search(r"\bvictim\b", answer.text.replace(address, ""))
                assert not words, (who, address, words, answer.text)
                assert not named, (who, address, answer.text)
                if answer.status_code == 200 and address.startswith("/v1/counts?owner=victim"):
                    assert answer.json()["total"] == 0, (who, answer.text)
                if not sender.known and address.startswith("/v1/") and address not in OPEN:
                    assert answer.status_code in (401, 403), (who, address, answer.status_code)
    assert asked > 300
    # The words do stand in the answers to whom the jobs are shown: else the test would look for nothing.
    for who, words in told.items():
        assert {"zq-name", "zq-group", "zq-argument", "zq-output", "zq-tag", "zq-request"} <= words, (
            who,
            words,
        )


ACTS: dict[str, dict[str, int]] = {"kill": {}, "reschedule": {}, "delete": {}, "priority": {"priority": 9}}


def test_nobody_else_acts_on_the_jobs_of_another(world: World) -> None:
    for who, sender in world.senders.items():
        if sender.sees:
            continue
        headers = {"Authorization": f"Bearer {sender.token}"} if sender.token else {}
        with httpx.Client(base_url=world.url, headers=headers, timeout=PATIENCE) as raw:
            for verb, more in ACTS.items():
                for selection in ({"ids": [world.job, world.waiting]}, {"submission": world.submission}, {}):
                    answer = raw.post(f"/v1/jobs/{verb}", json={"selection": selection, **more})
                    assert (answer.status_code, answer.json().get("matched")) in (
                        (200, 0),
                        (401, None),
                        (403, None),
                    ), who
            archive = raw.post("/v1/outputs", json={"selection": {"ids": [world.job]}})
            assert b"zq-" not in archive.content, who
            for method, path, body in (
                ("PUT", f"/v1/submissions/{world.submission}/chunks/0", [[1]]),
                ("POST", f"/v1/submissions/{world.submission}/close", {"count": 2}),
                ("PUT", "/v1/policy", {"text": ""}),
                ("POST", "/v1/policy/rollback", {"version": 1}),
                ("POST", "/v1/tokens", {"user": "victim"}),
                ("POST", "/v1/shutdown", {"pilots": "cancel"}),
                ("PUT", f"/v1/pilot/jobs/{world.job}/1/outputs/zq-output", None),
            ):
                answer = raw.request(method, path, json=body)
                assert answer.status_code in (401, 403, 404), (who, method, path, answer.text)
    states = [world.pool.job(job).state for job in (world.job, world.waiting)]
    assert states == ["Done", "Waiting"]


def test_a_group_that_shares_sees_the_jobs_of_that_group_only(world: World) -> None:
    """The victim's jobs are of another group, in which the partner is not."""
    with httpx.Client(
        base_url=world.url, headers={"Authorization": f"Bearer {world.partner}"}, timeout=PATIENCE
    ) as raw:
        assert raw.get("/v1/jobs").json()["jobs"] == []
        assert raw.get(f"/v1/jobs/{world.job}").status_code == 404


OWN_PAGE = {"Sec-Fetch-Site": "same-origin"}
QUERIES_OF_PAGES = {
    "/jobs/{job:int}/change": ["?attribute=tags&value=zq-tag"],
    "/jobs/{job:int}/file": ["?name=stdout", "?name=zq-output"],
    "/jobs/all/{verb}": ["?name=zq-name", "?state=Waiting"],
    "/jobs": ["", "?name=zq-name"],
    "/ces": ["", "?csv=cost"],
    "/ces/one": ["?name=local"],
    "/ces/{verb}": ["?name=local"],
    "/sites/{state}": ["?name=here"],
    "/waiting": ["", "?csv=waiting", "?period=day&csv=reasons"],
    "/waiting/interval": [f"?begin=1&end={10**10}", f"?begin=1&end={10**10}&reason=needs"],
    "/waiting/queues": ["", "?reason=needs"],
    "/shares/interval": [f"?begin=1&end={10**10}", f"?begin=1&end={10**10}&name=physics&csv=values"],
    "/requests": ["?all=yes", "?all=yes&csv=requests"],
    "/requests/{request:int}": ["", "?csv=funnel"],
    "/datasets/one": ["?name=zq-none"],
}
"""The queries of pages that need one; the others have none."""
SHOWN_TO_ALL = ("/shares", "/shares/group", "/shares/interval")
"""Owners and groups with their shares: as `OPEN_TO_ALL`."""
LEFT_OUT = ("/changes", "/health", "/signin", "/signin-at", "/signin-back")
ADMINISTRATORS_PAGES = "/administration"


def pages(world: World) -> Iterator[str]:
    """All pages, filled with what is the victim's."""
    values = {"job": world.job, "submission": world.submission, "queue": world.queue}
    values |= {"request": world.request, "version": 1}
    for address in (address for router in page_routers() for address in router.addresses):
        if address.method != "GET" or address.path in LEFT_OUT:
            continue
        verb = {"ces": "disable", "requests": "abort"}.get(address.path.split("/")[1], "kill")
        path = address.path.replace("{verb}", verb).replace("{state}", "drain")
        number = re.search(r"\{(\w+):int\}", path)
        given = [values[number[1]]] if number else [0]
        if number and number[1] == "job":
            given.append(world.waiting)
        for value in given:
            filled = re.sub(r"\{\w+:int\}", str(value), path)
            yield from (filled + query for query in QUERIES_OF_PAGES.get(address.path, [""]))


@contextlib.contextmanager
def browser_of(world: World, sender: Sender) -> Iterator[httpx.Client]:
    """A browser that is signed in as a sender. One without a good token sends it as a cookie and in the header."""
    with httpx.Client(base_url=world.url, headers=OWN_PAGE, timeout=PATIENCE, trust_env=False) as browser:
        if sender.known:
            assert browser.post("/signin", data={"token": sender.token}).status_code == 303
        elif sender.token:
            browser.headers["Authorization"] = f"Bearer {sender.token}"
            browser.headers["Cookie"] = f"pilotage={sender.token}"
        yield browser


def test_no_page_tells_of_the_jobs_of_another(world: World) -> None:
    told: dict[str, set[str]] = {}
    asked = 0
    for who, sender in world.senders.items():
        with browser_of(world, sender) as browser:
            for address in pages(world):
                answer = browser.get(address)
                asked += 1
                assert answer.status_code < 500, (who, address, answer.text)
                if not sender.known:
                    assert answer.status_code == 303, (who, address)
                    assert "signin" in answer.headers["location"]
                    continue
                if address.startswith(ADMINISTRATORS_PAGES) and who != "an administrator":
                    assert answer.status_code in (403, 404), (who, address, answer.status_code)
                shown = html.unescape(answer.text).replace(address.partition("?")[2], "")
                words = {word for word in SECRET_WORDS if word in shown}
                # A filter shows the texts that were given to it.
                words -= {word for word in SECRET_WORDS if word in address}
                if sender.sees:
                    told.setdefault(who, set()).update(words)
                    continue
                assert not words, (who, address, words)
                if not address.startswith(SHOWN_TO_ALL):
                    assert not re.search(r"\bvictim\b", shown), (who, address)
    assert asked > 300
    for who, words in told.items():
        assert set(SECRET_WORDS) <= words, (who, words)


REFUSED_FORMS = {
    "/ces/disable": {"name": "local", "reason": "try"},
    "/ces/enable": {"name": "local"},
    "/sites/drain": {"name": "here", "reason": "try"},
    "/sites/down": {"name": "here", "reason": "try"},
    "/administration/ban": {"user": "victim", "site": "*", "reason": "try"},
    "/administration/lift": {"user": "victim", "site": "*"},
    "/administration/revoke": {"id": "1"},
    "/administration/policy": {"act": "apply", "text": ""},
}


def test_no_form_changes_what_is_anothers(world: World) -> None:
    verbs = ("pause", "abort", "assign", "priority", "force-complete", "archive", "resubmit")
    forms = {f"/requests/{world.request}/{verb}": {"value": "1", "reason": "try"} for verb in verbs}
    forms |= {f"/jobs/{world.waiting}/change": {"attribute": "tags", "value": "zq-tag"}, **REFUSED_FORMS}
    for who, sender in world.senders.items():
        if sender.sees:
            continue
        with browser_of(world, sender) as browser:
            for path, form in forms.items():
                answer = browser.post(path, data=form)
                assert answer.status_code in ((403, 404) if sender.known else (303,)), (who, path)
                if not sender.known:
                    assert "signin" in answer.headers["location"]
    assert world.pool.job(world.waiting).state == "Waiting"
    assert world.pool.client().request(world.request).request.state == "acquired"
    [site] = [site for site in world.pool.client().sites() if site.name == "here"]
    assert site.state == "normal"
