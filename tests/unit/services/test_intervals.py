"""Records of waiting jobs and shares, and the reports on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.core.intervals import DAY, HOUR, TEN_MINUTES
from pilotage.services.intervals import recording, reports
from pilotage.services.intervals.recording import count_waiting, record, share_values
from pilotage.services.pool.records import RecordedReason
from pilotage.services.shares.table import entitlements, share_table
from pilotage.store.tables import intervals
from pilotage.store.tables.intervals import ShareValues, WaitingCount
from pilotage.store.tables.selections import Viewer
from pilotage.wire.intervals import ShareHistoryQuery, WaitingHistoryQuery
from tests.unit.services.bench import Bench

BEGIN = 20_000.0 * DAY
EVERYBODY = Viewer("", everything=True)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path, now=BEGIN)
    yield made
    made.close()


def counted(bench: Bench, **reasons: str) -> list[WaitingCount]:
    """The waiting jobs, with one reason for each owner."""
    entries = list(bench.pool.queues.index.entries.values())
    recorded = {
        entry.id: RecordedReason(reasons[entry.identity.owner], "", 0.0)
        for entry in entries
        if entry.identity.owner in reasons
    }
    return count_waiting(entries, recorded)


def test_waiting_jobs_are_counted_by_reason_group_and_owner(bench: Bench) -> None:
    bench.submit(3)
    bench.submit(4, memory=1000)
    bench.submit(2, group="sharing")
    bench.submit(5, owner="bob")
    assert counted(bench, alice="slots") == [
        ("", "physics", "", 5),
        ("", "physics", "slots", 7),
        ("", "sharing", "slots", 2),
        ("alice", "physics", "slots", 7),
        ("alice", "sharing", "slots", 2),
        ("bob", "physics", "", 5),
    ]


def test_a_record_is_bounded_and_loses_no_job(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MOST_OWNERS", 1)
    monkeypatch.setattr(recording, "MOST_GROUPS", 1)
    bench.submit(3)
    bench.submit(2, group="sharing")
    bench.submit(4, owner="bob")
    assert counted(bench) == [
        ("", "", "", 2),
        ("", "physics", "", 7),
        ("alice", "physics", "", 3),
        ("alice", "sharing", "", 2),
    ]


def test_shares_are_recorded_as_the_table_has_them(bench: Bench) -> None:
    bench.submit(3)
    bench.submit(1, owner="bob")
    bench.submit(1, owner="bob", group="sharing")
    table = share_table(bench.do(lambda _: entitlements(bench.pool)), None)
    values = {(row.within, row.name): row for row in share_values(table)}
    assert values.keys() == {("", "physics"), ("", "sharing"), ("physics", "alice"), ("physics", "bob")}
    assert values["", "physics"].entitled + values["", "sharing"].entitled == pytest.approx(1)
    assert values["physics", "bob"] == ShareValues("physics", "bob", 0.5, 0.0, 1.0)


def keep(
    bench: Bench, *waiting: WaitingCount, elapsed: float = 60.0, shares: tuple[ShareValues, ...] = ()
) -> None:
    bench.do(lambda tx: record(tx, bench.now, elapsed, waiting, shares))


def test_averages_are_of_the_recorded_time(bench: Bench) -> None:
    for jobs in (10, 20):
        bench.now += 60
        keep(bench, WaitingCount("", "physics", "slots", jobs))
    asked = WaitingHistoryQuery(since=HOUR, end=BEGIN + HOUR, points=2)
    report = reports.waiting_history(bench.connection, asked, EVERYBODY, bench.now)
    assert (report.begin, report.span, report.recorded) == (BEGIN, 1800, [120, 0])
    assert [(point.begin, point.group, point.reason, point.jobs) for point in report.points] == [
        (BEGIN, "physics", "slots", 15)
    ]


def test_a_report_names_some_groups_and_sums_the_others(bench: Bench) -> None:
    bench.now += 60
    keep(bench, *(WaitingCount("", f"g{number}", "slots", 100 - number) for number in range(30)))
    asked = WaitingHistoryQuery(since=TEN_MINUTES, points=1)
    points = reports.waiting_history(bench.connection, asked, EVERYBODY, bench.now).points
    jobs = Counter({point.group: point.jobs for point in points})
    assert len(jobs) == reports.GROUPS_NAMED + 1
    assert jobs[""] == sum(100 - number for number in range(20, 30))
    asked.group = "g25"
    [point] = reports.waiting_history(bench.connection, asked, EVERYBODY, bench.now).points
    assert (point.group, point.jobs) == ("g25", 75)


def test_corrected_shares_add_up_to_one(bench: Bench) -> None:
    first, second = ShareValues("", "a", 0.75, 0.5, 0.5), ShareValues("", "b", 0.25, 0.5, 2.0)
    bench.now += 60
    keep(bench, shares=(first, second))
    bench.now += 60
    keep(bench, shares=(ShareValues("", "a", 1.0, 1.0, 1.0),))
    asked = ShareHistoryQuery(since=TEN_MINUTES, points=1)
    a, b = reports.share_history(bench.connection, asked, bench.now).points
    assert (a.group, a.owner, a.entitled, a.used, a.correction) == ("a", "", 0.875, 0.75, 0.75)
    # b was not entitled to anything in the second minute. Its correction is of the first.
    assert (b.group, b.entitled, b.used, b.correction) == ("b", 0.125, 0.25, 2.0)
    assert a.corrected + b.corrected == pytest.approx(1)
    assert a.corrected / b.corrected == pytest.approx(0.875 * 0.75 / (0.125 * 2))


def test_a_record_is_whole_or_not_at_all(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.now += 60
    keep(bench, WaitingCount("", "physics", "slots", 1))
    bench.now += 60
    with monkeypatch.context() as patch:
        patch.setattr(intervals, "_ADD_SHARES", None)
        with pytest.raises(AttributeError):
            keep(
                bench, WaitingCount("", "physics", "slots", 1), shares=(ShareValues("", "a", 1.0, 0.0, 1.0),)
            )
    bench.crash(lambda tx: record(tx, bench.now, 60.0, [WaitingCount("", "physics", "slots", 5)], []))
    assert intervals.recorded_until(bench.connection) == BEGIN + 60
    keep(bench, WaitingCount("", "physics", "slots", 3))
    [(seconds,)] = bench.connection.execute(
        "SELECT job_seconds FROM waiting_intervals WHERE span = 600"
    ).fetchall()
    assert seconds == 60 * 1 + 60 * 3


def test_a_clock_that_steps_back_doubles_nothing(bench: Bench) -> None:
    def later(step: float) -> list[tuple[float, float, float]]:
        bench.now += 60 + step
        keep(bench, WaitingCount("", "physics", "slots", 1))
        sql = "SELECT start, seconds, until FROM recorded_intervals WHERE span = 600"
        return bench.connection.execute(sql).fetchall()

    later(0)
    assert later(0) == [(BEGIN, 120, BEGIN + 120)]
    assert later(-1800) == later(0) == [(BEGIN, 120, BEGIN + 120)]
    assert later(1800) == [(BEGIN, 180, BEGIN + 300)]
    # A clock that was wrong by days: its records are deleted.
    assert later(-2 * DAY) == [(BEGIN - 2 * DAY, 60, bench.now)]
