"""Sites that an administrator drains or takes down: matching, pilots, the end of a state. Time is virtual."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pilotage.core.errors import InvalidInput, NotFound
from pilotage.core.policy import parse
from pilotage.core.sites import SiteState, slots_of_sites, state_of_site
from pilotage.services.director import ce_status
from pilotage.services.director.ce_director import CeDirector
from pilotage.services.director.local_orders import LocalOrders
from pilotage.services.director.ordering import order_pilots
from pilotage.services.policy import site_states
from tests.unit.services.bench import NODE, POLICY, Bench
from tests.unit.services.test_why import why_job

TWO_SITES = POLICY + '[sites.there]\n[ces.far]\nsite = "there"\nowners = "any"\n'


@pytest.fixture
def bench_policy() -> str:
    return TWO_SITES


def switch(bench: Bench, state: SiteState, site: str = "here", until: float | None = None) -> None:
    bench.do(
        lambda tx: site_states.set_site_state(
            bench.pool, tx, site, state, by="ada", reason="power cut", now=bench.now, until=until
        )
    )


def test_no_job_starts_at_a_site_that_is_down_and_running_ones_go_on(bench: Bench) -> None:
    [first, second] = bench.submit(2)
    pilot, elsewhere = bench.pilot(), bench.pilot("far")
    held = pilot.hold()
    switch(bench, SiteState.DOWN)
    assert pilot.take() == []
    [offer] = elsewhere.take()
    assert {held.job, offer.job} == {first, second}
    assert pilot.finish(held) == "accepted"
    bench.submit()
    assert pilot.take() == []
    switch(bench, SiteState.NORMAL)
    assert len(pilot.take()) == 1
    assert bench.pool.offers.site_states == {}


def test_no_pilot_is_started_there_and_why_and_the_ce_tell_who_closed_it(bench: Bench) -> None:
    [job] = bench.submit(sites=("here",))
    director = CeDirector("local", LocalOrders(replace(NODE)), local=True)
    switch(bench, SiteState.DOWN)
    assert bench.do(lambda tx: order_pilots(director, bench.pool, tx, bench.now)) == []
    answer = why_job(bench, job)
    assert "site here is down, set by ada: power cut" in answer.summary
    assert "pilotage site enable here" in answer.advice
    summaries = {ce.name: ce for ce in ce_status.summaries(bench.pool.policy, bench.connection, bench.now)}
    assert (summaries["local"].state, summaries["far"].state) == ("down", "active")
    assert "power cut" in summaries["local"].reason


def test_a_drained_site_goes_on_with_jobs(bench: Bench) -> None:
    bench.submit()
    switch(bench, SiteState.DRAIN)
    assert bench.pool.site_state("here") is SiteState.DRAIN
    assert len(bench.pilot().take()) == 1


def test_a_state_ends_by_itself_and_is_told(bench: Bench) -> None:
    switch(bench, SiteState.DOWN, until=bench.now + 100)
    bench.now += 99
    assert not site_states.has_ended(bench.pool.offers, bench.now)
    bench.now += 1
    assert site_states.has_ended(bench.pool.offers, bench.now)
    assert bench.do(lambda tx: site_states.end_states(bench.pool, tx, bench.now)) == 1
    assert bench.pool.site_state("here") is SiteState.NORMAL
    assert bench.kinds("site") == ["site here: power cut", "site here: its time is over"]


def test_a_restart_and_a_failed_request_keep_the_states_of_the_store(bench: Bench) -> None:
    bench.submit()
    switch(bench, SiteState.DOWN)

    def fails(tx: object) -> None:
        site_states.set_site_state(
            bench.pool,
            tx,  # type: ignore[arg-type]
            "here",
            SiteState.NORMAL,
            by="ada",
            reason="",
            now=bench.now,
        )
        raise ZeroDivisionError

    [error] = bench.together(fails)
    assert isinstance(error, ZeroDivisionError)
    assert bench.pilot().take() == []
    bench.crash()
    assert bench.pool.site_state("here") is SiteState.DOWN
    assert bench.pilot().take() == []


def test_mistakes_are_told(bench: Bench) -> None:
    with pytest.raises(NotFound):
        switch(bench, SiteState.DOWN, site="nowhere")
    with pytest.raises(InvalidInput, match="past"):
        switch(bench, SiteState.DOWN, until=bench.now)
    with pytest.raises(InvalidInput, match="no end"):
        switch(bench, SiteState.NORMAL, until=bench.now + 1)


def test_the_policy_stands_above_the_administrator() -> None:
    text = TWO_SITES.replace("[sites.there]", "[sites.there]\nbanned = true")
    policy = parse(text)
    assert state_of_site(policy, "there", SiteState.NORMAL) is SiteState.DOWN
    drained = parse(text.replace("banned", "draining"))
    assert state_of_site(drained, "there", SiteState.NORMAL) is SiteState.DRAIN
    assert state_of_site(drained, "there", SiteState.DOWN) is SiteState.DOWN
    assert state_of_site(drained, "gone", SiteState.NORMAL) is SiteState.DOWN


def test_slots_come_from_the_limits_of_ces() -> None:
    policy = parse(
        TWO_SITES + '[ces.cluster]\ntype = "slurm"\nsite = "there"\nmax_running = 30\npilot_processors = 4\n'
    )
    assert slots_of_sites(policy, {"far": 3, "local": 8}) == {"here": 8 + 1, "there": 3 + 120}
