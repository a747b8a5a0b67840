"""Browsers sign in to the pages by a real OpenID Connect provider, and by nobody else's sign-in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from tests.deadlines import PATIENCE
from tests.instance import Instance, running
from tests.oidc import WEB, WEB_POLICY, WEB_SECRET, OidcProvider, approve


@pytest.fixture(scope="module")
def instance(oidc: OidcProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    folder = tmp_path_factory.mktemp("server")
    (folder / "secret").write_text(WEB_SECRET)
    with running(folder, idle=60, lease=600, owners="any") as made:
        oidc.stop()
        oidc.redirects = [f"{made.url}/signin-back"]
        oidc.start()
        made.policy += WEB_POLICY.format(url=oidc.url, client=WEB, secret=folder / "secret", address=made.url)
        made.apply()
        yield made


@pytest.fixture
def browser(instance: Instance) -> Iterator[httpx.Client]:
    with httpx.Client(
        base_url=instance.url, timeout=PATIENCE, follow_redirects=True, trust_env=False
    ) as made:
        yield made


def begin(browser: httpx.Client, back: str = "") -> str:
    """Follow the link of the page for sign-in; returns the address at the issuer."""
    assert "Sign in with iam" in browser.get("/signin").text
    answer = browser.get("/signin-at", params={"issuer": "iam", "next": back}, follow_redirects=False)
    assert answer.status_code == 303
    return answer.headers["Location"]


def test_a_person_signs_in_and_out(instance: Instance, browser: httpx.Client) -> None:
    page = approve(begin(browser, "jobs"), "alice", browser=browser)
    assert page.status_code == 200, page.text
    assert "Signed in as" in page.text
    assert 'url=./jobs"' in page.text
    shown = browser.get("/jobs")
    assert "alice" in shown.text
    assert "(<bdi>others</bdi>)" in shown.text
    [row] = [token for token in instance.client().tokens() if token.revoked is None]
    assert (row.user, row.issued_by) == ("alice", "iam")
    instance.client().revoke_token(row.id)
    assert "Sign in to Pilotage" in browser.get("/jobs").text


def caught(browser: httpx.Client, user: str) -> str:
    """The address at which the browser would come back; it does not go there."""
    found: list[str] = []

    def stop(request: httpx.Request) -> None:
        if request.url.path == "/signin-back":
            found.append(str(request.url))
            raise httpx.RequestError("caught", request=request)

    browser.event_hooks["request"].append(stop)
    address = begin(browser)
    with pytest.raises(httpx.RequestError, match="caught"):
        approve(address, user, browser=browser)
    browser.event_hooks["request"].remove(stop)
    return found[0]


def test_a_sign_in_that_gives_nothing_says_so(browser: httpx.Client) -> None:
    page = approve(begin(browser), "eve", browser=browser)
    assert page.status_code == 403
    assert "no user eve" in page.text
    state = parse_qs(urlsplit(caught(browser, "eve")).query)["state"][0]
    refused = browser.get("/signin-back", params={"state": state, "error": "access_denied"})
    assert refused.status_code == 401
    assert "iam has refused the sign-in: access_denied" in refused.text
    assert "Sign in to Pilotage" in browser.get("/jobs").text


def test_an_answer_belongs_to_the_browser_that_has_asked(instance: Instance, browser: httpx.Client) -> None:
    """Otherwise somebody could sign another person's browser in as himself."""
    address = caught(browser, "alice")
    with httpx.Client(base_url=instance.url, timeout=PATIENCE, trust_env=False) as other:
        for _ in range(2):
            refused = other.get(address)
            assert refused.status_code == 401
            assert "has not begun this sign-in" in refused.text
            begin(other)  # with a cookie of its own
    assert "Signed in as" in browser.get(address).text


def test_an_answer_counts_once(browser: httpx.Client) -> None:
    address = caught(browser, "alice")
    assert "Signed in as" in browser.get(address).text
    assert browser.get(address).status_code == 401


def test_a_code_of_another_sign_in_is_refused(browser: httpx.Client, instance: Instance) -> None:
    """The issuer compares the digest of the verifier (PKCE)."""
    first = caught(browser, "alice")
    with httpx.Client(
        base_url=instance.url, timeout=PATIENCE, follow_redirects=True, trust_env=False
    ) as other:
        second = caught(other, "alice")
        code = parse_qs(urlsplit(first).query)["code"][0]
        state = parse_qs(urlsplit(second).query)["state"][0]
        mixed = other.get("/signin-back", params={"code": code, "state": state})
    assert mixed.status_code == 401
    assert "refuses this sign-in" in mixed.text


@pytest.mark.parametrize(
    "back", ["https://evil.example.org", "//evil.example.org", "javascript:alert(1)", "\\\\evil", "../../x"]
)
def test_the_page_afterwards_is_one_of_ours(browser: httpx.Client, back: str) -> None:
    page = approve(begin(browser, back), "alice", browser=browser)
    assert 'url=./"' in page.text
    assert "evil" not in page.text


@pytest.mark.parametrize("issuer", ["", "nobody", "<b>", "x" * 5000])
def test_an_issuer_that_is_not_there(browser: httpx.Client, issuer: str) -> None:
    page = browser.get("/signin-at", params={"issuer": issuer})
    assert page.status_code == 404
    assert "<b>" not in page.text


def test_an_issuer_that_is_away_is_told(browser: httpx.Client, oidc: OidcProvider, tmp_path: Path) -> None:
    address = caught(browser, "alice")
    oidc.stop()
    try:
        page = browser.get(address)
        assert page.status_code == 503
        assert "does not answer" in page.text
    finally:
        oidc.start()
