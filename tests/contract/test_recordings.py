"""The file of `pilotage ce test --record` is played by the contract suite as it is, and tells nothing private."""

from __future__ import annotations

import getpass
import re
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from pilotage.core.policy import Ce, parse
from pilotage.outside.batch.registry import ServerMachine
from pilotage.outside.batch.rehearsal import CASE, rehearse
from pilotage.server.duties import ce_recording
from tests.contract.test_batch_systems import POLICY, alive, recorded
from tests.doubles import cluster as doubles
from tests.doubles.cluster import Double
from tests.unit.outside.test_ssh_runner import ssh_double

STAMP = "pilotage-fedcba9876543210"


def ce(made: Double, **options: str) -> Ce:
    lines = "".join(f'{key} = "{value}"\n' for key, value in options.items())
    return parse(f'{POLICY}type = "{made.system}"\nwall = 600\n[ces.ce.{made.system}]\n{lines}').ces["ce"]


def record(made: Double, ce: Ce, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    monkeypatch.setattr(ce_recording, "PAUSE", 0.05)
    machine = ServerMachine(made.environment, getpass.getuser(), Path("/nowhere"))
    return ce_recording.record_rehearsal(ce, machine, 60.0, "0123456789abcdef")


def once(condition: Callable[[], bool], what: str) -> None:
    assert any(condition() for _ in range(50)), what


@pytest.mark.parametrize("system", list(doubles.COMMANDS))
def test_a_recording_is_a_test(system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with doubles.double(system) as made:
        text, failure = record(made, ce(made, log_folder=f"{tmp_path}/private"), monkeypatch)
        own = (str(made.folder), getpass.getuser(), str(tmp_path), "pbs1.example.org", "PBS_O_PATH")
    assert not failure
    told = [word for word in own if re.search(rf"(?<!\\w){re.escape(word)}(?!\\w)", text)]
    assert not told
    file = tmp_path / "recording.jsonl"
    file.write_text(text)
    with recorded(file, tmp_path) as world:
        assert world.transcript is not None
        world.transcript.begin(CASE)
        world.transcript.values["STAMP"] = STAMP
        done = rehearse(world.batch, STAMP, world.shape, once)
    assert dict(enumerate(done.receipt.batch_ids)) == {
        task.index: task.batch_id for task in alive(done.held, STAMP)
    }
    assert not alive(done.ended, STAMP)


def test_a_ce_behind_ssh_is_recorded_by_the_commands_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ce_recording, "PAUSE", 0.05)
    with doubles.double("pbs") as made:
        # The commands are on the PATH of a login shell alone.
        (tmp_path / ".profile").write_text(f"PATH={made.bin}:$PATH\n")
        script = f'export HOME={tmp_path}; for text; do :; done; exec sh -c "$text"'
        with contextmanager(ssh_double)(tmp_path, script) as connection:
            machine = ServerMachine({}, getpass.getuser(), tmp_path, ssh=lambda reach: connection)
            behind = msgspec.structs.replace(ce(made), reach="ssh login")
            text, failure = ce_recording.record_rehearsal(behind, machine, 60.0, "0123456789abcdef")
    assert not failure
    assert '"qsub"' in text
    assert "ssh" not in text


def test_a_rehearsal_that_fails_is_told_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with doubles.double("pbs") as made:
        text, failure = record(made, ce(made, queue="nosuch"), monkeypatch)
        assert "nosuch" in failure
        assert '"qstat", "-Q"' in text
        with made.faulty("qrls", errors="qrls: Communication failure.\n"):
            text, failure = record(made, ce(made), monkeypatch)
        assert "Communication failure" in failure
        assert '"qdel"' in text
        assert not made.run("qselect", "-u", getpass.getuser())


def test_a_ce_without_commands_cannot_be_recorded(tmp_path: Path) -> None:
    local = parse(f"{POLICY}processors = 1\n").ces["ce"]
    text, failure = ce_recording.record_rehearsal(local, ServerMachine({}, "me", tmp_path), 60.0, "0")
    assert not text
    assert "runs no commands" in failure
