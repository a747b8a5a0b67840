"""A job's way through the pool: hand-overs that succeed, are repeated, contradicted, lost and late."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from pilotage.core.errors import Forbidden, IncompatibleVersion, NotAuthenticated, Superseded
from pilotage.core.ids import JobId, QueueId
from pilotage.services.pilots import leases
from pilotage.services.pilots.enrolment import enrol
from pilotage.store.cluster import servers
from pilotage.store.tables import attempts, submissions
from pilotage.wire.pilot import EnrolRequest, Reference, RefusedOutput, Release
from tests.unit.services.bench import (
    HEARTBEAT,
    LEASE,
    MAX_RESCHEDULES,
    OFFER_TIMEOUT,
    RETRY_DELAY,
    Bench,
    Paper,
    dumped,
    finished,
)


def test_submit_take_confirm_finish(bench: Bench) -> None:
    [job] = bench.submit()
    pilot = bench.pilot()
    [offer] = pilot.take()
    assert (offer.job, offer.epoch) == (job, 1)
    assert bench.state(job) == "Matched"
    assert pilot.confirm(offer) == "accepted"
    assert bench.state(job) == "Running"
    assert pilot.finish(offer) == "accepted"
    assert bench.moves(job) == ["Waiting", "Matched", "Running", "Done"]
    assert bench.outcomes(job) == ["applied"]
    assert [event.actor for event in bench.history(job)] == ["user:alice", *[f"pilot:{pilot.id}"] * 3]


def test_the_same_take_again_gets_the_same_offers(bench: Bench) -> None:
    bench.submit(5)
    pilot = bench.pilot(processors=2)
    request = pilot.request(take=pilot.asked(2, processors=2))
    first = bench.do(pilot.asking(request))
    again = bench.do(pilot.asking(request))
    assert len(first.offers) == 2
    assert (again.offers, again.take_number) == (sorted(first.offers, key=lambda o: o.job), first.take_number)
    # Confirmed ones are offers no longer.
    pilot.confirm(first.offers[0])
    assert bench.do(pilot.asking(request)).offers == [first.offers[1]]


def test_an_older_take_gives_nothing_and_writes_nothing(bench: Bench) -> None:
    bench.submit(5)
    pilot = bench.pilot()
    pilot.take()
    pilot.take()
    before = bench.writes
    answer = pilot.send(take=pilot.asked(number=1))
    assert (answer.offers, answer.take_number) == ([], 0)
    assert bench.writes == before


def test_a_take_that_finds_nothing_says_why_and_writes_nothing(bench: Bench) -> None:
    bench.submit(processors=4)
    bench.submit(tags=("gpu",))
    bench.submit(tags=("ssd",))
    bench.submit(cpu_time=200000)
    pilot = bench.pilot()
    before = bench.writes
    answer = pilot.send(take=pilot.asked())
    assert answer.no_match == {"processors": 1, "tags": 2, "cpu-time": 1}
    # All pilots of the server may ask in vain 25 times a second.
    assert answer.poll == len(bench.pool.pilots.last_seen) / 25 > 0
    assert (answer.offers, answer.take_number) == ([], 0)
    assert bench.writes == before


def test_a_finish_is_accepted_again_and_its_contradiction_superseded(bench: Bench) -> None:
    [job] = bench.submit()
    pilot = bench.pilot()
    offer = pilot.hold()
    assert pilot.finish(offer, wall=5.0) == "accepted"
    history = bench.history(job)
    assert pilot.finish(offer, wall=5.0) == "accepted"
    assert pilot.finish(offer, wall=6.0) == "superseded"
    assert bench.history(job) == history
    answer = pilot.send(finishes=[finished(offer, wall=5.0), finished(offer, wall=7.0)])
    assert [verdict.verdict for verdict in answer.finishes] == ["accepted", "superseded"]


def test_a_finish_before_its_confirm_is_a_try_on_record(bench: Bench) -> None:
    [job] = bench.submit()
    pilot = bench.pilot()
    [offer] = pilot.take()
    assert pilot.finish(offer) == "accepted"
    assert bench.moves(job) == ["Waiting", "Matched", "Running", "Done"]
    assert bench.outcomes(job) == ["applied"]
    assert pilot.finish(offer) == "accepted"
    assert pilot.confirm(offer) == "superseded"


def test_messages_about_nothing(bench: Bench) -> None:
    bench.submit(2)
    pilot = bench.pilot()
    [offer] = pilot.take()
    answer = pilot.send(
        confirms=[Reference(offer.job, 9), Reference(offer.job, 0), Reference(999, 1)],
        releases=[Release(998, 1)],
        holding=[Reference(997, 1), Reference(offer.job, offer.epoch)],
    )
    assert [verdict.verdict for verdict in answer.confirms] == ["superseded", "superseded", "unknown"]
    assert [verdict.verdict for verdict in answer.releases] == ["unknown"]
    assert [(verdict.job, verdict.verdict) for verdict in answer.stop] == [(997, "unknown")]


def test_a_late_finish_is_applied_while_nobody_else_was_offered_the_job(bench: Bench) -> None:
    jobs = bench.submit(2)
    pilots = [bench.pilot(), bench.pilot()]
    offers = [pilot.hold() for pilot in pilots]
    bench.later(LEASE + 1)
    assert [bench.state(job) for job in jobs] == ["Rescheduled", "Rescheduled"]
    assert bench.pilot_row(pilots[0].id).state == "Failed"
    assert pilots[0].finish(offers[0]) == "accepted"
    assert bench.state(offers[0].job) == "Done"
    assert bench.pilot_row(pilots[0].id).state == "Running"
    bench.later(RETRY_DELAY)
    assert bench.state(offers[1].job) == "Waiting"
    assert pilots[1].finish(offers[1]) == "accepted"
    assert bench.moves(offers[1].job)[-3:] == ["Rescheduled", "Waiting", "Done"]
    assert bench.pool.queues.index.entries[QueueId(1)].waiting == 0


def test_a_late_finish_is_superseded_once_the_job_was_offered_again(bench: Bench) -> None:
    [job] = bench.submit()
    lost, other = bench.pilot(), bench.pilot()
    offer = lost.hold()
    bench.later(LEASE + 1)
    bench.later(RETRY_DELAY)
    [again] = other.take()
    assert (again.job, again.epoch) == (job, 2)
    assert lost.finish(offer) == "superseded"
    assert lost.stopped(offer) == [job]
    assert bench.state(job) == "Matched"
    other.confirm(again)
    assert other.finish(again) == "accepted"
    assert bench.outcomes(job) == ["lease over", "applied"]


def test_a_kill_before_the_finish_wins(bench: Bench) -> None:
    [job] = bench.submit()
    pilot = bench.pilot()
    offer = pilot.hold()
    assert bench.act("kill", job).done == [job]
    assert pilot.stopped(offer) == [job]
    assert pilot.finish(offer) == "superseded"
    assert bench.state(job) == "Killed"
    assert bench.outcomes(job) == ["killed"]


def test_a_report_of_a_killed_try_does_not_count_for_the_rescheduled_job(bench: Bench) -> None:
    [job] = bench.submit()
    pilot = bench.pilot()
    offer = pilot.hold()
    bench.act("kill", job)
    assert bench.act("reschedule", job).done == [job]
    assert pilot.finish(offer) == "superseded"
    assert bench.state(job) == "Waiting"
    again = pilot.hold()
    assert pilot.finish(again) == "accepted"
    assert bench.outcomes(job) == ["killed", "applied"]


def test_a_finish_before_the_kill_wins(bench: Bench) -> None:
    [job] = bench.submit()
    pilot = bench.pilot()
    pilot.finish(pilot.hold())
    outcome = bench.act("kill", job)
    assert (outcome.done, outcome.refused) == ([], [(job, "the job is already Done")])
    assert bench.state(job) == "Done"


def test_a_dry_run_of_a_kill_changes_nothing(bench: Bench) -> None:
    [job] = bench.submit()
    before = bench.writes
    assert bench.act("kill", job, dry_run=True).done == [job]
    assert bench.writes == before


@pytest.mark.parametrize("confirmed", [False, True])
def test_a_release_gives_back_at_once_and_counts_as_nothing(bench: Bench, confirmed: bool) -> None:
    [job] = bench.submit()
    pilot = bench.pilot()
    for _ in range(MAX_RESCHEDULES + 2):
        offer = pilot.hold() if confirmed else pilot.take()[0]
        assert pilot.release(offer) == "accepted"
        assert bench.state(job) == "Waiting"
    assert bench.job(job)["failures"] == 0
    offer = pilot.hold()
    assert offer.epoch == MAX_RESCHEDULES + 3


def test_jobs_of_a_pilot_that_leaves_go_back(bench: Bench) -> None:
    bench.submit(2)
    pilot = bench.pilot(processors=2)
    held, offered = pilot.take(2, processors=2)
    pilot.confirm(held)
    assert pilot.send(leaving="idle").leave == "cancel" or bench.pilot_row(pilot.id).state == "Done"
    assert bench.moves(held.job)[-2:] == ["Rescheduled", "Waiting"]
    assert bench.moves(offered.job) == ["Waiting", "Matched", "Waiting"]
    # It has left: nothing more is given to it, and it cannot come again.
    assert pilot.take() == []
    with pytest.raises(Forbidden):
        pilot.enrol("second")


def test_a_job_whose_pilots_are_lost_is_tried_again_and_then_fails(bench: Bench) -> None:
    [job] = bench.submit()
    for _ in range(MAX_RESCHEDULES):
        bench.pilot().hold()
        bench.later(LEASE + 1)
        assert bench.state(job) == "Rescheduled"
        bench.later(RETRY_DELAY - 1)
        assert bench.state(job) == "Rescheduled"
        bench.later(1)
        assert bench.state(job) == "Waiting"
    bench.pilot().hold()
    bench.later(LEASE + 1)
    assert bench.state(job) == "Failed"
    assert "3 times" in bench.job(job)["reason"]
    assert bench.outcomes(job) == ["lease over"] * 3


@pytest.mark.parametrize("failure", ["node", "input", "output", "cut-off", "killed", "of a newer pilot"])
def test_failures_that_are_not_the_payloads_own_are_tried_again_so_often(bench: Bench, failure: str) -> None:
    [job] = bench.submit()
    pilot = bench.pilot()
    for _ in range(MAX_RESCHEDULES):
        assert pilot.finish(pilot.hold(), failure=failure, exit_code=None) == "accepted"
        assert bench.state(job) == "Rescheduled"
        bench.later(RETRY_DELAY)
    pilot.finish(pilot.hold(), failure=failure, exit_code=None)
    assert bench.state(job) == "Failed"
    assert bench.outcomes(job) == ["retried", "retried", "applied"]


@pytest.mark.parametrize(
    "content",
    [{"exit_code": 3}, {"exit_code": None, "signal": 11}]
    + [{"exit_code": None, "failure": f"limit-{what}"} for what in ("wall", "cpu", "memory")],
)
@pytest.mark.parametrize("retries", [0, 1])
def test_the_payloads_own_failures_are_tried_again_only_as_the_job_asks(
    bench: Bench, content: dict[str, Any], retries: int
) -> None:
    [job] = bench.submit(retries=retries)
    pilot = bench.pilot()
    for _ in range(retries):
        pilot.finish(pilot.hold(), **content)
        assert bench.state(job) == "Rescheduled"
        bench.later(RETRY_DELAY)
    pilot.finish(pilot.hold(), **content)
    assert bench.state(job) == "Failed"
    assert bench.outcomes(job)[-1] == "applied"


def test_a_lost_pilot_keeps_its_count_of_finished_jobs(bench: Bench) -> None:
    bench.submit(3)
    pilot = bench.pilot()
    for _ in range(3):
        pilot.finish(pilot.hold())
    bench.later(LEASE + 1)
    assert bench.pilot_row(pilot.id).state == "Failed"
    [finished] = bench.do(lambda tx: tx.connection.execute("SELECT finished FROM pilots").fetchone())
    assert finished == 3
    assert pilot.id not in bench.pool.pilots.last_seen
    assert pilot.id not in bench.pool.pilots.finished


def test_a_failure_of_the_node_uses_up_none_of_the_payloads_own_retries(bench: Bench) -> None:
    [job] = bench.submit(retries=1)
    pilot = bench.pilot()
    for content in ({"exit_code": None, "failure": "node"}, {"exit_code": 3}):
        pilot.finish(pilot.hold(), **content)
        assert bench.state(job) == "Rescheduled"
        bench.later(RETRY_DELAY)
    pilot.finish(pilot.hold(), exit_code=3)
    assert bench.state(job) == "Failed"


def test_a_late_failure_of_the_payload_counts_as_its_own(bench: Bench) -> None:
    [job] = bench.submit(retries=1)
    lost = bench.pilot()
    offer = lost.hold()
    bench.later(LEASE + 1)
    assert lost.finish(offer, exit_code=3) == "accepted"
    assert bench.state(job) in ("Rescheduled", "Waiting")
    bench.later(RETRY_DELAY)
    pilot = bench.pilot()
    pilot.finish(pilot.hold(), exit_code=3)
    assert bench.state(job) == "Failed"


def test_the_first_of_several_offers_lapses_in_time_after_a_restart(bench: Bench) -> None:
    first, second = bench.submit(2)
    pilot = bench.pilot(processors=2)
    [offer] = pilot.take(processors=2)
    bench.later(OFFER_TIMEOUT / 2)
    [later] = pilot.take(processors=2)
    assert {offer.job, later.job} == {first, second}
    bench.close()
    bench.open()
    bench.later(OFFER_TIMEOUT / 2 + 1.0)
    assert (bench.state(offer.job), bench.state(later.job)) == ("Waiting", "Matched")
    bench.later(OFFER_TIMEOUT / 2)
    assert bench.state(later.job) == "Waiting"


def test_offers_lapse(bench: Bench) -> None:
    [job] = bench.submit()
    pilot = bench.pilot()
    [offer] = pilot.take()
    bench.later(OFFER_TIMEOUT)
    assert bench.state(job) == "Matched"
    bench.later(1)
    assert bench.state(job) == "Waiting"
    assert pilot.confirm(offer) == "superseded"
    assert pilot.stopped(offer) == [job]
    assert bench.job(job)["failures"] == 0


def test_silent_pilots_stall_and_are_heard_again(bench: Bench) -> None:
    [job] = bench.submit()
    pilot = bench.pilot()
    offer = pilot.hold()
    bench.later(4 * HEARTBEAT - 1)
    assert bench.state(job) == "Running"
    bench.later(1)
    assert bench.state(job) == "Stalled"
    assert pilot.stopped(offer) == []
    assert bench.moves(job)[-2:] == ["Stalled", "Running"]
    bench.later(4 * HEARTBEAT)
    assert pilot.finish(offer) == "accepted"
    assert bench.state(job) == "Done"


def test_a_stalled_pilot_is_heard_again_though_its_group_of_requests_failed(bench: Bench) -> None:
    [job] = bench.submit()
    pilot = bench.pilot()
    pilot.hold()
    bench.later(5 * HEARTBEAT)

    def fails(_: Any) -> None:
        raise RuntimeError("this one only")

    answers = bench.together(pilot.asking(pilot.request()), fails)
    assert isinstance(answers[1], RuntimeError)
    assert bench.state(job) == "Running"


def test_stalled_jobs_are_known_after_a_restart(bench: Bench) -> None:
    [job] = bench.submit()
    pilot = bench.pilot()
    pilot.hold()
    bench.later(5 * HEARTBEAT)
    bench.crash()
    pilot.send()
    assert bench.state(job) == "Running"


def test_another_nonce_supersedes_the_pilot_and_raises_an_alarm(bench: Bench) -> None:
    bench.submit(3)
    pilot = bench.pilot()
    for _ in range(2):
        pilot.finish(pilot.hold())
    offer = pilot.hold()
    old = pilot.token
    pilot.enrol("second")
    assert bench.moves(offer.job)[-2:] == ["Rescheduled", "Waiting"]
    [alarm] = bench.kinds("alarm")
    assert f"pilot {pilot.id}" in alarm
    new, pilot.token = pilot.token, old
    with pytest.raises(NotAuthenticated):
        pilot.send()
    # The program is a new one and counts its takes from 1.
    pilot.token, pilot.number = new, 1
    assert pilot.hold().epoch == 2


def test_the_same_nonce_again_is_the_same_pilot_and_no_alarm(bench: Bench) -> None:
    [job] = bench.submit()
    pilot = bench.pilot()
    offer = pilot.hold()
    pilot.enrol("first")
    assert bench.kinds("alarm") == []
    assert bench.state(job) == "Running"
    assert pilot.finish(offer) == "accepted"


def test_who_may_enrol(bench: Bench) -> None:
    def ask(**more: Any) -> None:
        plain = {"secret": "unknown", "index": 0, "nonce": "n", **more}
        bench.do(lambda tx: enrol(bench.pool, tx, EnrolRequest(**plain), bench.now))

    with pytest.raises(NotAuthenticated):
        ask()
    with pytest.raises(NotAuthenticated):
        ask(secret=bench.pilot().secret, index=1)
    with pytest.raises(IncompatibleVersion):
        ask(protocol=99)


def test_a_message_of_another_incarnation_is_superseded(bench: Bench) -> None:
    [job] = bench.submit()
    pilot = bench.pilot()
    offer = pilot.hold()
    bench.do(lambda tx: tx.connection.execute("UPDATE instance SET incarnation = 2"))
    bench.crash()
    with pytest.raises(Superseded):
        pilot.finish(offer)
    assert bench.state(job) == "Running"


def test_a_pilot_may_not_speak_of_another_pilots_job(bench: Bench) -> None:
    [job] = bench.submit()
    pilot, thief = bench.pilot(), bench.pilot()
    [offer] = pilot.take()
    for _ in range(2):
        assert thief.confirm(offer) == "superseded"
        assert thief.finish(offer) == "superseded"
        assert thief.release(offer) == "superseded"
        assert thief.stopped(offer) == [job]
        pilot.confirm(offer)
    assert bench.moves(job) == ["Waiting", "Matched", "Running"]
    bench.later(LEASE + 1)
    assert thief.finish(offer) == "superseded"
    assert bench.state(job) == "Rescheduled"


def test_an_outage_costs_no_lease(bench: Bench) -> None:
    bench.sign_of_life()
    [job] = bench.submit()
    pilot = bench.pilot()
    offer = pilot.hold()
    [other] = bench.submit()
    [offered] = bench.pilot().take()
    bench.crash()
    bench.now += 10 * LEASE
    assert bench.sign_of_life() == 10 * LEASE
    bench.duties()
    assert (bench.state(job), bench.state(other)) == ("Running", "Matched")
    assert bench.sign_of_life() == 0
    assert offered.job == other
    assert pilot.finish(offer) == "accepted"
    assert len(bench.kinds("outage")) == 1


def test_without_the_credit_the_same_outage_would_have_ended_the_lease(bench: Bench) -> None:
    [job] = bench.submit()
    bench.pilot().hold()
    bench.now += 10 * LEASE
    bench.do(lambda tx: leases.expire(bench.pool, tx, bench.now))
    assert bench.state(job) == "Rescheduled"


def test_a_clock_that_steps_back_takes_the_leases_with_it(bench: Bench) -> None:
    bench.sign_of_life()
    [job] = bench.submit()
    bench.pilot().hold()
    bench.now -= 500
    assert bench.sign_of_life() == -500
    bench.later(LEASE - 1)
    assert bench.state(job) == "Stalled"
    bench.later(2)
    assert bench.state(job) == "Rescheduled"


@pytest.mark.parametrize("down", [False, True])
def test_a_clock_that_steps_back_takes_the_retry_delays_with_it(bench: Bench, down: bool) -> None:
    bench.sign_of_life()
    [job, other] = bench.submit(2)
    for _ in range(2):
        pilot = bench.pilot()
        pilot.finish(pilot.hold(), failure="node", exit_code=None)
    assert bench.state(job) == bench.state(other) == "Rescheduled"
    if down:
        bench.crash()
    bench.now -= 3600
    assert bench.sign_of_life() == -3600
    bench.later(1)
    assert bench.state(job) == "Rescheduled"
    bench.later(RETRY_DELAY)
    assert bench.state(job) == bench.state(other) == "Waiting"


def test_a_clock_that_steps_back_moves_what_servers_tell_by_instants(bench: Bench) -> None:
    bench.sign_of_life()
    now, connection = bench.now, bench.connection
    for name, alive_at in (("dead", now - 5), ("quick", now - 3600)):
        row = servers.ServerRow(name, "h", f"u{name}", "v", now, alive_at, 1)
        bench.do(lambda tx, row=row: servers.register(tx.connection, row))
    bench.do(lambda tx: tx.connection.execute("DELETE FROM duties"))
    sql = "INSERT INTO duties (name, holder, epoch, until) VALUES (?, ?, 1, ?)"
    bench.do(lambda tx: tx.connection.execute(sql, ("of-dead", "dead", now + 10)))
    bench.do(lambda tx: tx.connection.execute(sql, ("of-quick", "quick", now - 3600 + 15)))
    bench.now -= 3600
    bench.sign_of_life()
    alive = {row.name: row.alive_at for row in servers.live(connection)}
    assert (alive["dead"], alive["quick"]) == (now - 3605, now - 3600)
    until = dict(connection.execute("SELECT name, until FROM duties").fetchall())
    assert until == {"of-dead": now - 3590, "of-quick": now - 3585}


def test_a_heartbeat_renews_the_lease_but_writes_only_when_a_third_has_gone(bench: Bench) -> None:
    bench.sign_of_life()
    pilot = bench.pilot()
    before = bench.writes
    bench.now += LEASE / 3 - 1
    pilot.send()
    assert bench.writes == before
    bench.now += 2
    pilot.send()
    assert bench.writes == before + 1
    assert pilot.row.lease_until == bench.now + LEASE


def test_a_job_rescheduled_by_hand_starts_its_count_again(bench: Bench) -> None:
    [job] = bench.submit()
    pilot = bench.pilot()
    pilot.finish(pilot.hold(), exit_code=1)
    assert bench.state(job) == "Failed"
    assert bench.act("reschedule", job).done == [job]
    assert bench.moves(job)[-2:] == ["Rescheduled", "Waiting"]
    assert bench.job(job)["failures"] == 0
    offer = pilot.hold()
    bench.act("kill", job)
    assert pilot.finish(offer) == "superseded"
    bench.act("reschedule", job)
    # Failed once by its own result, killed once: the second result is another one.
    assert pilot.hold().epoch == 3


def test_a_job_can_be_rescheduled_long_after_its_queue_was_forgotten(bench: Bench) -> None:
    [job] = bench.submit()
    pilot = bench.pilot()
    pilot.finish(pilot.hold(), exit_code=1)
    forget_queues(bench)
    assert bench.connection.execute("SELECT count(*) FROM queues").fetchone() == (0,)
    # Another's queue must not get the id that the old job points to.
    bench.submit(owner="bob")
    assert bench.act("reschedule", job).done == [job]
    bench.now += 100
    other = bench.pilot(only_owner="bob")
    assert [offer.payload.owner for offer in other.take()] == ["bob"]
    assert other.take() == []
    assert [offer.job for offer in pilot.take()] == [job]


def forget_queues(bench: Bench) -> None:
    """Two cycles of the duty, a day apart."""
    for _ in range(2):
        bench.do(lambda tx: submissions.mark_empty_queues(tx.connection, bench.now))
        gone = bench.do(lambda tx: submissions.delete_empty_queues(tx.connection, bench.now - 86400))
        bench.do(lambda tx, gone=gone: bench.pool.forget_queues(tx, gone))
        bench.now += 86401


def test_a_queue_with_a_job_that_runs_for_days_is_not_forgotten(bench: Bench) -> None:
    [job] = bench.submit()
    pilot = bench.pilot()
    pilot.finish(pilot.hold(), exit_code=1)
    bench.do(lambda tx: submissions.mark_empty_queues(tx.connection, bench.now))
    bench.act("reschedule", job)
    pilot.hold()
    bench.now += 2 * 86400
    assert bench.do(lambda tx: submissions.delete_empty_queues(tx.connection, bench.now - 86400)) == []


def test_a_deleted_job_leaves_only_its_events(bench: Bench) -> None:
    [job] = bench.submit()
    pilot = bench.pilot()
    pilot.finish(pilot.hold(), stdout="aGk=", stderr="")
    assert bench.connection.execute("SELECT stdout FROM results").fetchall() == [(b"hi",)]
    assert bench.act("delete", job).done == [job]
    assert bench.connection.execute("SELECT * FROM results").fetchall() == []
    assert bench.moves(job)[-1] == "Deleted"
    assert bench.act("delete", job).refused == [(job, "the job is already Deleted")]


def test_a_pilot_that_is_told_to_leave_gets_no_work(bench: Bench) -> None:
    bench.submit()
    pilot = bench.pilot()
    bench.set("server", draining=True)
    answer = pilot.send(take=pilot.asked())
    assert (answer.offers, answer.leave) == ([], "drain")
    bench.set("server", draining=False)
    assert len(pilot.take()) == 1


def test_answers_do_not_depend_on_caches(bench: Bench) -> None:
    """The same exchange after a restart gets the same answer."""
    bench.submit(3)
    pilot: Paper = bench.pilot(processors=2)
    [held, other] = pilot.take(2, processors=2)
    pilot.confirm(held)
    request = pilot.request(
        finishes=[finished(held)],
        confirms=[Reference(other.job, other.epoch)],
        holding=[Reference(other.job, other.epoch)],
    )
    first = bench.do(pilot.asking(request))
    bench.crash(pilot.asking(request))
    assert dumped(bench.do(pilot.asking(request))) == dumped(first)


def test_missing_and_refused_outputs_leave_the_state_and_are_told(bench: Bench) -> None:
    bench.submit(3)
    pilot = bench.pilot(processors=3)
    jobs = []
    refused = [RefusedOutput("n" * 5000, "r" * 5000)] * 5000
    contents: list[dict[str, Any]] = [
        {"missing": ["*.root", "log"]},
        {"refused": refused},
        {"missing": ["*.root"], "exit_code": 3},
    ]
    for content in contents:
        offer = pilot.hold()
        jobs.append(offer.job)
        assert pilot.finish(offer, **content) == "accepted"
    assert [bench.state(job) for job in jobs] == ["Done", "Done", "Failed"]
    assert bench.history(jobs[0])[-1].detail == "no file matches the output '*.root' (and 1 more)"
    assert bench.history(jobs[2])[-1].detail == "exit code 3"
    detail = bench.history(jobs[1])[-1].detail
    assert detail.startswith("output 'nnn")
    assert "was not stored: rrr" in detail
    # What a pilot says is bounded before it is stored.
    assert len(detail) < 500
    stored = attempts.result_of(bench.connection, JobId(jobs[1]), 1)
    assert stored is not None
    assert len(stored.refused) == 100
    assert all(len(name) == 1000 and len(reason) == 200 for name, reason in stored.refused)


@pytest.mark.parametrize("count", [2, 20])
def test_a_job_given_back_and_the_heads_read_in_one_message_are_all_given_out(
    bench: Bench, count: int
) -> None:
    """The index counted the job, but the store did not have it yet when the heads were read: nobody ever got it."""
    jobs = bench.submit(count)
    pilot = bench.pilot()
    [offer] = pilot.take()
    # As after a start: no head is known.
    bench.close()
    bench.open()
    answer = pilot.send(releases=[Release(offer.job, offer.epoch, "test")], take=pilot.asked(1))
    given = [one.job for one in answer.offers]
    pilot.number = answer.take_number + 1
    while more := pilot.take(5):
        given += [one.job for one in more]
    assert sorted(given) == jobs


def test_a_finish_that_comes_after_a_kill_leaves_what_was_printed(bench: Bench) -> None:
    [job] = bench.submit()
    pilot, thief = bench.pilot(), bench.pilot()
    offer = pilot.hold()
    bench.act("kill", job)
    printed = base64.b64encode(b"so far").decode()
    assert thief.finish(offer, stdout=base64.b64encode(b"mine").decode()) == "superseded"
    assert attempts.result_of(bench.connection, JobId(job), 1) is None
    assert pilot.finish(offer, stdout=printed, stderr="", exit_code=0) == "superseded"
    stored = attempts.result_of(bench.connection, JobId(job), 1)
    assert stored is not None
    assert stored.stdout == b"so far"
    assert bench.state(job) == "Killed"


def test_a_pilot_is_told_to_keep_the_output_of_killed_jobs_only(bench: Bench) -> None:
    [job] = bench.submit()
    pilot = bench.pilot()
    offer = pilot.hold()
    held = [Reference(offer.job, offer.epoch)]
    assert pilot.send(holding=held).stop == []
    bench.act("kill", job)
    [stop] = pilot.send(holding=held).stop
    assert stop.keep_streams
    bench.act("reschedule", job)
    bench.pilot().hold()
    [stop] = pilot.send(holding=held).stop
    assert not stop.keep_streams
