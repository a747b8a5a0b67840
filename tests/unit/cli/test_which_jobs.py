"""Which jobs a command takes: named ones must exist, and options that label do not select."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pilotage.cli.root import build, parser_of
from tests.unit.client.fake_server import State, job

Cli = Callable[..., int]

TAKE_IDS = {"status", "wait", "output", "kill", "hold", "release", "reschedule", "delete", "rerun"}


def test_the_commands_that_take_several_ids() -> None:
    found = set()
    for name, command in build().commands.items():
        if any("Job ids: " in (parameter.help or "") for parameter in parser_of(command).params):
            found.add(name)
    assert found == TAKE_IDS


@pytest.mark.parametrize("verb", sorted(TAKE_IDS))
@pytest.mark.parametrize("ids", [["1,9999"], ["9999", "1"], ["1-2,9999"]])
def test_an_unknown_id_beside_known_ones_is_told(
    verb: str, ids: list[str], cli: Cli, state: State, capsys: pytest.CaptureFixture[str]
) -> None:
    """A slip of the pen would otherwise end with success, though nobody has waited for the meant job."""
    state.jobs = {1: job(1), 2: job(2)}
    assert cli(verb, *ids) == 4
    assert "there is no job 9999" in capsys.readouterr().err
    assert not state.seen, "nothing is done"


def test_ranges_may_have_gaps(cli: Cli, state: State) -> None:
    state.jobs = {1: job(1), 3: job(3)}
    assert cli("wait", "1-5") == 0
    assert cli("wait", "1-2,3") == 0


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
