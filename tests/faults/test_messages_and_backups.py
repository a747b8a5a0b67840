"""Messages that are lost, doubled, late or out of order; a database that goes back in time."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilotage.wire.jobs import Selection
from tests.deadlines import PATIENCE
from tests.faults.audit import audit
from tests.faults.chaos import ChaosProxy
from tests.instance import Instance, alive, running, until

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", [1, 2])
def test_messages_lost_doubled_delayed_and_reordered_change_nothing(tmp_path: Path, seed: int) -> None:
    instance = Instance(tmp_path, lease=30, heartbeat=0.5)
    with ChaosProxy(instance.port, seed, fault=0.3) as proxy:
        try:
            instance.start("--pilot-server", proxy.url)
            instance.apply()
            client = instance.client()
            runs = tmp_path / "runs"
            command = ["-c", f"echo %s >> {runs}; [ %s != 7 ]"]
            answer = client.submit({"executable": "sh", "arguments": command}, values=list(range(150)))
            selection = Selection(submission=answer.submission)
            until(
                lambda: client.counts(selection).final == 150, within=2 * PATIENCE, what="the end of all jobs"
            )
            assert client.counts(selection).states == {"Done": 149, "Failed": 1}
            # No lease ran out, so no job was begun twice.
            assert sorted(map(int, runs.read_text().split())) == list(range(150))
            assert len(proxy.met) >= 4, proxy.met
        finally:
            instance.close()
    assert audit(instance.home) == {"Done": 149, "Failed": 1}


def test_a_backup_restored_while_pilots_run_loses_no_job_of_the_backup(tmp_path: Path) -> None:
    with running(tmp_path, lease=6, heartbeat=0.5) as instance:
        client = instance.client()
        go_on, marker = tmp_path / "go-on", tmp_path / "starts"
        script = f"echo $$ >> {marker}; while [ ! -e {go_on} ]; do sleep 0.05; done; echo $$"
        before = client.submit({"executable": "sh", "arguments": ["-c", script]}).first
        instance.reaches(before, "Running")
        until(marker.exists, what="the first start")
        copy = tmp_path / "copy.db"
        assert instance.cli("db", "backup", str(copy)).returncode == 0
        lost = client.submit({"executable": "true"}).first
        instance.reaches(lost, "Done")
        refused = instance.cli("db", "restore", str(copy))
        assert refused.returncode == 5, refused.stderr
        instance.kill_server()
        restored = instance.cli("db", "restore", str(copy))
        assert restored.returncode == 0, restored.stderr
        instance.start()
        # The pilot of before is superseded: its payload ends, and what it would report is refused.
        first = int(marker.read_text().split()[0])
        until(lambda: not alive(first), what="the end of the superseded payload")
        new = instance.client().submit({"executable": "true"}).first
        assert new > lost, "an id was given twice"
        until(lambda: len(marker.read_text().split()) == 2, what="the second start")
        go_on.touch()
        instance.reaches(before, "Done")
        instance.reaches(new, "Done")
        second = int(marker.read_text().split()[1])
        assert instance.client().log(before).data == f"{second}\n".encode()
        instance.close()
        assert audit(instance.home) == {"Done": 2}
