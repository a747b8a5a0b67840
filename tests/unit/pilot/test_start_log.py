"""Each payload's owner stands in the log, in at most a line a second for each run of one owner."""

from __future__ import annotations

import math

import pytest

from pilotage.pilot import start_log
from pilotage.pilot.start_log import StartLog
from pilotage.wire.pilot import OfferedJob, Payload

Line = tuple[str, dict[str, object]]


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[Line]:
    written: list[Line] = []
    monkeypatch.setattr(start_log, "log", lambda event, **facts: written.append((event, facts)))
    return written


def offer(job: int, owner: str = "ada") -> OfferedJob:
    return OfferedJob(job, 1, Payload("/bin/true", owner=owner, group="physics"))


def test_payloads_that_start_seldom_have_a_line_each(lines: list[Line]) -> None:
    starts = StartLog({"pilot": "7"})
    for job in (4, 5):
        starts.add(offer(job), 2.0 * job)
        assert starts.next_at == math.inf
    assert lines == [
        ("payload", {"job": job, "epoch": 1, "owner": "ada", "group": "physics", "pilot": "7"})
        for job in (4, 5)
    ]


def test_very_short_payloads_share_a_line(lines: list[Line]) -> None:
    starts = StartLog({"pilot": "7"})
    for place, job in enumerate((9, 3, 1, 2, 12, 11)):
        starts.add(offer(job), 0.1 * place)
    assert [facts.get("job") for _, facts in lines] == [9]
    assert starts.next_at == 1.0
    starts.write_due(1.0)
    shared = {"count": 5, "jobs": "1-3,11-12", "owner": "ada", "group": "physics", "pilot": "7"}
    assert lines[1:] == [("payloads", shared)]
    assert starts.next_at == math.inf


def test_no_payload_of_another_owner_is_in_the_line(lines: list[Line]) -> None:
    starts = StartLog({})
    for job, owner in enumerate(("ada", "ada", "ada", "bob", "bob"), start=1):
        starts.add(offer(job, owner), 0.0)
    starts.write()
    named = [(facts["owner"], facts.get("job") or facts["jobs"]) for _, facts in lines]
    assert named == [("ada", 1), ("ada", "2-3"), ("bob", 4), ("bob", 5)]
