"""`pilotage db check` finds each wrong state of a database, and `--repair` mends it: both stores, each check.

A store has one database for all checks: it is intact again after each.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from random import Random
from typing import Final

import pytest

from pilotage.services.repairs.run import REPAIRS, Mended, mend_all
from pilotage.store.admin.integrity_check import find_damage
from pilotage.store.admin.revisions import head_revision
from pilotage.store.integrity.check import Damage
from pilotage.store.integrity.registry import CHECKS
from tests import writer_guard
from tests.contract.lively_database import POLICY, Lively, fill
from tests.contract.wrong_states import STATES
from tests.unit.services.bench import Bench

BY_NAME: Final = {check.name: check for check in CHECKS}


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def lively(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lively]:
    with writer_guard.active():
        bench = Bench(tmp_path_factory.mktemp("lively"), POLICY, store=request.param)
        try:
            yield fill(bench)
        finally:
            bench.end()


def damage_of(lively: Lively) -> list[Damage]:
    readers = lively.bench.readers()
    try:
        return find_damage(readers.connection(), head_revision())
    finally:
        readers.close()


def mend(lively: Lively) -> list[Mended]:
    """Repair as the command does, and begin again as a server does."""
    bench = lively.bench
    mended = [*mend_all(bench.do, clock=lambda: bench.now, rng=Random(1), secrets=secrets, counters=None)]
    bench.close()
    bench.open()
    return mended


def test_each_check_has_a_repair_or_a_reason_and_a_wrong_state() -> None:
    assert len(BY_NAME) == len(CHECKS)
    assert REPAIRS.keys() == {check.name for check in CHECKS if not check.by_hand}
    assert STATES.keys() == BY_NAME.keys()
    for check in CHECKS:
        assert (check.sql is None) != (check.search is None)
        assert check.meaning.endswith(".")
        assert STATES[check.name].only == (check.only or "")


NO_DAMAGE: Final = {
    "jobs-without-last-event": (
        "UPDATE jobs SET last_event = (SELECT min(id) - 1 FROM events) WHERE id = ?",
        "the retention let the event go",
    ),
    "two-results": (
        "INSERT INTO attempts (job_id, epoch, attempt, pilot_id, started, ended, outcome, failure)"
        " VALUES (?, 0, 1, 1, 1, 2, 'applied', 'payload')",
        "a person had the failed job begin again",
    ),
}


@pytest.mark.parametrize("name", NO_DAMAGE)
def test_a_state_that_is_no_damage(lively: Lively, name: str) -> None:
    """It looks like damage, for a reason."""
    text, reason = NO_DAMAGE[name]
    lively.bench.connection.begin()
    lively.bench.connection.execute("DELETE FROM events WHERE id = 1")
    lively.bench.connection.execute(
        text, (lively.waiting if name == "jobs-without-last-event" else lively.done,)
    )
    assert BY_NAME[name].count(lively.bench.connection) == (0, []), reason
    lively.bench.connection.rollback()


@pytest.mark.parametrize("name", STATES)
def test_a_wrong_state_is_told_and_mended(lively: Lively, name: str) -> None:
    state, check, bench = STATES[name], BY_NAME[name], lively.bench
    if not check.applies(bench.connection):
        pytest.skip(f"{bench.connection.dialect} cannot have this state")
    if check.by_hand:
        bench.connection.begin()
        lively.trial = True
        state.put(lively)
        assert check.count(bench.connection)[0] >= 1
        lively.trial = False
        bench.connection.rollback()
        return
    state.put(lively)
    assert {kind.name for kind in damage_of(lively)} == {name, *state.leaves}
    mended = mend(lively)
    assert name in {one.check.name for one in mended}
    assert [str(kind) for kind in damage_of(lively)] == []
    assert mend(lively) == []
    told = bench.kinds("repaired")
    assert all(any(detail.startswith(f"{one.check.what}: ") for detail in told) for one in mended)
    state.then(lively)
    assert [str(kind) for kind in damage_of(lively)] == []
