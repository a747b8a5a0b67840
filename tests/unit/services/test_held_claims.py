"""The jobs that a pilot says it holds: the store compares them, and rows are read only where it differs."""

from __future__ import annotations

from pilotage.services.jobs.transitions import JobTransitions
from pilotage.services.pilots.held_claims import HeldClaims
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.pilot import ExchangeRequest, OfferedJob, Reference
from tests.unit.services.bench import Bench, Paper


def _holding(pilot: Paper, count: int) -> list[OfferedJob]:
    offers = pilot.take(count, processors=count)
    for offer in offers:
        pilot.confirm(offer)
    return offers


def _rows_read(bench: Bench, pilot: Paper, request: ExchangeRequest) -> set[int]:
    def read(tx: Transaction) -> set[int]:
        moves = JobTransitions(bench.pool, tx, bench.now, bench.pool.event_batch(bench.now, "test"))
        HeldClaims(moves).load([(pilot.row.id, request)])
        return set(moves.rows)

    return bench.do(read)


def test_only_reported_and_differing_jobs_are_read(bench: Bench) -> None:
    bench.submit(8)
    pilot = bench.pilot(processors=8)
    offers = _holding(pilot, 8)
    holding = [Reference(offer.job, offer.epoch) for offer in offers]
    reported, killed, gone = offers[0].job, offers[1].job, 10**12
    assert _rows_read(bench, pilot, pilot.request(holding=holding)) == set()
    assert _rows_read(bench, pilot, pilot.request(holding=holding, confirms=holding[:1])) == {reported}
    bench.act("kill", killed)
    holding.append(Reference(gone, 1))
    assert _rows_read(bench, pilot, pilot.request(holding=holding)) == {killed}
    stop = bench.do(pilot.asking(pilot.request(holding=holding))).stop
    assert {verdict.job for verdict in stop} == {killed, gone}


def test_a_claim_sees_changes_of_another_server(bench: Bench) -> None:
    bench.submit(3)
    pilot, other = bench.pilot(processors=3), bench.pilot()
    first, second, third = _holding(pilot, 3)
    assert pilot.stopped(first, second, third) == []

    def elsewhere(tx: Transaction) -> None:
        """This server's memory has no part in it."""
        sql = "UPDATE jobs SET epoch = epoch + 1, pilot_id = ? WHERE id = ?"
        tx.connection.execute(sql, (pilot.row.id, first.job))
        tx.connection.execute(sql, (other.row.id, second.job))

    bench.do(elsewhere)
    assert pilot.stopped(first, second, third) == [first.job, second.job]


def test_a_job_offered_again_in_one_transaction_is_compared_again(bench: Bench) -> None:
    [job] = bench.submit()
    pilot, other = bench.pilot(), bench.pilot()
    offer = pilot.hold()
    holding = [Reference(offer.job, offer.epoch)]
    answers = bench.together(
        other.asking(other.request(holding=holding)),
        pilot.asking(pilot.request(leaving="told to leave")),
        other.asking(other.request(take=other.asked())),
        pilot.asking(pilot.request(holding=holding)),
    )
    assert [[verdict.job for verdict in answer.stop] for answer in answers if answer.stop]
    assert bench.state(job) == "Matched"
    assert pilot.stopped(offer) == [job]
