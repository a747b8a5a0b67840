"""Waiting jobs and shares over time, as both stores keep them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from pilotage.core.ids import QueueId
from pilotage.core.intervals import DAY, HOUR, SPANS, TEN_MINUTES, PeriodParts, pieces
from pilotage.core.queues.identity import QueueIdentity
from pilotage.store.tables import intervals, submissions, wait_reasons
from pilotage.store.tables.intervals import PastWait, ShareValues, WaitingCount, WaitingSum
from pilotage.store.tables.selections import Viewer
from pilotage.store.tables.wait_reasons import ReasonRow

BEGIN = 20_000 * DAY
EVERYBODY = Viewer("", everything=True)
WAITING = [
    WaitingCount("", "physics", "slots", 30),
    WaitingCount("", "shared", "needs", 5),
    WaitingCount("alice", "physics", "slots", 10),
    WaitingCount("alice", "shared", "needs", 2),
    WaitingCount("bob", "physics", "slots", 20),
    WaitingCount("bob", "shared", "needs", 3),
]
SHARES = [
    ShareValues("", "physics", 0.75, 0.5, 1.5),
    ShareValues("", "shared", 0.25, 0.5, 0.5),
    ShareValues("physics", "alice", 0.5, 0.25, 1.25),
]


def record(
    connection: Any, begin: float, seconds: float = 60.0, waiting: Sequence[WaitingCount] = WAITING
) -> None:
    end = begin + seconds
    intervals.add(connection, pieces(begin, end), end, waiting, SHARES)


def test_records_add_up_in_the_intervals_of_each_length(connection: Any) -> None:
    assert intervals.recorded_until(connection) is None
    for begin in (BEGIN, BEGIN + 60, BEGIN + HOUR):
        record(connection, begin)
    assert intervals.recorded_until(connection) == BEGIN + HOUR + 60
    for span, seconds in ((TEN_MINUTES, {0: 120, 6: 60}), (HOUR, {0: 120, 1: 60}), (DAY, {0: 180})):
        parts = PeriodParts(BEGIN, span, 10, span)
        assert intervals.recorded_seconds(connection, parts) == seconds
        sums = intervals.waiting(connection, parts, EVERYBODY)
        assert sorted(sums) == sorted(
            row
            for part, of_part in seconds.items()
            for row in (
                WaitingSum(part, "physics", "slots", 30 * of_part),
                WaitingSum(part, "shared", "needs", 5 * of_part),
            )
        )


def test_intervals_are_summed_to_longer_parts(connection: Any) -> None:
    for hour in range(24):
        record(connection, BEGIN + hour * HOUR)
    parts = PeriodParts(BEGIN, DAY // 2, 2, HOUR)
    assert intervals.recorded_seconds(connection, parts) == {0: 720, 1: 720}
    assert [
        (row.part, row.name, row.seconds, row.entitled, row.correction)
        for row in intervals.shares(connection, parts, "")
    ] == [
        (part, name, 720, entitled * 720, correction * 720)
        for part in (0, 1)
        for name, entitled, correction in (("physics", 0.75, 1.5), ("shared", 0.25, 0.5))
    ]
    assert [row.name for row in intervals.shares(connection, parts, "physics")] == ["alice", "alice"]
    assert intervals.shares(connection, parts, "shared") == []


@pytest.mark.parametrize(
    ("viewer", "seen"),
    [
        (EVERYBODY, {("physics", 30), ("shared", 5)}),
        (Viewer("alice"), {("physics", 10), ("shared", 2)}),
        (Viewer("alice", "shared"), {("physics", 10), ("shared", 5)}),
        (Viewer("mallory"), set()),
        (Viewer("mallory", "shared"), {("shared", 5)}),
    ],
)
def test_people_see_their_own_jobs_and_those_of_a_group_that_shares(
    connection: Any, viewer: Viewer, seen: set[tuple[str, int]]
) -> None:
    record(connection, BEGIN)
    rows = intervals.waiting(connection, PeriodParts(BEGIN, HOUR, 1, HOUR), viewer)
    assert {(row.group, row.job_seconds / 60) for row in rows} == seen


def test_what_a_wrong_clock_has_recorded_is_deleted(connection: Any) -> None:
    for begin in (BEGIN, BEGIN + 400 * DAY):
        record(connection, begin)
    intervals.forget_after(connection, BEGIN + 60)
    assert intervals.recorded_until(connection) == BEGIN + 60
    for span in SPANS:
        rows = connection.execute(
            "SELECT DISTINCT start FROM waiting_intervals WHERE span = ?", (span,)
        ).fetchall()
        assert rows == [(BEGIN // span * span,)]


def test_expired_intervals_are_deleted_in_slices(connection: Any) -> None:
    for hour in range(3):
        record(connection, BEGIN + hour * HOUR)
    before, sizes = BEGIN + 2 * HOUR + 1.0, list[int]()
    while not sizes or sizes[-1] == 5:
        sizes.append(intervals.delete_before(connection, HOUR, before, 5))
    # Two intervals, with six rows of waiting jobs, three of shares, and their own one.
    assert sum(sizes) == 20
    assert intervals.recorded_seconds(connection, PeriodParts(BEGIN, HOUR, 3, HOUR)) == {2: 60}
    assert intervals.recorded_seconds(connection, PeriodParts(BEGIN, DAY, 1, DAY)) == {0: 180}
    assert connection.execute("SELECT count(*) FROM share_intervals WHERE span = ?", (HOUR,)).fetchone() == (
        3,
    )


def queue(connection: Any, owner: str, group: str, *waits: tuple[float, str]) -> QueueId:
    made = submissions.insert_queue(connection, QueueIdentity(owner, group), 1.0)
    for since, reason in waits:
        wait_reasons.insert_reasons(connection, [ReasonRow(made, since, reason, f"because of {reason}")])
    return made


def test_the_queues_behind_a_time_are_found(connection: Any) -> None:
    over = queue(connection, "alice", "physics", (10.0, "needs"), (20.0, "slots"), (30.0, ""))
    still = queue(connection, "bob", "physics", (25.0, "slots"))
    queue(connection, "bob", "shared", (90.0, "needs"))

    def found(
        begin: float, end: float, reason: str = "", viewer: Viewer = EVERYBODY, after: int = 0
    ) -> list[PastWait]:
        return intervals.past_waits(connection, (begin, end), reason, viewer, after, 10)

    assert found(22.0, 28.0) == [
        PastWait(over, "alice", "physics", "slots", "because of slots", 20.0, 30.0),
        PastWait(still, "bob", "physics", "slots", "because of slots", 25.0, None),
    ]
    assert [wait.queue for wait in found(15.0, 28.0, "needs")] == [over]
    assert found(20.0, 28.0, "needs") == []
    assert [wait.queue for wait in found(30.0, 40.0)] == [still]
    assert [wait.queue for wait in found(22.0, 28.0, after=over)] == [still]
    assert [wait.queue for wait in found(22.0, 28.0, viewer=Viewer("alice"))] == [over]
    assert [wait.queue for wait in found(22.0, 28.0, viewer=Viewer("eve", "physics"))] == [over, still]
    assert found(22.0, 28.0, viewer=Viewer("eve")) == []
