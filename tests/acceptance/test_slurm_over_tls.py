"""Many jobs in Slurm's pilots, which reach the server from another network over TLS."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.slurm_site import slurm_site
from tests.deadlines import PATIENCE
from tests.namespaces import CLIENT_ADDRESS

pytestmark = pytest.mark.timeout(4 * PATIENCE)

JOBS = 500


def test_500_jobs_over_tls_from_another_network(tmp_path: Path) -> None:
    with slurm_site(tmp_path, max_waiting="8", max_running="8") as site:
        disabled = site.server.cli("ce", "disable", "local", "--reason", "all jobs run in Slurm")
        assert disabled.returncode == 0, disabled.stderr
        submission = site.submit(JOBS, "ip -o addr")
        site.wait(submission, JOBS)
        first = site.json("status", "-s", submission, "--limit", "1", "--json")["jobs"][0]["id"]
        assert CLIENT_ADDRESS in site.server.cli("logs", str(first)).stdout
        pilots = site.pilots()
        assert {pilot["ce"] for pilot in pilots} == {"slurm"}
        assert sum(pilot["finished"] for pilot in pilots) == JOBS
        site.assert_all_ended()
