from __future__ import annotations

import base64
import time
from collections.abc import Callable

import pytest

from tests.deadlines import PATIENCE
from tests.pilot.pilot_server import PilotProcess, PilotServer

Start = Callable[..., PilotProcess]


def test_it_runs_a_job_reports_it_and_leaves_when_idle(server: PilotServer, pilot: Start) -> None:
    job = server.add("sh", "-c", "echo out; echo err >&2; exit 7")
    process = pilot()
    finish = server.finish_of(job)
    assert (finish["exit_code"], finish["signal"], finish["failure"]) == (7, None, "")
    assert base64.b64decode(finish["stdout"]) == b"out\n"
    assert base64.b64decode(finish["stderr"]) == b"err\n"
    assert process.wait() == 0
    assert server.left == "idle"


@pytest.mark.slow
def test_rate_of_no_op_jobs(server: PilotServer, pilot: Start, capsys: pytest.CaptureFixture[str]) -> None:
    count = 2000
    server.enrol.update(ahead=64)
    for _ in range(count):
        server.add("true")
    process = pilot()
    server.wait_for(lambda: server.finishes)
    begin, before = time.monotonic(), len(server.finishes)
    # A pilot that does not run for seconds gives back the jobs that it holds ahead.
    server.wait_for(lambda: len(server.finishes) + len(server.releases) == count, 2 * PATIENCE)
    seconds = time.monotonic() - begin
    with capsys.disabled():
        exchanges = len(server.exchanges)
        print(f"\n{(count - before) / seconds:.0f} no-op jobs/s, {exchanges} exchanges for {count} jobs")
    assert process.wait() == 0
    assert {finish["exit_code"] for finish in server.finishes.values()} == {0}
    assert len(server.releases) < count / 4
