"""Browsers at an issuer: each comes back by its own sealed cookie, however many others have begun."""

from __future__ import annotations

import random

import pytest

from pilotage.core.errors import NotAuthenticated
from pilotage.server.issuer_visits import LIFETIME, LONGEST_BACK, IssuerVisits
from pilotage.server.recording.redaction import SeededSecrets

NOW = 1_800_000_000.0


@pytest.fixture
def secrets() -> SeededSecrets:
    return SeededSecrets(random.Random(1))


def test_no_number_of_begun_visits_pushes_one_out(secrets: SeededSecrets) -> None:
    visits = IssuerVisits()
    begun, cookie = visits.begin("iam", "jobs?state=Done", NOW, secrets)
    for _ in range(2_500):
        visits.begin("iam", "", NOW, secrets)
    assert visits.finish(begun.state, cookie, NOW + LIFETIME - 1) == begun


def test_a_visit_is_finished_by_its_own_browser_and_in_time_only(secrets: SeededSecrets) -> None:
    visits, others = IssuerVisits(), IssuerVisits()
    begun, cookie = visits.begin("iam", "jobs", NOW, secrets)
    other, foreign = visits.begin("iam", "jobs", NOW, secrets)
    _, forged = others.begin("iam", "jobs", NOW, secrets)
    content, _, seal = cookie.partition(".")
    for given in (
        "",
        ".",
        "x",
        foreign,
        forged,
        content,
        f"{content}.",
        f".{seal}",
        f"{content}x.{seal}",
        "\udcff.\udcff",
    ):
        with pytest.raises(NotAuthenticated, match="has not begun"):
            visits.finish(begun.state, given, NOW)
    for state in ("", other.state, "\x85"):
        with pytest.raises(NotAuthenticated, match="has not begun"):
            visits.finish(state, cookie, NOW)
    with pytest.raises(NotAuthenticated, match="ten minutes"):
        visits.finish(begun.state, cookie, NOW + LIFETIME)


def test_a_cookie_is_never_too_long_for_a_browser(secrets: SeededSecrets) -> None:
    for back in ("x" * LONGEST_BACK, "x" * (LONGEST_BACK + 1), "x" * 100_000):
        visit, cookie = IssuerVisits().begin("i" * 64, back, NOW, secrets)
        assert len(cookie) < 4000
        assert visit.back == (back if len(back) <= LONGEST_BACK else "")
