"""Orders to leave: which pilot gets which, what its jobs lose (nothing), and what its end is called."""

from __future__ import annotations

import pytest

from pilotage.core.errors import Forbidden
from pilotage.core.ids import PilotId
from pilotage.core.pilots.orders import LeaveOrder, is_stronger, order_for
from pilotage.services.pilots.enrolment import enrol
from pilotage.services.pilots.lifecycle import end_absent_pilot
from pilotage.services.pilots.orders import Ordered, order_to_leave
from pilotage.store.tables import pilots
from pilotage.wire.pilot import EnrolRequest, Reference
from tests.pilot_intent import pilot_intent
from tests.unit.services.bench import Bench


def give(
    bench: Bench, ids: list[int], order: LeaveOrder, reason: str = "", *, dry_run: bool = False
) -> Ordered:
    return bench.do(
        lambda tx: order_to_leave(
            bench.pool, tx, [PilotId(id_) for id_ in ids], order,
            actor="user:root", reason=reason, now=bench.now, dry_run=dry_run,
        )
    )  # fmt: skip


def intent(bench: Bench) -> int:
    return bench.do(
        lambda tx: pilots.insert(
            tx.connection,
            pilot_intent("intent", submitted=bench.now),
        )
    )


def test_the_answer_counts_pilots_that_only_their_batch_system_can_end(bench: Bench) -> None:
    pilot, waiting = bench.pilot(), intent(bench)
    ordered = give(bench, [pilot.id, waiting, 99], LeaveOrder.CANCEL)
    assert (len(ordered.done), ordered.not_called, len(ordered.refused)) == (2, 1, 1)
    pilot.send(leaving="told to leave")
    assert give(bench, [pilot.id], LeaveOrder.CANCEL).not_called == 0, "it is refused, so it does not count"


def test_a_weaker_order_never_replaces_a_stronger_one() -> None:
    orders = ["", *LeaveOrder]
    stronger = [(str(new), old) for new in LeaveOrder for old in orders if is_stronger(new, old)]
    assert stronger == [
        ("drain", ""), ("cancel", ""), ("cancel", "drain"), ("kill", ""), ("kill", "drain"), ("kill", "cancel"),
    ]  # fmt: skip
    # The order of a turn is a drain.
    assert not is_stronger(LeaveOrder.DRAIN, "share:alice")
    assert is_stronger(LeaveOrder.CANCEL, "share:alice")


@pytest.mark.parametrize("order", list(LeaveOrder))
def test_a_pilot_that_never_called_home_is_always_killed(order: LeaveOrder) -> None:
    assert order_for(order, called_home=False) is LeaveOrder.KILL
    assert order_for(order, called_home=True) is order


@pytest.mark.parametrize(("order", "told"), [("cancel", "cancel"), ("kill", "cancel"), ("drain", "drain")])
def test_a_pilot_is_told_at_its_next_call_and_its_jobs_lose_no_try(
    bench: Bench, order: str, told: str
) -> None:
    running, offered = bench.submit(2)
    pilot = bench.pilot()
    held = pilot.hold()
    pilot.take()
    assert give(bench, [pilot.id], LeaveOrder(order), "broken disk").done == [pilot.id]
    answer = pilot.send(holding=[Reference(held.job, held.epoch)])
    assert answer.leave == told
    pilot.send(leaving="told to leave")
    past = "drained" if order == "drain" else "killed"
    row = pilot.row
    assert (row.state, row.reason) == (
        "Done" if order == "drain" else "Deleted",
        f"{past} by root: broken disk",
    )
    for job in (running, offered):
        assert (bench.state(job), bench.job(job)["failures"]) == ("Waiting", 0)
    kind = "pilot-drain" if order == "drain" else "pilot-kill"
    assert bench.kinds(kind) == [f"pilot {pilot.id}: {order}: broken disk"]
    sql = "SELECT actor FROM events WHERE kind = ?"
    assert [row[0] for row in bench.connection.execute(sql, (kind,))] == ["user:root"]


def test_a_killed_pilot_that_ends_without_a_word_costs_no_try(bench: Bench) -> None:
    [job] = bench.submit()
    pilot = bench.pilot()
    pilot.hold()
    give(bench, [pilot.id], LeaveOrder.KILL)
    bench.do(lambda tx: end_absent_pilot(bench.pool, tx, pilot.row, "CANCELLED", bench.now))
    assert (pilot.row.state, pilot.row.reason) == ("Deleted", "killed by root")
    assert (bench.state(job), bench.job(job)["failures"]) == ("Waiting", 0)


def test_a_drained_pilot_that_ends_without_a_word_has_vanished(bench: Bench) -> None:
    [job] = bench.submit()
    pilot = bench.pilot()
    pilot.hold()
    give(bench, [pilot.id], LeaveOrder.DRAIN)
    bench.do(lambda tx: end_absent_pilot(bench.pool, tx, pilot.row, "ended without a word", bench.now))
    assert (pilot.row.state, pilot.row.reason) == ("Failed", "ended without a word")
    assert bench.job(job)["failures"] == 1


def test_a_waiting_pilot_is_refused_when_it_calls_home_after_its_kill(bench: Bench) -> None:
    pilot = intent(bench)
    assert give(bench, [pilot], LeaveOrder.DRAIN).done == [pilot]
    assert bench.pilot_row(pilot).leave == "kill"
    request = EnrolRequest(secret="intent", index=0, nonce="n", hostname="n1")
    with pytest.raises(Forbidden, match="cancelled"):
        bench.do(lambda tx: enrol(bench.pool, tx, request, bench.now))
    assert pilots.killed(bench.connection, "local") == [pilot]
    bench.do(lambda tx: end_absent_pilot(bench.pool, tx, bench.pilot_row(pilot), "CANCELLED", bench.now))
    assert bench.pilot_row(pilot).state == "Deleted"
    assert pilots.killed(bench.connection, "local") == []


def test_pilots_are_refused_one_by_one(bench: Bench) -> None:
    alive, gone = bench.pilot(), bench.pilot()
    gone.send(leaving="idle")
    ordered = give(bench, [alive.id, gone.id, 999], LeaveOrder.CANCEL)
    assert ordered.done == [alive.id]
    assert ordered.refused == [(gone.id, "the pilot is already Done"), (999, "there is no such pilot")]


def test_the_same_order_again_is_done_and_recorded_once(bench: Bench) -> None:
    pilot = bench.pilot()
    for order in (LeaveOrder.CANCEL, LeaveOrder.CANCEL, LeaveOrder.DRAIN):
        assert give(bench, [pilot.id], order, "x").done == [pilot.id]
    assert (pilot.row.leave, len(bench.kinds("pilot-kill"))) == ("cancel", 1)


def test_a_dry_run_gives_no_order(bench: Bench) -> None:
    pilot = bench.pilot()
    assert give(bench, [pilot.id], LeaveOrder.KILL, dry_run=True).done == [pilot.id]
    assert (pilot.row.leave, bench.kinds("pilot-kill")) == ("", [])


def test_an_order_that_is_rolled_back_is_not_told(bench: Bench) -> None:
    pilot = bench.pilot()
    pilot.send()

    def fail() -> None:
        bench.do(
            lambda tx: [
                order_to_leave(
                    bench.pool,
                    tx,
                    [PilotId(pilot.id)],
                    LeaveOrder.CANCEL,
                    actor="user:root",
                    reason="",
                    now=bench.now,
                ),
                1 / 0,
            ]
        )

    with pytest.raises(ZeroDivisionError):
        fail()
    assert pilot.send().leave == ""
