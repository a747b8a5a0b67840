"""Decisions about a CE that its director and a person make at two servers at the same time."""

from __future__ import annotations

from itertools import count

import pytest

from pilotage.services.director.ce_record import CeMemory, switch_ce
from pilotage.store.tables import ces
from pilotage.store.tables.ces import CeRow, CeSwitch
from pilotage.store.writer.transaction import Transaction
from tests.unit.services.bench import Bench
from tests.unit.services.workqueue.race import Race, Servers

pytestmark = pytest.mark.slow
CE = "a"


def switch(servers: Servers, to: CeSwitch) -> None:
    """A person decides at the second server."""
    bench = servers.second.bench
    bench.do(lambda tx: switch_ce(bench.pool.ids, tx, CE, to, by="ada", reason="why", now=bench.now))


def fail(bench: Bench, tx: Transaction, memory: CeMemory, times: int) -> None:
    """The director counts failures that are all alike."""
    memory.restore(tx)
    for _ in range(times):
        memory.count_failure(bench.pool, tx, "refused", bench.now)
    memory.store(tx)


def row_of(servers: Servers) -> CeRow:
    return servers.first.bench.do(lambda tx: ces.by_name(tx.connection, CE))


@pytest.mark.parametrize("to", [CeSwitch.DISABLED, CeSwitch.ON])
@pytest.mark.parametrize("known", [False, True])
def test_a_director_that_stops_a_ce_undoes_no_decision_of_a_person(
    race: Race, servers: Servers, to: CeSwitch, known: bool
) -> None:
    """The person decides before each trip of the director to the database."""
    bench = servers.first.bench
    failures = bench.pool.policy.ces[CE].max_failures
    for trip in count(1):
        bench.do(lambda tx: tx.connection.execute("DELETE FROM ces"))
        memory = CeMemory(CE)
        if known:
            bench.do(lambda tx: fail(bench, tx, memory, 1))  # noqa: B023

        def stop(tx: Transaction) -> None:
            fail(bench, tx, memory, failures)  # noqa: B023

        def decide(tx: Transaction) -> None:
            pool = servers.second.bench.pool
            switch_ce(pool.ids, tx, CE, to, by="ada", reason="why", now=bench.now)

        more = race.run_before_trip(trip, stop, decide)
        row = row_of(servers)
        if to is CeSwitch.DISABLED:
            assert (row.switch, row.switched_by) == (CeSwitch.DISABLED, "ada"), trip
        else:
            # The person's word came last, or all failures were counted after it.
            assert (row.switch, row.progress.alike) in [(CeSwitch.ON, 0), (CeSwitch.STOPPED, failures)], trip
        if not more:
            assert trip > 3
            return


@pytest.mark.parametrize("to", [CeSwitch.DISABLED, CeSwitch.STOPPED])
def test_a_new_section_opens_no_ce_that_is_switched_off_meanwhile(
    race: Race, servers: Servers, to: CeSwitch
) -> None:
    bench = servers.first.bench
    ce = bench.pool.policy.ces[CE]
    for trip in count(1):
        bench.do(lambda tx: tx.connection.execute("DELETE FROM ces"))
        switch(servers, CeSwitch.STOPPED)
        memory = CeMemory(CE)

        def begin(tx: Transaction) -> None:
            memory.restore(tx)  # noqa: B023
            memory.begin_section(bench.pool, tx, ce, bench.now)  # noqa: B023
            memory.store(tx)  # noqa: B023

        def decide(tx: Transaction) -> None:
            pool = servers.second.bench.pool
            switch_ce(pool.ids, tx, CE, to, by="ada", reason="later", now=bench.now)

        more = race.run_before_trip(trip, begin, decide)
        row = row_of(servers)
        if to is CeSwitch.DISABLED:
            assert (row.switch, row.switch_reason) == (CeSwitch.DISABLED, "later"), trip
        else:
            # A stop before the look at the section belongs to the old one.
            reason = "its section of the policy has changed"
            assert (row.switch, row.switch_reason) in [(to, "later"), (CeSwitch.ON, reason)], trip
        if not more:
            assert trip > 3
            return
