"""Pages behind a reverse proxy with a prefix: sign-in, links, forms, files, the stream, and a server that restarts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import httpx
import pytest

from pilotage.client import Client
from tests.browser import browser
from tests.deadlines import PATIENCE
from tests.instance import Instance, started
from tests.oidc import WEB, WEB_POLICY, WEB_SECRET, OidcProvider, provider
from tests.prefix_proxy import PrefixProxy, prefix_proxy

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

pytestmark = [pytest.mark.slow, pytest.mark.timeout(4 * PATIENCE)]


@pytest.fixture(scope="module")
def running() -> Iterator[Browser]:
    with browser() as made:
        yield made


@pytest.fixture(scope="module")
def pool(running: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    instance = Instance(tmp_path_factory.mktemp("proxied"), owners="any", idle=1)
    instance.environment["PILOTAGE_PROXIES"] = "127.0.0.1"
    with started(instance):
        yield instance


@pytest.fixture(scope="module")
def proxy(pool: Instance) -> Iterator[PrefixProxy]:
    with prefix_proxy(pool.client().url, "/some/prefix") as made:
        yield made


@contextmanager
def visitor(running: Browser, proxy: PrefixProxy, *, script: bool = True) -> Iterator[Page]:
    """A page of a new profile; it must not ask for anything outside of the prefix."""
    profile: BrowserContext = running.new_context(java_script_enabled=script)
    profile.set_default_timeout(PATIENCE * 1000)
    profile.set_default_navigation_timeout(PATIENCE * 1000)
    try:
        yield profile.new_page()
        assert proxy.strays == []
    finally:
        profile.close()


def sign_in(page: Page, pool: Instance, proxy: PrefixProxy, user: str) -> None:
    page.goto(f"{proxy.url}/jobs")
    page.wait_for_url("**/some/prefix/signin?next=jobs")
    page.get_by_label("Token").fill(pool.client().create_token(user).token)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/some/prefix/jobs")


@pytest.mark.parametrize("script", [True, False])
def test_links_forms_and_files_stay_below_the_prefix(
    running: Browser, pool: Instance, proxy: PrefixProxy, script: bool
) -> None:
    job = pool.client("alice").submit({"executable": "true", "hold": True}).first
    with visitor(running, proxy, script=script) as page:
        failed = list[str]()
        page.on("response", lambda answer: failed.append(answer.url) if answer.status >= 400 else None)
        sign_in(page, pool, proxy, "alice")
        [cookie] = page.context.cookies()
        assert (cookie["path"], cookie["httpOnly"]) == ("/some/prefix", True)
        for link in page.locator("nav a").all():
            assert page.evaluate("link => link.href", link.element_handle()).startswith(f"{proxy.url}/")
        page.get_by_role("link", name="My work").click()
        page.wait_for_url(f"{proxy.url}/")
        page.goto(
            f"{proxy.url}/jobs/{job}/?stream=stderr"
        )  # the server leads to the address without the slash
        assert page.url == f"{proxy.url}/jobs/{job}?stream=stderr"
        page.get_by_role("link", name="Kill …").click()
        page.get_by_label("Reason").fill("by the proxy")
        page.get_by_role("button", name=f"Kill job {job}").click()
        page.wait_for_url(f"{proxy.url}/jobs/{job}")
        assert "Killed" in page.locator(".title .state").inner_text()
        page.get_by_role("button", name="Sign out").click()
        page.wait_for_url(f"{proxy.url}/signin")
        assert page.context.cookies() == []
        assert failed == []


def test_an_open_page_behind_a_proxy_outlives_a_restart(
    running: Browser, pool: Instance, proxy: PrefixProxy
) -> None:
    job = pool.client("alice").submit({"executable": "true", "hold": True}).first
    with visitor(running, proxy) as page:
        sign_in(page, pool, proxy, "alice")
        with page.expect_response(lambda answer: "/changes?" in answer.url):
            page.goto(f"{proxy.url}/jobs/{job}")
        page.evaluate("window.same = true")
        pool.kill_server()
        page.get_by_text("does not answer").wait_for()  # the proxy answers 502
        pool.start()
        page.get_by_text("does not answer").wait_for(state="detached")
        pool.client("alice").release(job)
        page.locator(".title .state", has_text="Done").wait_for()
        assert page.evaluate("window.same")


def test_a_person_signs_in_at_an_issuer_behind_the_prefix(
    running: Browser, pool: Instance, proxy: PrefixProxy, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("oidc")
    (folder / "secret").write_text(WEB_SECRET)
    with provider(folder) as oidc, visitor(running, proxy) as page:
        oidc.stop()
        oidc.redirects = [f"{proxy.url}/signin-back"]
        oidc.start()
        table = WEB_POLICY.format(url=oidc.url, client=WEB, secret=folder / "secret", address=proxy.url)
        pool.client().apply_policy(pool.policy + table)
        page.goto(f"{proxy.url}/jobs")
        page.get_by_role("link", name="Sign in with iam").click()
        approve_there(page, oidc)
        page.wait_for_url(f"{proxy.url}/jobs")
        assert "alice" in page.locator(".who").inner_text()
        oidc.stop()  # the session goes on
        page.reload()
        assert "alice" in page.locator(".who").inner_text()


def approve_there(page: Page, oidc: OidcProvider) -> None:
    """Fill in the forms of the issuer."""
    page.wait_for_url(f"{oidc.url}/**")
    page.locator("input[name=login]").fill("alice")
    page.locator("input[name=password]").fill("any")
    page.locator("button[type=submit]").click()
    page.locator("button[autofocus]").click()


def test_the_address_of_a_visitor_is_the_one_that_the_proxy_names(pool: Instance, proxy: PrefixProxy) -> None:
    """So the audit log tells who it was. Guesses lock nobody out, behind the same address either."""
    owner = pool.client()
    token = owner.create_token("alice").token

    def sign_in(given: str) -> int:
        fields = {"Sec-Fetch-Site": "same-origin"}
        return httpx.post(
            f"{proxy.url}/signin", data={"token": given}, headers=fields, timeout=PATIENCE
        ).status_code

    proxy.visitor = "192.0.2.9"
    assert [sign_in("guess") for _ in range(11)] == [401] * 11
    assert sign_in(token) == 303
    with Client(proxy.url, (pool.home / "token").read_text().strip()) as client:
        client.disable_ce("local", reason="by the proxy")
        client.enable_ce("local", reason="by the proxy")
    assert {row.address for row in owner.audit() if row.reason == "by the proxy"} == {"192.0.2.9"}
