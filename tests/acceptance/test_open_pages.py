"""Pages that stay open: they follow the jobs, outlive a restart of the server, and end with the session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from pilotage.wire.jobs import Selection
from tests.browser import browser
from tests.deadlines import PATIENCE
from tests.instance import Instance, started

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

pytestmark = [pytest.mark.slow, pytest.mark.timeout(4 * PATIENCE)]

JOBS = 1000
WATCH_COUNTS = """() => {
  window.counts = [];
  const look = () => {
    const found = document.querySelector("#live").textContent.match(/([\\d,]+) of 1,000 jobs ended/);
    const count = found && Number(found[1].replace(",", ""));
    if (found && count !== window.counts.at(-1)) window.counts.push(count);
  };
  new MutationObserver(look).observe(document.body, {childList: true, subtree: true});
  look();
}"""
"""Remembers each number of ended jobs that the page shows. The script is gone if the page is loaded again."""


@pytest.fixture(scope="module")
def running() -> Iterator[Browser]:
    with browser() as made:
        yield made


@pytest.fixture(scope="module")
def pool(running: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    instance = Instance(tmp_path_factory.mktemp("open-pages"), owners="any", idle=1)
    with started(instance):
        yield instance


@contextmanager
def profile_of(running: Browser, pool: Instance, token: str) -> Iterator[BrowserContext]:
    """A profile of the browser that has signed in with a token."""
    profile = running.new_context()
    profile.set_default_timeout(PATIENCE * 1000)
    try:
        page = profile.new_page()
        page.goto(f"{pool.client().url}/signin")
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("heading", name="My work").wait_for()
        page.close()
        yield profile
    finally:
        profile.close()


def held_job(pool: Instance) -> int:
    return pool.client("alice").submit({"executable": "true", "hold": True}).first


def open_job(profile: BrowserContext, pool: Instance, job: int) -> Page:
    """The page of a job, which follows it now."""
    page = profile.new_page()
    with page.expect_response(lambda answer: "/changes?" in answer.url):
        page.goto(f"{pool.client().url}/jobs/{job}")
    page.evaluate("window.same = true")
    return page


def test_an_open_page_counts_jobs_while_they_end(running: Browser, pool: Instance) -> None:
    alice, token = pool.client("alice"), pool.client().create_token("alice").token
    sent = alice.submit({"executable": "true", "hold": True}, values=list(range(JOBS)))
    with profile_of(running, pool, token) as profile:
        page = profile.new_page()
        page.goto(f"{alice.url}/submissions/{sent.submission}")
        page.evaluate(WATCH_COUNTS)
        alice.release(Selection(submission=sent.submission))
        page.get_by_text("1,000 of 1,000 jobs ended").wait_for(timeout=2 * PATIENCE * 1000)
        counts = page.evaluate("window.counts")
        assert counts[0] == 0
        assert counts[-1] == JOBS
        assert counts == sorted(counts)
        assert "1,000 done" in page.locator(".legend").inner_text()
        page.goto(f"{alice.url}/")
        assert "1,000 done" in page.locator("article", has_text=f"Submission {sent.submission}").inner_text()


def test_an_open_page_goes_on_when_a_killed_server_is_back(running: Browser, pool: Instance) -> None:
    token, job = pool.client().create_token("alice").token, held_job(pool)
    with profile_of(running, pool, token) as profile:
        page = open_job(profile, pool, job)
        pool.kill_server()
        page.get_by_role("status").get_by_text("does not answer").wait_for()
        pool.start()
        page.get_by_text("does not answer").wait_for(state="detached")
        pool.client("alice").release(job)
        page.locator(".title .state", has_text="Done").wait_for()
        assert page.evaluate("window.same"), "the page was loaded again"
        page.get_by_role("button", name="Sign out").click()  # the session is the old one, with its form token
        page.get_by_role("heading", name="Sign in to Pilotage").wait_for()


def test_a_session_that_was_ended_stays_so_after_a_restart(running: Browser, pool: Instance) -> None:
    token = pool.client().create_token("alice").token
    with profile_of(running, pool, token) as profile:
        stolen = profile.cookies()
        page = profile.new_page()
        page.goto(f"{pool.client().url}/")
        page.get_by_role("button", name="Sign out").click()
        page.get_by_role("heading", name="Sign in to Pilotage").wait_for()
        pool.kill_server()
        pool.start()
        profile.add_cookies(stolen)  # type: ignore[arg-type]
        page.goto(f"{pool.client().url}/jobs")
        assert page.get_by_role("heading", name="Sign in to Pilotage").count()


def test_an_open_page_leads_to_the_sign_in_when_its_token_is_revoked(
    running: Browser, pool: Instance
) -> None:
    issued, job = pool.client().create_token("alice"), held_job(pool)
    with profile_of(running, pool, issued.token) as profile:
        page = open_job(profile, pool, job)
        pool.client().revoke_token(issued.id)
        page.get_by_role("heading", name="Sign in to Pilotage").wait_for()
        assert f"next=jobs%2F{job}" in page.url
        other = pool.client().create_token("alice").token
        page.get_by_label("Token").fill(other)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("heading", name=f"Job {job}").wait_for()


def test_an_open_page_says_when_its_job_may_not_be_seen_any_more(running: Browser, pool: Instance) -> None:
    """Another user signs in in the same browser, while a page of the first one is open."""
    client, job = pool.client(), held_job(pool)
    with profile_of(running, pool, client.create_token("alice").token) as profile:
        page = open_job(profile, pool, job)
        other = profile.new_page()
        other.goto(f"{client.url}/signin")
        other.get_by_label("Token").fill(client.create_token("bob").token)
        other.get_by_role("button", name="Sign in").click()
        other.get_by_role("heading", name="My work").wait_for()
        page.get_by_text("Not possible").wait_for()
        assert f"Job {job}" not in page.locator("main").inner_text()
    assert client.job(job).job.state == "Held"
