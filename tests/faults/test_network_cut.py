"""The network between the server and the nodes of a Slurm is cut for longer than a lease, while jobs run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.slurm_site import SlurmSite, slurm_site
from tests.deadlines import PATIENCE
from tests.instance import until
from tests.namespaces import cut

pytestmark = pytest.mark.timeout(4 * PATIENCE)

LEASE = 3.0
JOBS = 4
"""As many as the two pilots in Slurm run at once: each job that runs elsewhere was cut off."""


def running_in_slurm(site: SlurmSite) -> list[dict[str, Any]]:
    return [pilot for pilot in site.pilots() if pilot["ce"] == "slurm" and pilot["jobs"]]


def finished_events(site: SlurmSite, submission: str) -> list[int]:
    """How often each job was finished, as its events have it."""
    jobs = [str(job["id"]) for job in site.json("status", "-s", submission, "--json")["jobs"]]
    events = site.json("status", *jobs, "--events", "--json")
    return [sum(event["kind"] == "finished" for event in events[job]) for job in jobs]


def test_jobs_run_elsewhere_while_the_nodes_are_cut_off_and_are_applied_once(tmp_path: Path) -> None:
    with slurm_site(
        tmp_path, local_processors=2, lease=str(LEASE), settle="2", pilot_processors="2", max_running="2"
    ) as site:
        disabled = site.server.cli("ce", "disable", "local", "--reason", "until the cable is cut")
        assert disabled.returncode == 0, disabled.stderr
        traces, go = tmp_path / "traces", tmp_path / "go"
        traces.write_text("")
        # A trace for each start and end: what really ran, whatever the server was told.
        command = f"echo start $PPID >> {traces}; until [ -e {go} ]; do sleep 0.2; done; echo end >> {traces}"
        submission = site.submit(JOBS, command)
        until(lambda: site.states(submission).get("Running") == JOBS, what="all jobs in Slurm")
        assert len(running_in_slurm(site)) == 2
        with cut(site.network):
            until(lambda: not running_in_slurm(site), what="the end of the leases")
            assert site.server.cli("ce", "enable", "local").returncode == 0
            until(lambda: traces.read_text().count("start") > JOBS, what="a job that runs elsewhere")
            go.touch()
        site.wait(submission, JOBS)
        assert finished_events(site, submission) == [1] * JOBS
        site.assert_all_ended()
