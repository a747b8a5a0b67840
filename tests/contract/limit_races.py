"""Two servers that work under one limit of the policy at the same time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec
import pytest

from pilotage.core import policy as policies
from pilotage.core.errors import Overloaded, PilotageError, Superseded
from pilotage.core.jobs.description import JobDescription
from pilotage.core.jobs.states import JobState
from pilotage.core.requests.specification import Program, Specification, Step, StepSplitting
from pilotage.server.duties.duty import Duty
from pilotage.services.pilots import leases
from pilotage.services.policy import apply
from pilotage.services.pool import shared_limits
from pilotage.services.requests.rights import Actor
from pilotage.services.requests.submission import PreparedRequest, submit
from pilotage.services.submission.accept import PreparedSubmission, accept, identity_of
from pilotage.services.workqueue.intake import take_slice
from pilotage.services.workqueue.state import WorkQueue
from pilotage.store.cluster import duty_leases
from pilotage.store.tables import accepted_jobs, pilots
from pilotage.store.tables.submissions import SubmissionRow
from pilotage.store.writer.transaction import Request, Transaction
from tests.contract.one_of_several import POLICY, One
from tests.deadlines import PATIENCE
from tests.unit.services.bench import Bench
from tests.unit.services.workqueue.queue_bench import EVENTS, QueueBench

LOCK_WAITS = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


@dataclass
class Pair:
    """Two servers on one database."""

    first: One
    second: One
    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))

    def at_once(self, first: Request, second: Request) -> tuple[Any, Any]:
        """The answers or errors. The second transaction begins, and comes to a lock or its end, in the first one."""
        late: list[Future[Any]] = []

        def held(tx: Transaction) -> Any:
            answer = first(tx)
            late.append(self.threads.submit(answered, self.second, second))
            waits = self.first.store.readers.connection()
            while not late[0].done() and not waits.execute(LOCK_WAITS).fetchone():
                pass
            return answer

        early = answered(self.first, held)
        return early, late[0].result(PATIENCE)

    def follow(self, table: str, **values: Any) -> None:
        """Let both servers follow a policy with these values in one of its tables; "": in the document."""
        for one in (self.first, self.second):
            policy = one.pool.policy
            part = msgspec.structs.replace(getattr(policy, table), **values)
            changed = msgspec.structs.replace(policy, **{table: part})
            one.writer.call(lambda tx, one=one, changed=changed: tx.set(one.pool, "policy", changed))


def answered(one: One, request: Request) -> Any:
    try:
        return one.writer.call(request)
    except PilotageError as error:
        return error


def is_refused(answers: tuple[Any, Any], error: type[PilotageError]) -> bool:
    """Whether the first one was accepted, and the second one was not."""
    return not isinstance(answers[0], PilotageError) and isinstance(answers[1], error)


# --- jobs


def prepared(one: One, jobs: int, key: str = "") -> PreparedSubmission:
    description = JobDescription(executable="/bin/true")
    identity = identity_of(description, "bob", "physics", one.pool.policy)
    rows = [[place] for place in range(jobs)]
    return PreparedSubmission("bob", "physics", key, description, ("",), rows, (), identity, ())


def accepting(one: One, jobs: int, key: str = "") -> Callable[[Transaction], SubmissionRow]:
    given = prepared(one, jobs, key)
    return lambda tx: accept(one.pool, tx, given, 1.0)


def waiting_jobs(pair: Pair) -> None:
    pair.follow("jobs", max_waiting_per_owner=10)
    # Their queue exists: who makes it would make the other one wait.
    pair.first.writer.call(accepting(pair.first, 1))
    answers = pair.at_once(accepting(pair.first, 5), accepting(pair.second, 5))
    assert is_refused(answers, Overloaded)
    count = pair.first.writer.call(lambda tx: accepted_jobs.count(tx.connection, "bob", [JobState.WAITING]))
    assert count == 6


def further_attempts(pair: Pair) -> None:
    """Both servers find that the lease of a pilot is over: its job has failed once."""
    pair.follow("jobs", max_reschedules=1)

    def held(tx: Transaction) -> None:
        for sql in (
            "UPDATE jobs SET state = 'Running', pilot_id = 1, epoch = 1, attempt = 1 WHERE id = 1",
            "INSERT INTO attempts (job_id, epoch, attempt, pilot_id, started) VALUES (1, 1, 1, 1, 2)",
            "UPDATE pilots SET state = 'Running', started = 1, lease_until = 3, jobs = '[1]' WHERE id = 1",
        ):
            tx.connection.execute(sql)

    pair.first.writer.call(held)
    pair.at_once(*(lambda tx, one=one: leases.expire(one.pool, tx, 9.0) for one in (pair.first, pair.second)))
    sql = "SELECT state, failures, (SELECT count(*) FROM events WHERE kind = 'lease-over') FROM jobs WHERE id = 1"
    assert pair.first.writer.call(lambda tx: tx.connection.execute(sql).fetchall()) == [("Rescheduled", 1, 1)]


# --- requests


def unfinished_requests(pair: Pair) -> None:
    pair.follow("requests", max_requests_per_owner=1)
    step = Step("work", Program(JobDescription("/bin/true")), StepSplitting("EventBased", (("events", 10),)))
    actor = Actor("bob", "physics", frozenset())

    def asked(one: One) -> Callable[[Transaction], Any]:
        given = PreparedRequest(Specification("r", (step,), group="physics"), actor, "")
        return lambda tx: submit(one.pool.policy, tx, given, 1.0)

    assert is_refused(pair.at_once(asked(pair.first), asked(pair.second)), Overloaded)
    [(stored,)] = pair.first.writer.call(
        lambda tx: tx.connection.execute("SELECT count(*) FROM requests WHERE owner = 'bob'").fetchall()
    )
    assert stored == 1


class _AsBench:
    """One of several servers in the place of a bench."""

    def __init__(self, one: One) -> None:
        self.pool, self.now, self.do = one.pool, 1000.0, one.writer.call


def queue_bench(one: One) -> QueueBench:
    return QueueBench(cast(Bench, _AsBench(one)))


def slices(pair: Pair, request: int, size: int) -> tuple[Any, Any]:
    """A slice of the intake of one request at each server."""
    queues = WorkQueue(pair.first.pool), WorkQueue(pair.second.pool)
    return pair.at_once(
        *(lambda tx, queue=queue: take_slice(queue, tx, request, 1000.0, size) for queue in queues)
    )


def elements_of_a_request(pair: Pair) -> None:
    pair.follow("requests", max_elements_per_request=10)
    queue = queue_bench(pair.first)
    data = queue.dataset("data")
    for number in range(12):
        queue.block(data, f"b{number}", 2)
    request = queue.request(inputs=[data])
    slices(pair, request, 6)
    assert len(queue.elements_of(request)) == 6
    assert "the policy allows 10" in queue.request_row(request).reason


def elements_ahead(pair: Pair) -> None:
    pair.follow("requests", elements_ahead=10)
    queue = queue_bench(pair.first)
    request = queue.request(queue.step(splitting=EVENTS, events=10**9, start_policy="MonteCarlo"))
    slices(pair, request, 7)
    assert len(queue.elements_of(request)) == 10


# --- limits on running jobs


def places(pair: Pair) -> None:
    _limit(pair, "running = 1")
    assert [_starts(one) for one in (pair.first, pair.second)] == [1, 0]


def starts(pair: Pair) -> None:
    _limit(pair, "delay = 1000\nburst = 1")
    assert [_starts(one) for one in (pair.first, pair.second)] == [1, 0]


def _limit(pair: Pair, limit: str) -> None:
    """A limit is in force at both servers, and both have asked for its places at the same time."""
    text = POLICY + f'[[limits]]\nattribute = "owner"\nvalue = "alice"\n{limit}\n'
    pair.first.writer.call(
        lambda tx: apply.apply_policy(
            pair.first.pool, tx, policies.parse(text), text, by="alice", reason="", now=1.0
        )
    )
    pair.second.follow()
    version = pair.first.pool.server.policy_version
    pair.first.writer.call(
        lambda tx: tx.connection.execute("UPDATE servers SET policy_version = ?", (version,))
    )
    pair.first.writer.call(lambda tx: shared_limits.establish(pair.first.pool, tx, 1.0))
    for one in (pair.first, pair.second):
        one.writer.call(lambda tx, one=one: one.pool.offers.limits.recount(tx))
        _is_closed(one)
    pair.at_once(
        *(lambda tx, one=one: shared_limits.rebalance(one.pool, tx, 1.0) for one in (pair.first, pair.second))
    )


def _is_closed(one: One) -> bool:
    return bool(one.pool.offers.limits.limiter.closed_limits("here", "ce here", 1.0))


def _starts(one: One) -> int:
    """Start jobs while the limit allows it; returns their number."""
    [identity] = {identity.owner: identity for identity in one.pool.queues.identities.values()}.values()
    number = 0
    while not _is_closed(one):
        one.writer.call(
            lambda tx: one.pool.offers.limits.started(
                tx, identity, next(row for row in pilots.live(tx.connection, "ce here")), 1.0
            )
        )
        number += 1
        assert number <= 10
    return number


# --- limits under which one server at a time works


def held_by(duty: type[Duty]) -> Callable[[Pair], None]:
    """The race under a limit that a duty alone looks at: one server has its lease, and only the holder writes."""

    def race(pair: Pair) -> None:
        lease = duty.lease
        assert lease

        def claim(one: One) -> Callable[[Transaction], dict[str, int]]:
            return lambda tx: duty_leases.claim(tx.connection, [lease], one.name, 15.0, 1.0)

        pair.first.writer.call(lambda tx: duty_leases.create(tx.connection, [lease]))
        assert pair.at_once(claim(pair.first), claim(pair.second)) == ({lease: 1}, {})
        pair.first.writer.call(lambda tx: duty_leases.release(tx.connection, pair.first.name))
        assert pair.second.writer.call(claim(pair.second)) == {lease: 2}
        with pytest.raises(Superseded):
            pair.first.writer.call(lambda tx: duty_leases.check(tx.connection, lease, 1))

    return race
