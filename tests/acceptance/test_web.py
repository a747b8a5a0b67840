"""Pages of a real server: who is shown what, how a browser signs in and out, and that changes need our own forms."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import pytest

from tests.deadlines import PATIENCE
from tests.instance import Instance, until

pytestmark = pytest.mark.slow

OWN = {"Sec-Fetch-Site": "same-origin"}
NAME = "zq<b>name\u202e"


@dataclass
class World:
    """A pool in which alice has a job that failed and one that waits."""

    pool: Instance
    url: str
    failed: int
    waiting: int
    submission: int

    @property
    def pages(self) -> list[str]:
        return [
            *(
                f"/jobs/{job}{more}"
                for job in (self.failed, self.waiting)
                for more in ("", "/log", "/file?name=stdout")
            ),
            f"/jobs/{self.waiting}/change?attribute=tags&value=zq-tag",
            *(f"/jobs/all/kill?ids={self.waiting}", "/jobs/all/kill?owner=alice"),
            *(
                "/",
                "/jobs",
                f"/jobs?ids={self.failed}",
                "/jobs?owner=alice",
                f"/jobs?ids={self.failed}-{self.waiting}",
                f"/submissions/{self.submission}",
                f"/submissions/{self.submission}/report",
            ),
        ]

    @contextmanager
    def browser(self, user: str = "") -> Iterator[httpx.Client]:
        """A browser that has signed in by a token."""
        pool = self.pool
        token = pool.client().create_token(user).token if user else (pool.home / "token").read_text().strip()
        with httpx.Client(base_url=self.url, timeout=PATIENCE, headers=OWN, trust_env=False) as browser:
            assert browser.post("/signin", data={"token": token}).status_code == 303
            yield browser


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    pool = Instance(tmp_path_factory.mktemp("web"), owners="any", idle=1)
    pool.policy = pool.policy.replace("[groups.others]", '[groups.others]\nproperties = ["NORMAL_USER"]')
    try:
        pool.start()
        pool.apply()
        alice = pool.client("alice")
        failing = {"executable": "sh", "arguments": ["-c", "echo zq-out; echo '<i>zq-err' >&2; exit 3"]}
        failed = alice.submit({**failing, "job_name": NAME})
        pool.reaches(failed.first, "Failed")
        waits = alice.submit({"executable": "true", "tags": ["zq-tag"], "job_name": NAME})
        until(lambda: alice.why(waits.first).openings, what="the reason of a job")
        yield World(pool, alice.url, failed.first, waits.first, failed.submission)
        assert "Traceback" not in pool.log()
    finally:
        pool.close()


def test_pages_show_a_job_to_its_owner_and_an_administrator_only(world: World) -> None:
    for user, sees in (("alice", True), ("", True), ("bob", False)):
        with world.browser(user) as browser:
            shown = {page: browser.get(page) for page in world.pages}
            told = [
                page
                for page, answer in shown.items()
                if "zq-" in html.unescape(answer.text).replace(page, "") or "zq&lt;" in answer.text
            ]
            assert all(answer.status_code < 500 for answer in shown.values())
            assert bool(told) == sees, (user, told)
            for page, answer in shown.items():
                if "file?" in page:
                    assert answer.status_code == 404 or answer.headers["content-disposition"] == "attachment"
                    continue
                assert "script-src 'self'" in answer.headers["content-security-policy"]
                assert "<b>name" not in answer.text
                if not sees and re.match(r"/jobs/\d|/jobs/all|/submissions", page):
                    assert answer.status_code == 404, (page, answer.text)


def test_without_a_session_every_page_leads_to_the_sign_in(world: World) -> None:
    with httpx.Client(base_url=world.url, timeout=PATIENCE, trust_env=False) as nobody:
        token = world.pool.client().create_token("alice").token
        for headers in ({}, {"Authorization": f"Bearer {token}"}, {"Cookie": f"pilotage={token}"}):
            for page in world.pages:
                answer = nobody.get(page, headers=headers)
                assert (answer.status_code, "zq" in answer.text) == (303, False), page
                assert "signin" in answer.headers["location"]
        health = nobody.get("/health")
        assert (health.status_code, "takes work" in health.text) == (200, True)
        assert nobody.get("/v1/whoami").status_code == 401


def test_a_form_without_a_session_says_that_nothing_was_changed(world: World) -> None:
    with world.browser("alice") as browser:
        browser.cookies.clear()
        answer = browser.post("/jobs/all/hold", data={"ids": str(world.waiting), "reason": "try"})
        assert answer.status_code == 303
        shown = browser.get("/" + answer.headers["location"].removeprefix("../../"))
        assert "Nothing was changed" in shown.text
        assert "Nothing was changed" not in browser.get("/signin").text


def test_an_address_that_is_mistaken_is_told_in_words(world: World) -> None:
    page = {"Accept": "text/html,*/*"}
    with world.browser("alice") as browser:
        for address in ("/nothing", "/jobs/abc", "/queues/1e3"):
            shown = browser.get(address, headers=page)
            assert shown.status_code == 404
            assert "there is no such page" in shown.text
            assert "Sign out" in shown.text
        assert browser.get("/v1/nothing", headers=page).json()["code"] == "not-found"
        assert browser.get("/nothing").json()["code"] == "not-found"
        for address, words in (
            (f"/jobs/{10**20}", "job must be at most"),
            ("/submissions/0", "must be at least 1"),
            ("/datasets/one?name=", "name must have at least 1 character"),
        ):
            assert words in browser.get(address, headers=page).text, address
    with httpx.Client(base_url=world.url, timeout=PATIENCE, trust_env=False) as nobody:
        shown = nobody.get("/nothing", headers=page)
        assert (shown.status_code, "Sign out" in shown.text) == (404, False)


def test_a_session_is_no_token_of_the_api(world: World) -> None:
    with world.browser("alice") as browser:
        [cookie] = browser.cookies.jar
        assert browser.get("/v1/whoami").status_code == 401
        assert (
            httpx.get(
                f"{world.url}/v1/whoami",
                headers={"Authorization": f"Bearer {cookie.value}"},
                timeout=PATIENCE,
            ).status_code
            == 401
        )


def test_a_code_of_the_command_signs_in_once(world: World) -> None:
    address = world.pool.cli("web", "--no-open").stdout.strip()
    assert address.startswith(f"{world.url}/signin?code=")
    with httpx.Client(timeout=PATIENCE, trust_env=False) as browser:
        assert "Go on only if" in browser.get(address).text  # from another page: a person decides
        answer = browser.get(address, headers={"Sec-Fetch-Site": "none"})
        assert (answer.status_code, answer.headers["location"]) == (303, "./")
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert "Secure" not in cookie
        assert browser.get(f"{world.url}/jobs/{world.failed}").status_code == 200
        browser.cookies.clear()
        assert browser.get(address, headers={"Sec-Fetch-Site": "none"}).status_code == 401
        off = browser.get(
            world.url + world.pool.client().sign_in_code().address,
            headers={"Sec-Fetch-Site": "none", "Host": "pool.example"},
        )
        assert "Secure" in off.headers["set-cookie"]


def test_a_revoked_token_ends_its_session_and_sign_out_ends_it_too(world: World) -> None:
    client = world.pool.client()
    issued = client.create_token("alice")
    with httpx.Client(base_url=world.url, timeout=PATIENCE, headers=OWN, trust_env=False) as browser:
        browser.post("/signin", data={"token": issued.token})
        assert browser.get("/jobs").status_code == 200
        client.revoke_token(issued.id)
        assert browser.get("/jobs").status_code == 303
        assert browser.post("/signin", data={"token": issued.token}).status_code == 401
    with world.browser("alice") as browser:
        stolen = dict(browser.cookies)
        assert browser.post("/signout").status_code == 303
        assert httpx.get(f"{world.url}/jobs", cookies=stolen, timeout=PATIENCE).status_code == 303


def test_changes_need_our_own_form(world: World) -> None:
    action = f"/jobs/all/hold?ids={world.waiting}"
    with world.browser("alice") as browser:
        form_token = re.findall(r'name="form_token" value="([^"]+)"', browser.get(action).text)[0]
        form = {"ids": str(world.waiting), "reason": "try"}
        for site in ("cross-site", "same-site", "none", ""):
            browser.headers["Sec-Fetch-Site"] = site
            assert browser.post("/jobs/all/hold", data=form).status_code == 403, site
            assert browser.post("/jobs/all/hold", data={**form, "form_token": "x"}).status_code == 403
        assert world.pool.job(world.waiting).state == "Waiting"
        answer = browser.post("/jobs/all/hold", data={**form, "form_token": form_token})
        assert answer.status_code == 303
        assert world.pool.job(world.waiting).state == "Held"
        assert browser.get("/jobs/all/kill", headers=OWN).status_code == 400  # all jobs are never meant
        listed = browser.get("/jobs?name=zq*name%3F").text
        assert "2 jobs" in listed, "a pattern lists both"
        assert "jobs/all/" not in listed, "and changes none"
        assert browser.get("/jobs/all/kill?name=zq*name%3F", headers=OWN).status_code == 404
        assert "jobs/all/" in browser.get("/jobs", params={"name": NAME}).text
        slip = browser.get("/jobs?ids=7-x&owner=alice")
        assert slip.status_code == 400
        assert 'value="7-x"' in slip.text
        assert 'value="alice"' in slip.text
        browser.headers.update(OWN)
        assert browser.post("/jobs/all/release", data=form).status_code == 303
    assert world.pool.job(world.waiting).state == "Waiting"


def test_a_page_gives_jobs_another_priority(world: World) -> None:
    with world.browser("alice") as browser:
        assert 'name="priority"' in browser.get(f"/jobs/all/priority?ids={world.waiting}").text
        form = {"ids": str(world.waiting), "reason": "soon"}
        assert browser.post("/jobs/all/priority", data={**form, "priority": "11"}).status_code == 400
        assert browser.post("/jobs/all/priority", data=form).status_code == 400
        assert browser.post("/jobs/all/priority", data={**form, "priority": "7"}).status_code == 303
    assert world.pool.job(world.waiting).user_priority == 7


def test_a_change_that_why_proposes_starts_the_job(world: World) -> None:
    alice = world.pool.client("alice")
    waits = alice.submit({"executable": "echo", "arguments": ["%s"], "tags": ["zq-tag"]}, values=["a", "b"])
    with world.browser("alice") as browser:
        page = browser.get(f"/jobs/{waits.last}").text
        link = html.unescape(re.findall(r'href="\.\./(jobs/\d+/change[^"]*)"', page)[0])
        assert "submitted again with this change" in browser.get(f"/{link}").text
        form = {"attribute": "tags", "value": "zq-tag"}
        answer = browser.post(f"/jobs/{waits.last}/change", data=form)
        new = int(answer.headers["location"].rpartition("/")[2])
        world.pool.reaches(new, "Done")
        assert alice.job(new).parameters == {"": "b"}
        assert world.pool.job(waits.last).state in ("Killed", "Superseded")
        assert world.pool.job(waits.first).state == "Waiting"
        assert browser.post(f"/jobs/{waits.last}/change", data=form).status_code == 409
    with world.browser("bob") as browser:
        assert browser.post(f"/jobs/{waits.first}/change", data=form).status_code == 404


def test_an_open_page_is_told_what_changes(world: World) -> None:
    alice = world.pool.client("alice")
    job = alice.submit({"executable": "true", "tags": ["zq-tag"]}).first
    with world.browser("bob") as browser:
        assert browser.get(f"/changes?watch=job:{job}").status_code == 404
        assert browser.get("/changes?watch=owner:alice").status_code == 404
    with world.browser("alice") as browser, browser.stream("GET", f"/changes?watch=job:{job}") as stream:
        lines = (line for line in stream.iter_lines() if line.startswith("data:"))
        assert next(lines) == f"data: job:{job}"
        alice.hold(job)
        assert next(lines) == f"data: job:{job}"


def test_failed_sign_ins_lock_nobody_out(world: World) -> None:
    """Many people may share an address: behind a proxy, or on the machine of the server."""
    with httpx.Client(base_url=world.url, timeout=PATIENCE, headers=OWN, trust_env=False) as guesser:
        assert {guesser.post("/signin", data={"token": "guess"}).status_code for _ in range(12)} == {401}
    with world.browser("alice") as browser:
        assert "Sign in to Pilotage" not in browser.get("/jobs").text
