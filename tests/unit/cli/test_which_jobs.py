"""Which jobs a command takes: options that label do not select."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.client.fake_server import State, job

Cli = Callable[..., int]


@pytest.mark.parametrize("which", ["--failed", "--incomplete"])
@pytest.mark.parametrize("option", ["--name", "--job-group", "--site"])
def test_labels_of_rerun_do_not_select_all_failed_jobs(
    which: str, option: str, cli: Cli, state: State, capsys: pytest.CaptureFixture[str]
) -> None:
    state.jobs = {1: job(1, "Failed")}
    assert cli("rerun", which, option, "scan", "-y") == 2
    told = capsys.readouterr().err
    assert f"{option} changes the new jobs, and selects none of the old ones" in told
    assert "pilotage rerun -s SUBMISSION --failed" in told
    assert not state.requests
