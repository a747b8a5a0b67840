"""Bans of users from sites: what is matched, what is killed, and when a ban ends. Time is virtual."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pilotage.core.errors import NotFound
from pilotage.services.director.ce_director import CeDirector
from pilotage.services.director.local_orders import LocalOrders
from pilotage.services.director.ordering import order_pilots
from pilotage.services.pilots import banned_owners
from pilotage.services.policy import bans
from pilotage.store.tables import bans as ban_rows
from pilotage.store.tables.bans import BanRow
from tests.unit.services.bench import NODE, POLICY, Bench
from tests.unit.services.test_pilot_orders import intent
from tests.unit.services.test_why import why_job

TWO_SITES = POLICY + '[sites.there]\n[ces.far]\nsite = "there"\nowners = "any"\n'


@pytest.fixture
def bench_policy() -> str:
    return TWO_SITES


def ban(bench: Bench, owner: str, site: str = "here", until: float | None = None) -> BanRow:
    return bench.do(
        lambda tx: bans.ban(
            bench.pool, tx, owner, site, by="ada", reason="mining", now=bench.now, until=until
        )
    )


def enforce(bench: Bench) -> int:
    while bench.do(lambda tx: banned_owners.send_away(bench.pool, tx)):
        pass
    return bench.do(lambda tx: bans.enforce_bans(bench.pool, tx, bench.now))


def expire(bench: Bench) -> int:
    return bench.do(lambda tx: bans.expire_bans(bench.pool, tx, bench.now))


def test_a_name_that_nobody_has_is_not_banned(bench: Bench) -> None:
    with pytest.raises(NotFound, match="no user bobb"):
        ban(bench, "bobb")
    assert not bench.pool.offers.bans


def test_an_owner_of_jobs_who_has_left_the_policy_can_be_banned(bench: Bench) -> None:
    bench.submit(owner="bob")
    del bench.pool.policy.users["bob"]
    assert ban(bench, "bob").owner == "bob"


def test_running_jobs_there_are_killed_and_others_go_on(bench: Bench) -> None:
    bench.submit(2, owner="bob")
    here, other = bench.pilot(), bench.pilot()
    held = here.hold()
    [pending] = other.take()
    bad, offered = held.job, pending.job
    [elsewhere] = bench.submit(owner="bob")
    there = bench.pilot("far")
    safe = there.hold()
    [good] = bench.submit(owner="alice")
    alices = bench.pilot().hold()
    ban(bench, "bob")
    assert enforce(bench) == 2
    assert (bench.state(bad), bench.outcomes(bad)) == ("Killed", ["killed"])
    assert bench.job(bad)["reason"] == "bob was banned from site here by ada: mining"
    assert here.stopped(held) == [bad], "the pilot learns it with its next heartbeat"
    assert bench.state(offered) == "Waiting", "another site may take a job that was only offered"
    assert other.confirm(pending) == "superseded"
    assert (bench.state(elsewhere), bench.state(good)) == ("Running", "Running")
    assert enforce(bench) == 0
    assert there.finish(safe) == "accepted"
    assert alices.job == good


def test_pilots_that_serve_a_banned_user_alone_leave_at_once(bench: Bench) -> None:
    bench.submit(1, owner="bob")
    bench.submit(1, owner="alice")
    bobs, alices = bench.pilot(), bench.pilot()
    offers = {pilot.hold().job: pilot for pilot in (bobs, alices)}
    bobs = next(pilot for pilot in offers.values() if pilot.row.only_owner == "bob")
    alices = next(pilot for pilot in offers.values() if pilot.row.only_owner == "alice")
    bench.submit(1, owner="bob")
    far = bench.pilot("far")
    far.hold()
    ban(bench, "bob")
    enforce(bench)
    assert bobs.send().leave == "drain"
    assert bobs.row.reason == "bob was banned from site here by ada: mining"
    assert (alices.send().leave, far.send().leave) == ("", "")
    bobs.send(leaving="drain")
    assert (bobs.row.state, bobs.row.reason) == ("Done", "bob was banned from site here by ada: mining")
    assert enforce(bench) == 0


def test_a_waiting_pilot_of_a_banned_user_is_cancelled(bench: Bench) -> None:
    pilot = intent(bench)
    bench.connection.execute(
        "UPDATE pilots SET pilot_type = 'private', owner = 'bob', grp = 'physics', only_owner = NULL"
    )
    ban(bench, "bob")
    enforce(bench)
    assert bench.pilot_row(pilot).leave == "kill"


def test_nothing_of_a_banned_user_is_matched_there(bench: Bench) -> None:
    here, there, bound = bench.pilot(), bench.pilot("far"), bench.pilot(only_owner="bob")
    jobs = bench.submit(3, owner="bob")
    ban(bench, "bob")
    assert here.take() == bound.take() == []
    assert here.send(take=here.asked()).no_match == {"banned-owner": 1}
    [offer] = there.take()
    assert offer.job in jobs
    answer = why_job(bench, next(job for job in jobs if job != offer.job))
    assert "far" in {standing.ce for standing in answer.standings}
    bench.do(lambda tx: bans.lift(bench.pool, tx, "bob", "here", by="ada", reason="", now=bench.now))
    assert len(bench.pilot().take()) == 1
    there.release(offer)


def test_why_names_the_ban_and_no_pilot_is_started(bench: Bench) -> None:
    [job] = bench.submit(owner="bob", sites=("here",))
    ban(bench, "bob", "")
    director = CeDirector("local", LocalOrders(replace(NODE)), local=True)
    assert bench.do(lambda tx: order_pilots(director, bench.pool, tx, bench.now)) == []
    answer = why_job(bench, job)
    assert answer.reason == "needs"
    assert "banned" in answer.summary
    assert "pilotage ban list" in answer.advice


def test_a_ban_ends_by_itself(bench: Bench) -> None:
    bench.submit(owner="bob")
    pilot = bench.pilot()
    ban(bench, "bob", until=bench.now + 100)
    bench.now += 99
    assert expire(bench) == 0
    assert pilot.take() == []
    bench.now += 1
    assert bans.has_open_bans(bench.pool.offers, bench.now)
    assert expire(bench) == 1
    assert len(pilot.take()) == 1
    assert bench.pool.offers.bans == ()
    [row] = ban_rows.recent(bench.connection, 10)
    assert (row.ended, row.ended_by) == (bench.now, "server")
    assert bench.kinds("ban") == ["bob at site here: mining"]
    assert bench.kinds("unban") == ["bob at site here: its time is over"]


def test_a_restart_and_a_failed_request_keep_the_bans_of_the_store(bench: Bench) -> None:
    bench.submit(owner="bob")
    ban(bench, "bob")

    def fails(tx: object) -> None:
        bans.lift(bench.pool, tx, "bob", "here", by="ada", reason="", now=bench.now)  # type: ignore[arg-type]
        raise ZeroDivisionError

    [error] = bench.together(fails)
    assert isinstance(error, ZeroDivisionError)
    assert bench.pilot().take() == []
    bench.crash()
    assert [(row.owner, row.site) for row in bench.pool.offers.bans] == [("bob", "here")]
    assert bench.pilot().take() == []


def test_a_late_match_of_another_server_is_killed_too(bench: Bench) -> None:
    """Until the ban has settled, running jobs are looked for again."""
    [job] = bench.submit(owner="bob")
    pilot = bench.pilot()
    offer = pilot.hold()
    bench.do(
        lambda tx: ban_rows.insert(
            tx.connection, owner="bob", site="here", by="ada", reason="", now=bench.now, until=None
        )
    )
    bench.do(lambda tx: bans.read_bans(bench.pool, tx))
    bench.now += bans.SETTLE
    assert enforce(bench) == 1
    assert bench.state(job) == "Killed"
    assert bans.has_open_bans(bench.pool.offers, bench.now)
    assert enforce(bench) == 0
    assert not bans.has_open_bans(bench.pool.offers, bench.now), "nothing is looked for from now on"
    assert pilot.stopped(offer) == [job]


def test_a_second_ban_replaces_the_facts_of_the_first(bench: Bench) -> None:
    ban(bench, "bob")
    row = ban(bench, "bob", until=bench.now + 5)
    assert [row] == list(bench.pool.offers.bans)
    assert row.until == bench.now + 5
    with pytest.raises(NotFound, match="all sites"):
        bench.do(lambda tx: bans.lift(bench.pool, tx, "bob", "", by="ada", reason="", now=bench.now))
