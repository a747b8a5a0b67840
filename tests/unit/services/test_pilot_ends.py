"""Every way in which a pilot ends leaves the same behind: nothing in memory, a closed row, and jobs that go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pilotage.core.errors import IllegalMove
from pilotage.core.ids import PilotId
from pilotage.core.pilots.states import FINAL, PILOT_STATES, PilotState
from pilotage.core.shares.turns import Turn
from pilotage.services.pilots import leases
from pilotage.services.pilots.lifecycle import END_RULES, PilotEnd, end_absent_pilot, end_silent_pilot
from pilotage.store.tables import pilots
from pilotage.store.writer.transaction import Transaction
from tests.unit.services.bench import LEASE, POLICY, Bench, Paper

LIMITED = POLICY + '[[limits]]\nattribute = "job_type"\nvalue = "User"\nsite = "here"\nrunning = 2\n'

Ending = Callable[[Bench, Paper, Transaction], Any]


def lease_over(bench: Bench, pilot: Paper, tx: Transaction) -> None:
    assert leases.expire(bench.pool, tx, bench.now, [PilotId(pilot.id)]) == 1


def goodbye(bench: Bench, pilot: Paper, tx: Transaction) -> None:
    pilot.asking(pilot.request(leaving="idle"))(tx)


def unfit(bench: Bench, pilot: Paper, tx: Transaction) -> None:
    pilot.asking(pilot.request(leaving="its node cannot isolate payloads", unfit=True))(tx)


def gone(bench: Bench, pilot: Paper, tx: Transaction) -> None:
    end_absent_pilot(bench.pool, tx, bench.pilot_row(pilot.id), "killed", bench.now)


def never_started(bench: Bench, pilot: Paper, tx: Transaction) -> None:
    row = bench.pilot_row(pilot.id)
    end_silent_pilot(bench.pool, tx, row, PilotEnd.NEVER_STARTED, "no fork", bench.now)


def no_room(bench: Bench, pilot: Paper, tx: Transaction) -> None:
    row = bench.pilot_row(pilot.id)
    end_silent_pilot(bench.pool, tx, row, PilotEnd.NOT_TAKEN, "QOSMaxSubmitJobPerUserLimit", bench.now)


def cancelled(bench: Bench, pilot: Paper, tx: Transaction) -> None:
    row = bench.pilot_row(pilot.id)
    end_silent_pilot(bench.pool, tx, row, PilotEnd.CANCELLED, "as it was told", bench.now)


def restarted(bench: Bench, pilot: Paper, tx: Transaction) -> None:
    end_silent_pilot(
        bench.pool, tx, bench.pilot_row(pilot.id), PilotEnd.RESTARTED, "it began again", bench.now
    )


ENDINGS: dict[PilotEnd, Ending] = {
    PilotEnd.LEFT: goodbye,
    PilotEnd.LEASE_OVER: lease_over,
    PilotEnd.VANISHED: gone,
    PilotEnd.NEVER_STARTED: never_started,
    PilotEnd.NOT_TAKEN: no_room,
    PilotEnd.UNFIT: unfit,
    PilotEnd.RESTARTED: restarted,
    PilotEnd.CANCELLED: cancelled,
}
CALLED_HOME = [end for end in PilotEnd if end not in (PilotEnd.NEVER_STARTED, PilotEnd.NOT_TAKEN)]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path, LIMITED, store=request.param)
    yield made
    made.check()
    made.end()


@dataclass
class Scene:
    """A pilot with a finished, a running and an offered job, which is silent and has a turn."""

    bench: Bench
    pilot: Paper
    done: int
    running: int
    offered: int

    def memory(self) -> dict[str, Any]:
        pool, id_ = self.bench.pool, PilotId(self.pilot.id)
        return {
            "seen": pool.pilots.last_seen.get(id_),
            "unconfirmed": pool.pilots.unconfirmed.get(id_),
            "stalled": id_ in pool.pilots.stalled,
            "finished": pool.pilots.finished.get(id_),
            "turn": pool.shares.turns.running.get(id_),
            "limits": sum(meter.running for meter in pool.offers.limits.limiter._meters.values()),
        }


def busy_pilot(bench: Bench) -> Scene:
    jobs = bench.submit(3)
    pilot = bench.pilot()
    done = pilot.hold()
    assert pilot.finish(done) == "accepted"
    running = pilot.hold()
    [offered] = pilot.take()
    id_ = PilotId(pilot.id)
    bench.pool.shares.turns.start(id_, Turn("local", "alice", 60.0, begun=bench.now))
    bench.now += 50.0
    assert bench.do(lambda tx: leases.note_stalled(bench.pool, tx, bench.now)) == 1
    bench.now += LEASE
    assert set(jobs) == {done.job, running.job, offered.job}
    return Scene(bench, pilot, done.job, running.job, offered.job)


def finished_count(bench: Bench, pilot: int) -> int:
    return int(bench.connection.execute("SELECT finished FROM pilots WHERE id = ?", (pilot,)).fetchone()[0])


@pytest.mark.parametrize("end", CALLED_HOME)
def test_an_end_leaves_nothing_in_memory_and_closes_the_row(bench: Bench, end: PilotEnd) -> None:
    scene = busy_pilot(bench)
    assert None not in scene.memory().values()
    bench.do(lambda tx: ENDINGS[end](bench, scene.pilot, tx))
    assert scene.memory() == {
        "seen": None, "unconfirmed": None, "stalled": False, "finished": None, "turn": None, "limits": 0,
    }  # fmt: skip
    row, rule = bench.pilot_row(scene.pilot.id), END_RULES[end]
    assert (row.state, row.ended, row.lease_until) == (rule.state, bench.now, None)
    assert row.reason
    assert finished_count(bench, row.id) == 1
    assert len(bench.kinds(rule.event)) == 1
    assert pilots.live(bench.connection) == []
    assert bench.state(scene.done) == "Done"
    assert bench.state(scene.offered) == "Waiting"
    assert bench.state(scene.running) == ("Rescheduled" if rule.costs_try else "Waiting")
    assert bench.job(scene.running)["failures"] == int(rule.costs_try)
    assert bench.job(scene.offered)["failures"] == 0


@pytest.mark.parametrize("end", CALLED_HOME)
def test_an_end_that_fails_leaves_memory_as_it_was(bench: Bench, end: PilotEnd) -> None:
    scene = busy_pilot(bench)
    before = scene.memory()

    def fails(tx: Transaction) -> None:
        ENDINGS[end](bench, scene.pilot, tx)
        raise KeyError("on purpose")

    with pytest.raises(KeyError, match="on purpose"):
        bench.do(fails)
    assert scene.memory() == before
    assert bench.pilot_row(scene.pilot.id).ended is None
    bench.check()
    bench.do(lambda tx: ENDINGS[end](bench, scene.pilot, tx))
    assert finished_count(bench, scene.pilot.id) == 1


@pytest.mark.parametrize("end", [end for end in PilotEnd if not END_RULES[end].by_pilot])
def test_an_intent_that_ends_was_aborted_or_cancelled(bench: Bench, end: PilotEnd) -> None:
    pilot = intent(bench)
    bench.now += 10.0
    bench.do(lambda tx: ENDINGS[end](bench, pilot, tx))
    row = bench.pilot_row(pilot.id)
    blameless = end in (PilotEnd.CANCELLED, PilotEnd.NOT_TAKEN)
    assert row.state is (PilotState.DELETED if blameless else PilotState.ABORTED)
    assert (row.ended, row.lease_until) == (bench.now, None)


@pytest.mark.parametrize("end", [PilotEnd.LEFT, PilotEnd.CANCELLED])
def test_a_pilot_that_speaks_after_its_end_stays_ended(bench: Bench, end: PilotEnd) -> None:
    scene = busy_pilot(bench)
    bench.do(lambda tx: ENDINGS[end](bench, scene.pilot, tx))
    ended = bench.pilot_row(scene.pilot.id)
    bench.submit()
    bench.now += LEASE
    answer = scene.pilot.send(take=scene.pilot.asked(1))
    assert (answer.leave, answer.offers) == ("cancel", [])
    assert scene.memory()["seen"] is None
    assert bench.pilot_row(scene.pilot.id) == ended


def test_a_finish_after_the_end_is_counted_at_once(bench: Bench) -> None:
    bench.submit()
    pilot = bench.pilot()
    offer = pilot.hold()
    bench.do(lambda tx: goodbye(bench, pilot, tx))
    assert pilot.finish(offer) == "accepted"
    assert bench.state(offer.job) == "Done"
    assert finished_count(bench, pilot.id) == 1
    assert bench.pool.pilots.finished == {}


def test_a_pilot_does_not_end_twice(bench: Bench) -> None:
    scene = busy_pilot(bench)
    bench.do(lambda tx: goodbye(bench, scene.pilot, tx))
    for end in PilotEnd:
        row = bench.pilot_row(scene.pilot.id)
        with pytest.raises(IllegalMove):
            bench.do(
                lambda tx, end=end, row=row: end_silent_pilot(bench.pool, tx, row, end, "again", bench.now)
            )
    assert bench.pilot_row(scene.pilot.id).state is PilotState.DONE


def test_each_end_is_a_legal_move_to_a_final_state() -> None:
    assert set(END_RULES) == set(PilotEnd) == set(ENDINGS)
    for end, rule in END_RULES.items():
        assert {rule.state, rule.state_unheard} <= FINAL
        if end is not PilotEnd.NEVER_STARTED:
            PILOT_STATES.check(PilotState.RUNNING, rule.state)
        if not rule.by_pilot:
            PILOT_STATES.check(PilotState.SUBMITTED, rule.state_unheard)
            PILOT_STATES.check(PilotState.WAITING, rule.state_unheard)


def intent(bench: Bench) -> Paper:
    """A pilot that has not called home."""
    pilot = bench.pilot()
    bench.do(
        lambda tx: pilots.update(
            tx.connection, PilotId(pilot.id), state=PilotState.SUBMITTED, started=None, lease_until=bench.now
        )
    )
    return pilot
