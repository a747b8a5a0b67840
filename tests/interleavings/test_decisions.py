"""Each kind of transaction, alone: its statements rest on rows that it holds, or say why they need none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType

import pytest

from pilotage.services.jobs import dependants, parallel
from pilotage.services.jobs.dependants import decide_gates
from pilotage.services.jobs.parallel import move_jobs
from pilotage.services.pool.state import Pool
from pilotage.services.submission import accept
from pilotage.services.submission.accept import PreparedSubmission, begin
from pilotage.store.tables import chains, elements, jobs, parallel_limits, requests, submissions
from pilotage.store.tables.chains import ConditionState, GateKey
from pilotage.store.tables.submissions import SubmissionRow
from pilotage.store.writer.transaction import Transaction
from tests import decision_guard
from tests.interleavings.kinds import KINDS
from tests.interleavings.pairs import Pairs
from tests.interleavings.world import World
from tests.lock_order import LockOrder

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::UserWarning")]


def test_transactions_rest_on_rows_that_they_hold(pairs: Pairs) -> None:
    broken = {}
    decision_guard.orders.steps.clear()
    for name in KINDS:
        try:
            with decision_guard.active():
                pairs.footprints(name)
        except AssertionError as error:
            broken[name] = str(error)
    assert not broken, "\n".join(f"{name}: {words}" for name, words in broken.items())
    assert len(decision_guard.orders.steps) > 50
    assert not list(decision_guard.orders.circles())


def limits_first(pool: Pool, tx: Transaction, limits: Sequence[int], now: float) -> int:
    for submission in limits:
        parallel_limits.find(tx.connection, submission, lock=True)
    return move_jobs(pool, tx, limits, now)


def queue_first(
    pool: Pool, tx: Transaction, prepared: PreparedSubmission, state: str, now: float, count: int = 0
) -> SubmissionRow:
    submissions.get_or_insert_queue(tx.connection, prepared.identity, now)
    return begin(pool, tx, prepared, state, now, count)


def conditions_first(tx: Transaction, keys: set[GateKey], decided: Sequence[ConditionState] = ()) -> None:
    chains.save_conditions(tx.connection, decided)
    decide_gates(tx, keys)


@pytest.mark.parametrize(
    ("module", "name", "mistake", "kinds"),
    [
        (parallel, "move_jobs", limits_first, ("duty dependants", "release")),
        (accept, "begin", queue_first, ("submit after a job to an empty queue", "reschedule")),
        (dependants, "decide_gates", conditions_first, ("duty dependants",)),
    ],
)
def test_locks_in_two_orders_are_seen(
    pairs: Pairs,
    monkeypatch: pytest.MonkeyPatch,
    module: ModuleType,
    name: str,
    mistake: Callable[..., object],
    kinds: Sequence[str],
) -> None:
    """Mistakes that were made once, put back."""
    monkeypatch.setattr(decision_guard, "orders", LockOrder())
    monkeypatch.setattr(module, name, mistake)
    with decision_guard.active():
        for kind in kinds:
            pairs.footprints(kind)
    assert list(decision_guard.orders.circles())


@pytest.mark.parametrize(
    ("kind", "module", "table"),
    [("kill", jobs, "jobs"), ("abort", requests, "requests"), ("an agent gives back", elements, "elements")],
)
def test_a_lock_that_is_taken_out_is_missed(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: str, module: ModuleType, table: str
) -> None:
    monkeypatch.setattr(module, "lock_clause", lambda *_: "")
    pairs = Pairs(world)
    with pytest.raises(AssertionError, match=table), decision_guard.active():
        pairs.footprints(kind)
    pairs.close()
