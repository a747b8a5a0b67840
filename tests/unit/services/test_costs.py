"""Costs are booked step by step, in rows by CE and hour, and agree with a scan of all pilots and attempts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.core.errors import PilotageError
from pilotage.core.pilots.cost import CoreSeconds, HeldCores, book
from pilotage.services.pilots.costs import (
    SETTLING,
    CostQuestion,
    CostsBy,
    book_pilots,
    cost_report,
    save_bookings,
    unbooked,
)
from pilotage.services.pilots.enrolment import enrol
from pilotage.store.tables import costs, pilots
from pilotage.wire.costs import CostReport
from pilotage.wire.pilot import EnrolRequest, OfferedJob
from tests.pilot_intent import pilot_intent
from tests.unit.services.bench import LEASE, Bench, Paper


def book_all(bench: Bench) -> None:
    """One pass of the duty."""
    rows = unbooked(bench.connection, bench.pool.pilots.heard, bench.now)
    for bookings in list(book_pilots(bench.connection, rows)):
        bench.do(lambda tx, bookings=bookings: save_bookings(tx, bookings))


def report(bench: Bench, by: CostsBy = CostsBy.CE, **conditions: str | None) -> CostReport:
    question = CostQuestion(None, by, conditions.get("ce"), conditions.get("owner"))
    return cost_report(lambda: bench.connection, bench.pool.pilots.heard, question, bench.now)


def amounts(total: CoreSeconds | object) -> tuple[float, ...]:
    return tuple(getattr(total, kind) for kind in ("payload", "startup", "idle", "lost"))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.check()
    made.end()


def test_the_life_of_a_pilot(bench: Bench) -> None:
    bench.submit(1)
    bench.do(
        lambda tx: pilots.insert(
            tx.connection,
            pilot_intent("s", processors=2, submitted=bench.now),
        )
    )
    bench.later(100)
    request = EnrolRequest(secret="s", index=0, nonce="first", hostname="n1", age=30.0)
    bench.do(lambda tx: enrol(bench.pool, tx, request, bench.now))
    paper = Paper(bench, "s")
    bench.later(10)
    offer = paper.hold()
    bench.later(50)
    paper.send()
    bench.later(SETTLING)
    assert amounts(report(bench).total) == pytest.approx((50, 60, 70, 0)), "as far as it was heard"
    book_all(bench)
    assert amounts(report(bench).total) == pytest.approx((50, 60, 70, 0))
    paper.finish(offer)
    paper.send(leaving="idle")
    book_all(bench)
    book_all(bench)
    assert amounts(report(bench).total) == pytest.approx((52, 60, 72, 0))
    [row] = report(bench, CostsBy.OWNER).rows
    assert (row.name, row.payload) == ("alice", pytest.approx(52)), "its first match bound the pilot"
    assert amounts(report(bench, owner="bob").total) == (0, 0, 0, 0)


def test_a_pilot_that_vanishes_is_lost_from_its_last_sign_of_life(bench: Bench) -> None:
    bench.submit(1)
    paper = bench.pilot()
    paper.hold()
    bench.later(40)
    paper.send()
    bench.later(LEASE + 1)
    bench.duties()
    assert paper.row.ended == bench.now
    book_all(bench)
    assert amounts(report(bench).total) == pytest.approx((40, 0, 0, LEASE + 1))


def test_a_pilot_that_vanished_while_the_server_was_down(bench: Bench) -> None:
    paper = bench.pilot()
    bench.later(200)
    paper.send()
    bench.later(SETTLING)
    book_all(bench)
    bench.crash()
    bench.later(LEASE)
    bench.duties()
    book_all(bench)
    assert amounts(report(bench).total) == pytest.approx((0, 0, 200, LEASE + SETTLING))


def test_a_pilot_that_comes_back_was_lost_meanwhile(bench: Bench) -> None:
    paper = bench.pilot()
    bench.later(LEASE + 1)
    bench.duties()
    assert paper.row.state == "Failed"
    book_all(bench)
    bench.later(100)
    paper.send()
    bench.later(50)
    paper.send(leaving="idle")
    book_all(bench)
    assert amounts(report(bench).total) == pytest.approx((0, 0, 50, LEASE + 101))


def test_a_pilot_that_another_server_has_booked_counts_once(bench: Bench) -> None:
    paper = bench.pilot()
    bench.later(100)
    paper.send()
    bench.later(SETTLING)
    rows = unbooked(bench.connection, bench.pool.pilots.heard, bench.now)
    [bookings] = [made for made in book_pilots(bench.connection, rows) if made]
    for _ in range(2):
        bench.do(lambda tx: save_bookings(tx, bookings))
    assert report(bench).total.total == pytest.approx(100)
    assert of_pilots(bench) == pytest.approx((100, 0))


def test_costs_stay_when_jobs_move_to_history_and_pilots_are_deleted(bench: Bench) -> None:
    bench.submit(1)
    paper = bench.pilot()
    offer = paper.hold()
    bench.later(10)
    paper.finish(offer)
    paper.send(leaving="idle")
    book_all(bench)
    before = report(bench)
    bench.later(1)
    assert bench.tidy() == 1
    bench.connection.execute("DELETE FROM pilots")
    bench.connection.execute("DELETE FROM attempts")
    after = report(bench)
    assert (after.rows, after.total) == (before.rows, before.total)
    assert after.total.efficiency == 1.0


def test_a_report_by_month_and_since(bench: Bench) -> None:
    bench.now = 1.8e9
    papers = []
    for _ in range(3):
        paper = bench.pilot()
        papers.append(paper)
        bench.later(60)
        paper.send(leaving="idle")
        book_all(bench)
        bench.later(20 * 86400)
    assert [row.total for row in report(bench, CostsBy.MONTH).rows] == [pytest.approx(n) for n in (60, 120)]
    assert [row.name for row in report(bench, CostsBy.MONTH).rows] == ["2027-01", "2027-02"]
    last = CostQuestion(bench.now - 21 * 86400, CostsBy.CE)
    assert cost_report(lambda: bench.connection, {}, last, bench.now).total.total == pytest.approx(60)


def of_pilots(bench: Bench) -> tuple[float, float]:
    """The core-seconds that the rows of all pilots add up to, and the payload among them."""
    sql = "SELECT coalesce(sum(core_seconds), 0), coalesce(sum(payload_core_seconds), 0) FROM pilots"
    return tuple(map(float, bench.connection.execute(sql).fetchone()))  # type: ignore[return-value]


def in_costs(bench: Bench) -> tuple[float, float]:
    """The same, of the booked costs."""
    booked = costs.sums(bench.connection, 0, 10**12).values()
    return sum(row.total for row in booked), sum(row.payload for row in booked)


class History:
    """Pilots and jobs at random, booked at random instants."""

    def __init__(self, bench: Bench, rng: Random, *, may_return: bool) -> None:
        self.bench, self.rng, self.may_return = bench, rng, may_return
        self.live: list[tuple[Paper, list[OfferedJob]]] = []
        self.silent: list[Paper] = []

    def step(self) -> None:
        bench, rng = self.bench, self.rng
        moves = [self._start, self._take, self._finish, self._leave, self._vanish, self._beat, self._restart]
        if self.may_return:
            moves.append(self._return)
        rng.choice(moves)()
        if rng.random() < 0.3:
            book_all(bench)
            assert of_pilots(bench) == pytest.approx(in_costs(bench))
        if rng.random() < 0.1:
            bench.tidy()
        bench.later(rng.choice([0.0, 1.5, 20.0, 100.0, 4000.0 if rng.random() < 0.2 else 30.0]))

    def _start(self) -> None:
        self.bench.submit(self.rng.randint(1, 3), owner=self.rng.choice(["alice", "bob"]))
        self.live.append((self.bench.pilot(processors=self.rng.randint(1, 3)), []))

    def _some(self) -> tuple[Paper, list[OfferedJob]] | None:
        """A live pilot with its jobs; it forgets the jobs if its lease is over."""
        if not self.live:
            return None
        paper, jobs = self.rng.choice(self.live)
        if paper.row.ended is not None:
            if not self.may_return:
                self.live.remove((paper, jobs))
                return None
            jobs.clear()
        return paper, jobs

    def _take(self) -> None:
        if (some := self._some()) is not None:
            paper, jobs = some
            # One pilot may hold more jobs than it has cores.
            for offer in paper.take(2):
                paper.confirm(offer)
                jobs.append(offer)

    def _finish(self) -> None:
        if (some := self._some()) is not None and some[1]:
            some[0].finish(some[1].pop(), failure=self.rng.choice(["", "node"]))

    def _beat(self) -> None:
        for paper, _ in self.live:
            if paper.row.ended is None:
                paper.send()

    def _leave(self) -> None:
        if (some := self._some()) is not None:
            self.live.remove(some)
            some[0].send(leaving="idle")

    def _vanish(self) -> None:
        if (some := self._some()) is not None:
            self.live.remove(some)
            self.silent.append(some[0])

    def _return(self) -> None:
        if self.silent:
            paper = self.silent.pop()
            paper.send()
            self.live.append((paper, []))

    def _restart(self) -> None:
        self.bench.crash()

    def end(self) -> None:
        for paper, _ in self.live:
            if paper.row.ended is None:
                paper.send(leaving="idle")
        self.bench.later(LEASE + 1)
        self.bench.duties()
        book_all(self.bench)


def scanned(bench: Bench) -> CoreSeconds:
    """All core-seconds, from the rows of all pilots and all attempts at once."""
    total = CoreSeconds()
    held: dict[int, list[HeldCores]] = {}
    for batch in costs.held_cores(bench.connection, 0.0):
        for pilot, cores in batch:
            held.setdefault(pilot, []).append(cores)
    sql = f"SELECT {costs._PILOT} FROM pilots WHERE cores_from IS NOT NULL"
    for row in map(costs._to_pilot, bench.connection.execute(sql).fetchall()):
        assert row.cores_until is not None
        assert row.booked_until == row.cores_until
        for seconds in book(
            row.life, row.life.cores_from, row.cores_until, held.get(row.life.pilot, [])
        ).values():
            total.add(seconds)
    return total


def lifetime(bench: Bench) -> float:
    sql = "SELECT coalesce(sum(processors * (ended - started)), 0) FROM pilots WHERE started IS NOT NULL"
    return float(bench.connection.execute(sql).fetchone()[0])


@given(st.integers(0, 10**9), st.booleans())
def test_steps_agree_with_a_scan_and_with_the_lives_of_pilots(
    tmp_path_factory: pytest.TempPathFactory, seed: int, may_return: bool
) -> None:
    bench = Bench(tmp_path_factory.mktemp("costs"))
    try:
        history = History(bench, Random(seed), may_return=may_return)
        for _ in range(25):
            history.step()
        history.end()
        booked = report(bench).total
        assert booked.total == pytest.approx(lifetime(bench))
        assert of_pilots(bench) == pytest.approx((booked.total, booked.payload))
        if not may_return:
            assert amounts(booked) == pytest.approx(amounts(scanned(bench)))
        assert min(amounts(booked)) >= 0
    finally:
        bench.end()


def test_a_pilot_that_was_refused_books_nothing(bench: Bench) -> None:
    paper = bench.pilot()
    paper.send(leaving="idle")
    with pytest.raises(PilotageError):
        paper.enrol("second")
    book_all(bench)
    assert report(bench).total.total == 0
