"""`pilotage db check --repair`, as it is typed."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from tests.instance import running


def test_a_wrong_state_is_told_and_mended_while_no_server_runs(tmp_path: Path) -> None:
    with running(tmp_path) as instance:
        job = instance.client().submit({"executable": "true"}).first
        instance.reaches(job, "Done")
        instance.kill_server()
        with closing(sqlite3.connect(instance.home / "pilotage.db")) as database, database:
            database.execute("UPDATE jobs SET ended = NULL WHERE id = ?", (job,))
        told = instance.cli("db", "check")
        assert told.returncode == 1
        assert (
            f"Jobs that have ended without a time of it, or have a time and go on: 1 ({job})." in told.stdout
        )
        assert "pilotage db check --repair" in told.stderr
        instance.start()
        refused = instance.cli("db", "check", "--repair")
        assert refused.returncode == 5, refused.stderr
        instance.kill_server()
        mended = instance.cli("db", "check", "--repair")
        assert mended.returncode == 0, mended.stderr
        first, second, last = mended.stdout.splitlines()
        assert Path(first.removesuffix(": the database before the repair")).is_file()
        assert second == f"mended jobs that have ended without a time of it, or have a time and go on: {job}"
        assert last.endswith("pilotage.db is intact")
        assert instance.cli("db", "check", "--repair").stdout.splitlines() == [last]
        instance.start()
        instance.reaches(instance.client().submit({"executable": "true"}).first, "Done")
