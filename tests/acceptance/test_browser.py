"""Pages in a real browser: with and without script, at all widths, dark and light, by keyboard, from our host alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.browser import SIZES, browser, signed_in
from tests.deadlines import PATIENCE
from tests.instance import Instance, started, until
from tests.sample_work import POLICY, add_pages

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

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
    assert [text for text in errors if "404" not in text] == []


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


def test_a_change_is_applied_by_keyboard_without_script(running: Browser, pool: Instance) -> None:
    client = pool.client()
    job = client.submit({"executable": "true", "tags": ["gpu"]}).first
    with signed_in(running, sign_in_address(pool), java_script_enabled=False) as profile:
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
