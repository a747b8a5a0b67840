"""Pages in a real browser: with and without script, at all widths, dark and light, by keyboard, from our host alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from pilotage.wire.jobs import Selection
from tests.browser import SIZES, browser, signed_in
from tests.deadlines import PATIENCE
from tests.hostile_texts import HOSTILE, MARKUP, add_hostile_texts
from tests.instance import Instance, started, until
from tests.sample_work import POLICY, add_pages

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

REFUSED = "the server responded with a status of 4"
"""Chromium's words for pages that tell why something is not possible."""
pytestmark = [pytest.mark.slow, pytest.mark.timeout(4 * PATIENCE)]


@pytest.fixture(scope="module")
def running() -> Iterator[Browser]:
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def pool(running: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    instance = Instance(tmp_path_factory.mktemp("browser"), owners="any", idle=1)
    instance.policy += POLICY
    with started(instance):
        yield instance


@pytest.fixture(scope="module")
def waiting(pool: Instance) -> int:
    client = pool.client()
    job = client.submit({"executable": "true", "tags": ["gpu"], "job_name": "x" * 200}).first
    until(lambda: client.why(job).openings, what="the reason of a job")
    return job


@pytest.fixture(scope="module")
def more(pool: Instance) -> list[str]:
    """The pages of the pool, with sample work."""
    return [address.lstrip("/") for address in add_pages(pool).values()]


def addresses(job: int, more: list[str]) -> list[str]:
    return [
        *more,
        "",
        f"jobs/{job}",
        "jobs",
        f"jobs/all/kill?ids={job}",
        f"jobs/{job}/change?attribute=tags&value=gpu",
        "jobs?name=of-no-job",
        "jobs?state=of-no-job",
        "submissions/1",
        "jobs/999",
        "health",
        "signin",
    ]


def sign_in_address(pool: Instance) -> str:
    client = pool.client()
    return client.url + client.sign_in_code().address


@pytest.mark.parametrize("script", [True, False])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_all_widths_and_keep_the_policy(
    running: Browser, pool: Instance, waiting: int, more: list[str], scheme: str, script: bool
) -> None:
    url, foreign, errors = pool.client().url, list[str](), list[str]()
    with signed_in(
        running, sign_in_address(pool), java_script_enabled=script, color_scheme=scheme
    ) as profile:
        page = profile.new_page()
        page.on(
            "request",
            lambda request: foreign.append(request.url) if not request.url.startswith(url) else None,
        )
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        for width, height in SIZES.values():
            page.set_viewport_size({"width": width, "height": height})
            for address in addresses(waiting, more):
                page.goto(f"{url}/{address}")
                assert page.locator("main").inner_text().strip(), address
                if script:
                    over = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
                    assert over <= 0, (address, width, over)
    assert not foreign
    assert [text for text in errors if REFUSED not in text] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_have_no_serious_finding_of_axe(
    running: Browser, pool: Instance, waiting: int, more: list[str], scheme: str
) -> None:
    playwright = pytest.importorskip("axe_playwright_python.sync_playwright")
    axe, url = playwright.Axe(), pool.client().url
    with signed_in(running, sign_in_address(pool), color_scheme=scheme) as profile:
        page = profile.new_page()
        for width, height in (SIZES["desk"], SIZES["phone"]):
            page.set_viewport_size({"width": width, "height": height})
            for address in addresses(waiting, more):
                page.goto(f"{url}/{address}")
                found = [
                    (row["id"], row["nodes"][0]["html"][:300], row["nodes"][0]["failureSummary"])
                    for row in axe.run(page).response["violations"]
                    if row["impact"] in ("serious", "critical")
                ]
                assert not found, (address, width, found)


def test_a_site_is_drained_by_keyboard_without_script(
    running: Browser, pool: Instance, more: list[str]
) -> None:
    client = pool.client()
    with signed_in(running, sign_in_address(pool), java_script_enabled=False) as profile:
        page = profile.new_page()
        page.goto(f"{client.url}/ces")
        tab_to(profile, "Drain cellar")
        page.keyboard.press("Enter")
        page.wait_for_url("**/sites/drain?*")
        page.locator("#reason:focus").wait_for()
        page.keyboard.type("new disks")
        page.keyboard.press("Enter")
        page.wait_for_url("**/ces")
        page.get_by_text("new disks").wait_for()
    [site] = [site for site in client.sites() if site.name == "cellar"]
    assert (site.state, site.reason) == ("drain", "new disks")


def test_a_policy_is_tried_and_then_applied(running: Browser, pool: Instance, more: list[str]) -> None:
    client = pool.client()
    before = client.policy().version
    with signed_in(running, sign_in_address(pool), java_script_enabled=False) as profile:
        page = profile.new_page()
        page.goto(f"{client.url}/administration/policy")
        text = page.get_by_label("Text").input_value()
        page.get_by_label("Text").fill(f"{text}[sites.roof]\nnonsense = 1\n")
        page.get_by_role("button", name="Try it").click()
        assert "nonsense" in page.get_by_role("alert").inner_text()
        page.get_by_label("Text").fill(f"{text}[sites.roof]\n")
        page.get_by_role("button", name="Try it").click()
        assert "sites.roof" in page.locator("section.why").inner_text()
        assert client.policy().version == before
        page.get_by_role("button", name="Apply it").click()
        page.wait_for_url(f"**/administration/policy/{before + 1}")
    assert "[sites.roof]" in client.policy().text


@pytest.mark.parametrize("script", [True, False])
def test_a_change_is_applied_by_keyboard(running: Browser, pool: Instance, script: bool) -> None:
    client = pool.client()
    job = client.submit({"executable": "true", "tags": ["gpu"]}).first
    with signed_in(running, sign_in_address(pool), java_script_enabled=script) as profile:
        page = profile.new_page()
        page.goto(f"{client.url}/jobs/{job}")
        tab_to(profile, "Show the change: without the tag gpu")
        page.keyboard.press("Enter")
        page.wait_for_url("**/change?*")
        page.get_by_role("button", name="Apply the change").press("Enter")
        page.wait_for_url(
            lambda address: address.rpartition("/")[2].isdigit() and not address.endswith(f"/{job}")
        )
        new = int(page.url.rpartition("/")[2])
    assert pool.reaches(new, "Done").state == "Done"


def tab_to(profile: BrowserContext, label: str) -> None:
    """Press the tab key until the link with this label has the focus."""
    page = profile.pages[-1]
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.locator(f'a[aria-label="{label}"]:focus').count():
            return
    raise AssertionError(f"the tab key does not reach {label}")


def test_an_open_page_follows_its_job(running: Browser, pool: Instance) -> None:
    client = pool.client()
    job = client.submit({"executable": "true", "tags": ["gpu"]}).first
    with signed_in(running, sign_in_address(pool)) as profile:
        page = profile.new_page()
        page.goto(f"{client.url}/jobs/{job}")
        assert "Waiting" in page.locator(".title .state").inner_text()
        client.hold(job)
        page.locator(".title .state", has_text="Held").wait_for()
        client.kill(job)
        page.locator(".title .state", has_text="Killed").wait_for()


REVERSED = """() => {
  const found = [], marks = /[\\u202a-\\u202e\\u2066-\\u2069]/;
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode, word = node.data.match(/[A-Za-z]{2,}/);
    const own = [...node.parentElement.childNodes].filter((child) => child.nodeType === Node.TEXT_NODE);
    if (!word || node.parentElement.closest("bdi") || own.some((child) => marks.test(child.data))) continue;
    const places = [0, 1].map((offset) => {
      const letter = document.createRange();
      letter.setStart(node, word.index + offset);
      letter.setEnd(node, word.index + offset + 1);
      return letter.getBoundingClientRect();
    });
    if (places[0].top === places[1].top && places[0].left > places[1].left) found.push(node.data.trim());
  }
  return found;
}"""
"""The words of ours that are shown backwards. Sentences of the server that quote a user are left out."""
FORGED = {
    "X-Forwarded-For": "192.0.2.9",
    "X-Forwarded-Host": "evil.example.org",
    "X-Forwarded-Prefix": "/evil",
}
MANY = 10_000


def test_ten_thousand_jobs_are_killed_by_a_filter(running: Browser, pool: Instance) -> None:
    """An administrator counts, tries and kills the jobs of another user. Nobody is believed to be a proxy."""
    alice, client = pool.client("alice"), pool.client()
    sent = alice.submit({"executable": "true", "hold": True, "job_group": "many"}, values=list(range(MANY)))
    other = alice.submit({"executable": "true", "hold": True, "job_group": "few"}).first
    until(lambda: client.counts(Selection(job_group="many")).total == MANY, what="all jobs of the submission")
    with signed_in(running, sign_in_address(pool), extra_http_headers=FORGED) as profile:
        page = profile.new_page()
        page.goto(f"{client.url}/jobs")
        page.get_by_label("Job group").fill("many")
        page.get_by_role("button", name="Show").click()
        page.get_by_role("heading", name="10,000 jobs").wait_for()
        page.get_by_role("link", name="Kill …").click()
        page.get_by_text("10,000 of 10,000 jobs would be killed").wait_for()
        assert client.counts(Selection(job_group="many")).states == {"Held": MANY}
        page.get_by_label("Reason").fill("by mistake")
        page.get_by_role("button", name="Kill 10,000 jobs").click()
        page.get_by_role("heading", name="10,000 of 10,000 jobs killed").wait_for()
        page.get_by_role("link", name="Back to the jobs").click()
        page.locator("main").get_by_text("Killed 10,000").wait_for()
    assert client.counts(Selection(job_group="many")).states == {"Killed": MANY}
    assert client.job(other).job.state == "Held"
    assert "by mistake" in [event.detail for event in client.events(sent.last)][-1]
    rows = [row for row in client.audit() if row.reason == "by mistake"]
    assert {(row.user, row.address) for row in rows} == {(client.whoami().user, "127.0.0.1")}
    assert sum(int(row.after.removesuffix(" Killed")) for row in rows) == MANY


def test_texts_of_users_are_text_on_every_page(
    running: Browser, pool: Instance, waiting: int, more: list[str]
) -> None:
    url, foreign, errors = pool.client().url, list[str](), list[str]()
    hostile = add_hostile_texts(pool, pool.client().policy().text)
    token = pool.client().create_token(HOSTILE).token
    shown = set[str]()
    phone = {"width": SIZES["phone"][0], "height": SIZES["phone"][1]}
    with signed_in(running, sign_in_address(pool), viewport=phone) as profile:
        page = profile.new_page()
        page.on("request", lambda asked: foreign.append(asked.url) if not asked.url.startswith(url) else None)
        page.on("console", lambda told: errors.append(told.text) if told.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))

        def look(address: str) -> None:
            page.goto(f"{url}/{address}")
            assert page.evaluate("window.ran") is None, address
            assert page.evaluate("document.images.length") == 0, address
            over = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
            assert over <= 0, (address, over)
            assert page.evaluate(REVERSED) == [], address
            if MARKUP in page.locator("body").inner_text():
                shown.add(address.partition("?")[0])

        for address in [*addresses(waiting, more), *hostile]:
            look(address)
        page.goto(f"{url}/signin")
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("heading", name="My work").wait_for()
        for address in ("", "jobs", "shares?period=hour", "waiting"):
            look(address)
    assert {"", "jobs", "waiting", "ces", "requests", "administration", "administration/versions"} <= shown, (
        shown
    )
    assert foreign == []
    assert [text for text in errors if REFUSED not in text] == []
