"""`pilotage report` on real jobs: the file has the figures that the API gives, and nobody else's."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx
import pytest

from pilotage.core.errors import NotFound
from pilotage.wire.jobs import Selection
from tests.deadlines import PATIENCE
from tests.instance import Instance, running

pytestmark = pytest.mark.slow


def _report_of_page(instance: Instance, submission: int) -> str:
    """The file that the page of a submission offers."""
    token = (instance.home / "token").read_text().strip()
    url, own = instance.client().url, {"Sec-Fetch-Site": "same-origin"}
    with httpx.Client(base_url=url, headers=own, timeout=PATIENCE, trust_env=False) as browser:
        assert browser.post("/signin", data={"token": token}).status_code == 303
        page = browser.get(f"/submissions/{submission}")
        assert f"submissions/{submission}/report" in page.text
        saved = browser.get(f"/submissions/{submission}/report")
        assert saved.headers["content-disposition"] == f'attachment; filename="submission-{submission}.html"'
        return saved.text


def _without_instants(page: str) -> str:
    """The report without the lines that depend on the instant of its making."""
    kept, lines = re.subn("<tr><th[^>]*>(report|rate)</th>.*?</tr>", "", page)
    assert lines == 2
    return kept


def test_a_report_has_the_attempts_of_its_submission_for_those_who_may_see_it(tmp_path: Path) -> None:
    with running(tmp_path, owners="any") as instance:
        alice, bob = instance.client("alice"), instance.client("bob")
        script = 'echo "broken <b>" >&2; exit $((%s % 2))'
        sent = alice.submit({"executable": "/bin/sh", "arguments": ["-c", script]}, values=[0, 1, 2])
        whole = Selection(submission=sent.submission)
        alice.wait(whole, timeout=3 * PATIENCE)
        rows = list(alice.attempts(whole))
        assert {row.job for row in rows} == set(range(sent.first, sent.last + 1))
        shown = json.loads(instance.cli("report", str(sent.submission), "--json").stdout)
        assert sum(place["attempts"] for place in shown["places"]) == len(rows)
        core_seconds = sum(place["core_seconds"] for place in shown["places"])
        assert core_seconds == pytest.approx(sum(row.wall * row.processors for row in rows))
        exported = instance.cli("accounting", "export", "--format", "auditor")
        assert len(json.loads(exported.stdout)) == len(rows), exported.stderr
        words = ["accounting", "export", "--format", "apel", "--benchmark", "hepscore23=10"]
        assert instance.cli(*words).stdout.count("%%") == 1
        file = tmp_path / "report.html"
        written = instance.cli("report", str(sent.submission), "--html", str(file))
        assert written.returncode == 0, written.stderr
        page = file.read_text()
        assert "broken &lt;b&gt;" in page
        assert "<svg" in page
        assert _without_instants(_report_of_page(instance, sent.submission)) == _without_instants(page)
        month = instance.cli("report", "--month", "2001-01")
        assert month.returncode == 0, month.stderr
        refused = instance.cli("report", "1", "--html", str(tmp_path / "nowhere" / "report.html"))
        assert refused.returncode == 2
        assert "cannot write" in refused.stderr
        assert list(bob.attempts(whole)) == []
        with pytest.raises(NotFound, match="there is no submission"):
            bob.submission_progress(sent.submission)
