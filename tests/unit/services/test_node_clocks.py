"""A node whose clock is off stands in the report of its CE, and once in the event log for each change."""

from __future__ import annotations

from pilotage.core.pilots.clocks import FURTHEST
from pilotage.core.pilots.cost import CoreSeconds, CostKey
from pilotage.services.director.ce_status import USE_WINDOW, clocks_off, recent_use
from pilotage.services.pilots.enrolment import enrol
from pilotage.store.tables import costs, pilots
from pilotage.wire.pilot import EnrolRequest
from tests.pilot_intent import pilot_intent
from tests.unit.services.bench import Bench


def call_home(bench: Bench, stamp: str, node: str, clock: float) -> None:
    bench.do(
        lambda tx: pilots.insert(
            tx.connection,
            pilot_intent(stamp, submitted=bench.now),
        )
    )
    request = EnrolRequest(secret=stamp, index=0, nonce="first", hostname=node, clock=clock)
    bench.do(lambda tx: enrol(bench.pool, tx, request, bench.now))
    bench.later(1)


def off(bench: Bench) -> list[tuple[str, str]]:
    return [(clock.node, clock.text) for clock in clocks_off(bench.connection, "local")]


def test_a_clock_that_is_off_is_shown_until_a_pilot_reports_a_right_one(bench: Bench) -> None:
    call_home(bench, "a", "n1", bench.now + 59)
    call_home(bench, "b", "n2", 0.0)
    assert (off(bench), bench.kinds("clock")) == ([], []), "within the tolerance, and not told"
    call_home(bench, "c", "n1", bench.now + 125)
    call_home(bench, "d", "n1", bench.now + 126)
    call_home(bench, "e", "n2", bench.now - 500)
    assert off(bench) == [("n2", "500 s behind the server"), ("n1", "126 s ahead of the server")]
    first, second = (
        "CE local: the clock of node n1 is 125 s ahead of the server",
        "CE local: the clock of node n2 is 500 s behind the server",
    )
    assert bench.kinds("clock") == [first, second], "once for each change"
    assert clocks_off(bench.connection, "home") == []
    call_home(bench, "f", "n2", bench.now)
    assert off(bench) == [("n1", "126 s ahead of the server")]
    call_home(bench, "g", "n2", bench.now - 500)
    assert bench.kinds("clock") == [first, second, second], "it is off again"


def test_an_absurd_clock_is_stored_as_the_furthest(bench: Bench) -> None:
    call_home(bench, "a", "n1", 1e308)
    call_home(bench, "b", "n2", -1e308)
    assert sorted(clock.offset for clock in clocks_off(bench.connection, "local")) == [-FURTHEST, FURTHEST]


def test_the_efficiency_of_a_ce_is_that_of_its_last_day(bench: Bench) -> None:
    bench.now = 1.8e9
    recent, old = (int((bench.now - ago) // 3600) * 3600 for ago in (60.0, 2 * USE_WINDOW))
    booked = {
        CostKey("local", recent, "alice", "physics"): CoreSeconds(payload=300.0),
        CostKey("local", recent, "", ""): CoreSeconds(startup=20.0, idle=50.0, lost=30.0),
        CostKey("local", old, "", ""): CoreSeconds(idle=1000.0),
        CostKey("home", recent, "", ""): CoreSeconds(idle=1000.0),
    }
    bench.do(lambda tx: costs.add(tx.connection, booked))
    use = recent_use(bench.connection, "local", bench.now)
    assert (use.total, use.efficiency) == (400.0, 0.75)
    assert recent_use(bench.connection, "nowhere", bench.now).efficiency is None
