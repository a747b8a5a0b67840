"""Decisions on limits at two servers, beyond the race under each limit of the policy."""

from __future__ import annotations

import pytest

from pilotage.core.glue.information import CeInformation
from pilotage.core.policy import parse
from pilotage.services.director.information import CeReply, store_answers
from pilotage.services.submission.accept import ChunkedInsert
from pilotage.services.workqueue.loads import LoadBook
from pilotage.store.tables import submissions
from pilotage.store.writer.transaction import LockingRequest, Transaction, run_requests
from tests.contract.limit_races import Pair, accepting, prepared
from tests.contract.one_of_several import POLICY
from tests.contract.test_limits_at_several_servers import pair as pair

pytestmark = pytest.mark.slow


def test_a_repeated_submission_is_found_where_the_limit_is_reached(pair: Pair) -> None:
    pair.follow("jobs", max_waiting_per_owner=5)
    first, second = pair.at_once(accepting(pair.first, 5, "key"), accepting(pair.second, 5, "key"))
    assert first.id == second.id


def test_the_rest_of_a_staged_submission_counts(pair: Pair) -> None:
    """Its rows are stored in two transactions, and another submission is accepted in between."""
    pair.follow("jobs", max_waiting_per_owner=6000)
    insert = ChunkedInsert.of(prepared(pair.first, 5500))
    assert pair.first.writer.call(lambda tx: insert.step(pair.first.pool, tx, 1.0)) is None
    for one in (pair.first, pair.second):
        with pytest.raises(Exception, match="more than 6,000 waiting jobs"):
            one.writer.call(accepting(one, 501))
    assert pair.first.writer.call(lambda tx: insert.step(pair.first.pool, tx, 1.0)) is not None
    assert pair.second.writer.call(accepting(pair.second, 500)).state == submissions.CLOSED


def test_a_group_takes_its_locks_first_and_in_order(pair: Pair) -> None:
    """Two servers with the same owners in another order never wait for each other."""
    calls: list[str] = []

    class Noting(Transaction):
        def lock(self, name: str) -> None:
            calls.append(name)

    requests = [LockingRequest(name, lambda tx: calls.append("request")) for name in "cab"]
    run_requests(Noting(pair.first.connection), [lambda tx: calls.append("other"), *requests])
    assert calls == [*"abc", "other", "c", "request", "a", "request", "b", "request"]


def test_one_of_several_servers_counts_the_jobs_of_an_agent_for_each_message(pair: Pair) -> None:
    book = LoadBook()
    load = pair.second.writer.call(lambda tx: book.count(tx.connection, 1, 10.0))
    assert book.known(1, 10.1, shared=False) is load
    assert book.known(1, 10.1, shared=True) is None


def test_each_server_knows_the_cores_of_a_local_ce(pair: Pair) -> None:
    """Its pilots run at one server, which alone has its node."""
    text = POLICY + '[ces.local]\nsite = "here"\n'
    facts = CeInformation({"GlueCEInfoTotalCPUs": 64}, updated=1.0)
    for one in (pair.first, pair.second):
        one.writer.call(lambda tx, one=one: tx.set(one.pool, "policy", parse(text)))
    pair.first.writer.call(lambda tx: store_answers(pair.first.pool, tx, [CeReply("local", facts)], 1.0))
    pair.second.follow()
    assert [one.pool.site_slots() for one in (pair.first, pair.second)] == [{"here": 64}] * 2
