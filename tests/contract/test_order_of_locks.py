"""Changes of many rows lock them in the order of their ids, so that two servers never wait for each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any, cast

import pytest

from pilotage.core.ids import PilotId
from pilotage.core.jobs.states import JobState
from pilotage.core.pilots.handover import SubmissionPhase
from pilotage.outside.batch.submission import BatchListing, ListedTask, NativeState
from pilotage.services.director.ce_director import CeDirector
from pilotage.services.director.iteration_orders import IterationOrders
from pilotage.services.director.listing_comparison import ListingComparison, Observation
from pilotage.services.director.observing import observe_some
from pilotage.services.jobs import dependants
from pilotage.services.jobs.actions import act
from pilotage.services.pilots import leases
from pilotage.services.tokens.changes import revoke_pilot
from pilotage.store.tables import agents, chains, held_jobs, history, jobs, pilots
from pilotage.store.tables.pilot_submissions import PilotSubmissionRow
from pilotage.store.writer.transaction import Transaction
from tests.contract.one_of_several import One
from tests.contract.test_dependants_at_several_servers import end, pair, settle, state_of, submit
from tests.pilot_intent import pilot_intent
from tests.unit.services.workqueue.race import Race

__all__ = ["pair"]
pytestmark = pytest.mark.slow
Request = Callable[[Transaction], object]


@pytest.fixture
def race(pair: tuple[One, One]) -> Iterator[Race]:
    made = Race(cast("Any", pair[0]), cast("Any", pair[1]))
    yield made
    made.end()


def insert_pilots(tx: Transaction) -> None:
    for number in (1, 2):
        pilots.insert(tx.connection, pilot_intent(f"s{number}/0"))
        row = {"server": "a", "state": "Running", "lease_until": 300.0, "jobs": f"[{3 - number}]"}
        pilots.update(tx.connection, PilotId(number), **row)


def lock_one_by_one(race: Race, table: str) -> Request:
    def lock(tx: Transaction) -> None:
        for row in (1, 2):
            tx.connection.execute(f"SELECT 1 FROM {table} WHERE id = ? FOR UPDATE", (row,))
            race.pause()

    return lock


def check(race: Race, pair: tuple[One, One], table: str, change: Request) -> None:
    """While one server locks two rows one by one, the other one changes both."""
    for answer in race.run(lock_one_by_one(race, table), change):
        assert not isinstance(answer, BaseException), answer
    assert [one.writer.races for one in pair] == [0, 0]


def stall(one: One, tx: Transaction) -> object:
    known = one.pool.pilots
    for pilot in (PilotId(1), PilotId(2)):
        known.last_seen[pilot] = 0.0
        known.watch.add(pilot, "none", 0.0)
    found = known.watch.find_silent(known.last_seen, known.stalled, lambda ce: 10.0, 500.0)
    return leases.note_stalled(one.pool, tx, 500.0, found)


def see_nothing(one: One, tx: Transaction) -> object:
    """A listing shows the end of both pilots, each of a submission of its own."""
    director = CeDirector("none", IterationOrders("el9"))
    rest = ("none", SubmissionPhase.RELEASED, 1, "7", "1", None, "", 1.0, 0, "", None)
    observations = [
        Observation(
            PilotSubmissionRow(number, f"s{number}", *rest),
            [ListedTask(f"s{number}", 0, f"7.{number}", NativeState.ENDED, "ended", "", "n1")],
        )
        for number in (1, 2)
    ]
    comparison = ListingComparison(BatchListing("1"), 500.0, frozenset(("s1", "s2")), (), observations)
    return observe_some(director, one.pool, tx, comparison, observations, 500.0)


@pytest.mark.parametrize(
    "take",
    [
        stall,
        lambda one, tx: leases.expire(one.pool, tx, 500.0, [PilotId(1), PilotId(2)]),
        see_nothing,
    ],
)
def test_jobs_of_several_pilots_are_taken_in_the_order_of_ids(
    race: Race, pair: tuple[One, One], take: Callable[[One, Transaction], object]
) -> None:
    """The first pilot has the second job. A person changes both jobs meanwhile."""
    offered(pair[0])
    pair[0].do(lambda tx: tx.connection.execute("UPDATE jobs SET state = 'Running'"))
    pair[0].do(lambda tx: tx.connection.execute("UPDATE pilots SET server = 'b', started = 1.0"))
    check(race, pair, "jobs", lambda tx: take(pair[1], tx))
    rows = pair[0].do(lambda tx: tx.connection.execute("SELECT state FROM jobs").fetchall())
    assert "Running" not in {row[0] for row in rows}


@pytest.mark.parametrize(
    "extend",
    [
        lambda tx: pilots.extend_leases(tx.connection, 10.0, 0.0),
        lambda tx: pilots.extend_leases_of_server(tx.connection, "a", 10.0),
    ],
)
def test_leases_of_pilots_are_moved_in_the_order_of_ids(
    race: Race, pair: tuple[One, One], extend: Request
) -> None:
    pair[0].do(insert_pilots)
    # A look along leases, or along the places of the rows, comes to the first pilot last.
    sql = "UPDATE pilots SET lease_until = 400.0 WHERE id = 1"
    pair[0].do(lambda tx: tx.connection.execute(sql))
    check(race, pair, "pilots", extend)


def test_leases_of_agents_are_moved_in_the_order_of_ids(race: Race, pair: tuple[One, One]) -> None:
    def insert(tx: Transaction) -> None:
        for number in (1, 2):
            facts = {
                "name": f"a{number}",
                "team": "t",
                "owner": "alice",
                "nonce": "n",
                "version": "1",
                "host": "h",
            }
            agents.insert(tx.connection, **facts, now=1.0, lease_until=300.0)

    pair[0].do(insert)
    pair[0].do(lambda tx: tx.connection.execute("UPDATE agents SET draining = 1 WHERE id = 1"))
    check(race, pair, "agents", lambda tx: agents.extend_leases(tx.connection, 10.0, 0.0))


def offered(one: One) -> None:
    """Two offered jobs; the list of the first pilot has the second one."""
    submit(one, 2)
    one.do(insert_pilots)
    sql = "UPDATE jobs SET state = 'Matched', started = 1.0, pilot_id = 3 - id, reason = 'x' WHERE id = ?"
    for job in (2, 1):
        one.do(lambda tx, job=job: tx.connection.execute(sql, (job,)))


def test_offers_are_extended_in_the_order_of_ids(race: Race, pair: tuple[One, One]) -> None:
    offered(pair[0])
    check(race, pair, "jobs", lambda tx: held_jobs.extend_offers(tx.connection, 10.0))


def test_an_offer_that_is_confirmed_meanwhile_is_not_extended(race: Race, pair: tuple[One, One]) -> None:
    offered(pair[0])

    def confirm(tx: Transaction) -> None:
        tx.connection.execute("UPDATE jobs SET state = 'Running', started = 5.0 WHERE id = 1")

    race.run(confirm, lambda tx: held_jobs.extend_offers(tx.connection, 10.0))
    rows = pair[0].do(lambda tx: tx.connection.execute("SELECT started FROM jobs ORDER BY id").fetchall())
    assert [row[0] for row in rows] == [5.0, 11.0]


def test_archived_jobs_are_restored_in_the_order_of_ids(race: Race, pair: tuple[One, One]) -> None:
    submit(pair[0], 2)
    for job in (2, 1):
        end(pair[0], job, JobState.FAILED)
        pair[0].do(lambda tx: history.archive(tx.connection, 100.0, 10))
    check(race, pair, "history", lambda tx: history.restore(tx.connection, [1, 2]))


def test_two_servers_that_revoke_one_pilot_end_it_once(race: Race, pair: tuple[One, One]) -> None:
    pair[0].do(insert_pilots)
    revokes = [lambda tx, one=one: revoke_pilot(one.pool, tx, 1, by="ada", now=5.0) for one in pair]
    early, late = race.run(*revokes)
    assert (early, str(late)) == (None, "pilot 1 is Deleted, so its token is not valid")
    sql = "SELECT count(*) FROM events WHERE kind = 'token-revoked'"
    assert pair[0].do(lambda tx: tx.connection.execute(sql).fetchone()[0]) == 1


def test_the_revocation_of_a_pilot_locks_the_pilot_before_its_jobs(race: Race, pair: tuple[One, One]) -> None:
    offered(pair[0])

    def lock_pilot_then_job(tx: Transaction) -> None:
        pilots.by_ids(tx.connection, [PilotId(1)])
        race.pause()
        tx.connection.execute("SELECT 1 FROM jobs WHERE id = 2 FOR UPDATE")

    assert race.run(lock_pilot_then_job, lambda tx: revoke_pilot(pair[1].pool, tx, 1, by="ada", now=5.0)) == (
        None,
        None,
    )
    assert [one.writer.races for one in pair] == [0, 0]


def test_jobs_are_locked_before_their_gate(race: Race, pair: tuple[One, One]) -> None:
    """A person releases a held job and a blocked one of a submission, while the other server skips its blocked jobs."""
    a, b = pair
    parent = submit(a)
    children = submit(a, 2, after_ok=(f"s:{parent.id}",))

    held, blocked = children.first_job, children.first_job + 1

    def act_on(ids: Sequence[int], verb: str, tx: Transaction) -> None:
        act(a.pool, tx, verb, ids, actor="user:ada", reason="", now=3.0, dry_run=False)

    a.do(partial(act_on, [held], "hold"))
    settle(a)
    end(a, parent.first_job, JobState.FAILED)
    changes = a.do(lambda tx: chains.next_changes(tx.connection, 10))
    a.do(lambda tx: dependants.decide_changes(tx, changes))

    def release(tx: Transaction) -> None:
        jobs.by_ids(tx.connection, [held, blocked])
        race.pause()
        act_on([held, blocked], "release", tx)

    def move(tx: Transaction) -> None:
        keys = [chains.GateKey(children.id, chains.WHOLE)]
        dependants.move_dependants(b.pool, tx, keys, 4.0)

    race.run(release, move)
    assert [one.writer.races for one in pair] == [0, 0]
    settle(a)
    assert [state_of(a, job) for job in (held, blocked)] == ["Skipped", "Skipped"]


def test_a_job_that_gets_to_a_gate_at_any_moment_of_its_moves_is_moved(
    race: Race, pair: tuple[One, One]
) -> None:
    a, b = pair
    for trip in count(1):
        parent = submit(a)
        child = submit(a, after_ok=(f"s:{parent.id}",))
        verbs = [
            partial(
                act,
                a.pool,
                verb=verb,
                ids=[child.first_job],
                actor="user:ada",
                reason="",
                now=3.0,
                dry_run=False,
            )
            for verb in ("hold", "release")
        ]
        a.do(lambda tx: verbs[0](tx=tx))  # noqa: B023
        settle(a)
        end(a, parent.first_job, JobState.FAILED)
        changes = a.do(lambda tx: chains.next_changes(tx.connection, 10))
        a.do(lambda tx: dependants.decide_changes(tx, changes))  # noqa: B023
        keys = [chains.GateKey(child.id, chains.WHOLE)]
        reached = race.run_before_trip(
            trip,
            lambda tx: dependants.move_dependants(b.pool, tx, keys, 4.0),  # noqa: B023
            lambda tx: verbs[1](tx=tx),  # noqa: B023
        )
        settle(a)
        assert state_of(a, child.first_job) == "Skipped", trip
        if not reached:
            assert trip > 3
            break
