"""`pilotage up --policy`: a server starts with a policy of a file, also where the stored one is not valid any more."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.deadlines import PATIENCE
from tests.instance import Instance, running


def history(instance: Instance) -> list[tuple[int, str]]:
    shown = json.loads(instance.cli("policy", "history", "--json").stdout)["versions"]
    return [(row["version"], row["reason"]) for row in shown]


def write(instance: Instance, text: str) -> Path:
    file = instance.home.parent / "policy.toml"
    file.write_text(text)
    return file


def test_a_stored_policy_that_is_not_valid_any_more_is_replaced(tmp_path: Path) -> None:
    """As after an upgrade whose rules are stricter. The jobs of the pool go on."""
    with running(tmp_path) as instance:
        job = instance.client().submit({"executable": "true", "tags": ["rare"]}).first
        instance.stop_server()
        with closing(sqlite3.connect(instance.home / "pilotage.db")) as connection, connection:
            connection.execute(
                "UPDATE policies SET text = replace(text, '[ces.local]', '[ces.local]\nold = 1')"
            )
        instance.start(wait=False)
        assert instance.process is not None
        assert instance.process.wait(PATIENCE) == 2
        stored = instance.home / "policy-2.toml"
        log = instance.log()
        assert "the stored policy, version 2, is not valid for this version of Pilotage: line " in log
        assert f"start with `pilotage up --policy {stored}`" in log
        assert "unknown key old" in log
        assert stored.stat().st_mode & 0o077 == 0
        again = instance.cli("up", "--home", str(instance.home), "--policy", str(stored))
        assert (again.returncode, f"{stored}: line " in again.stderr) == (2, True), "it is not corrected yet"
        text = stored.read_text().replace("old = 1\n", 'tags = ["rare"]\n')
        instance.start("--policy", str(write(instance, text)))
        assert history(instance)[:2] == [(3, "given at the start"), (2, "")]
        assert instance.client().policy().text == text
        assert instance.reaches(job, "Done").state == "Done"


@pytest.mark.parametrize("detached", [False, True])
def test_the_policy_of_the_first_start_is_given(tmp_path: Path, detached: bool) -> None:
    instance = Instance(tmp_path)
    file = write(instance, instance.policy)
    try:
        if detached:
            words = ("--home", str(instance.home), "--port", str(instance.port), "--detach")
            done = instance.cli("up", *words, "--policy", str(file))
            assert done.returncode == 0, done.stderr
        else:
            instance.start("--policy", str(file))
        assert history(instance) == [(1, "given at the start")]
        assert instance.client().policy().text == instance.policy
        assert instance.cli("down").returncode == 0
        if not detached:
            assert instance.process is not None
            instance.process.wait(PATIENCE)
            instance.start("--policy", str(file))
            assert history(instance) == [(1, "given at the start")], "the same text is no new version"
    finally:
        instance.cli("down")
        instance.close()


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("nosuch.toml", "cannot read nosuch.toml"),
        ("-", "--policy needs a file"),
        ("/etc", "cannot read /etc"),
    ],
)
def test_a_wrong_file_is_told(tmp_path: Path, file: str, message: str) -> None:
    instance = Instance(tmp_path)
    done = instance.cli("up", "--home", str(tmp_path / "new"), "--policy", file)
    assert done.returncode == 2
    assert message in done.stderr
    assert not (tmp_path / "new").exists()
