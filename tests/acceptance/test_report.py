"""`pilotage report` on real jobs: the file has the figures that the API gives, and nobody else's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pilotage.core.errors import NotFound
from pilotage.wire.jobs import Selection
from tests.deadlines import PATIENCE
from tests.instance import running

pytestmark = pytest.mark.slow


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
        month = instance.cli("report", "--month", "2001-01")
        assert month.returncode == 0, month.stderr
        refused = instance.cli("report", "1", "--html", str(tmp_path / "nowhere" / "report.html"))
        assert refused.returncode == 2
        assert "cannot write" in refused.stderr
        assert list(bob.attempts(whole)) == []
        with pytest.raises(NotFound, match="there is no submission"):
            bob.submission_progress(sent.submission)
