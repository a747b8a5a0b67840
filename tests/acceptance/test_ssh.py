"""Jobs run in pilots of a Slurm that the server reaches over ssh."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.ssh_site import ssh_site
from tests.namespaces import CLIENT_ADDRESS

pytestmark = pytest.mark.slow


def test_jobs_run_in_a_slurm_behind_ssh(tmp_path: Path) -> None:
    with ssh_site(tmp_path) as site:
        submission = site.submit(200, "true")
        site.log_in()
        site.wait(submission, count=200)
        assert all(pilot["ce"] == "slurm" for pilot in site.pilots())
        site.assert_all_ended()


def test_pilots_reach_a_hidden_server_through_a_relay(tmp_path: Path) -> None:
    with ssh_site(tmp_path, hidden=True, relay=f'"{CLIENT_ADDRESS}"') as site:
        site.log_in()
        submission = site.submit(200, "true")
        site.wait(submission, count=200)
        site.assert_all_ended()
