"""Verbs of users, agents and duties that two servers execute at the same time: one waits, and decides on new facts."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any

import pytest

from pilotage.core.errors import Conflict, IllegalMove, InvalidInput, Superseded
from pilotage.core.requests.states import RequestState
from pilotage.services.requests import changes, copies, submission
from pilotage.services.requests.changes import Change
from pilotage.services.workqueue import expiry, membership, roll_up
from pilotage.services.workqueue.custody import AgentUser
from pilotage.services.workqueue.propagation import Propagation
from pilotage.services.workqueue.splitting import post_masks
from pilotage.services.workqueue.sync import sync
from pilotage.store.tables import elements, requests
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.agents import ElementRelease, JoinRequest, PostMasks
from tests.unit.services.test_requests import MANAGER
from tests.unit.services.test_resubmissions import FILES, ChainDesk
from tests.unit.services.workqueue.queue_bench import PaperAgent, QueueBench
from tests.unit.services.workqueue.race import Race, Servers

pytestmark = pytest.mark.slow
R = RequestState
Request = Callable[[Transaction], Any]


def change_of(verb: Any, queue: QueueBench, number: int, *more: Any) -> Request:
    return lambda tx: verb(tx, number, *more, Change(MANAGER, queue.now, "why"))


def turn(queue: QueueBench, agent: PaperAgent, **more: Any) -> Request:
    """A turn of an agent at a server."""
    message = agent.message(**more)
    load = queue.bench.do(lambda tx: queue.work_queue.loads.count(tx.connection, agent.id, queue.now))
    return lambda tx: sync(queue.work_queue, tx, agent.id, agent.user, message, load, queue.now, Random(1))


def post_of(queue: QueueBench, agent: PaperAgent, number: int) -> Request:
    element = agent.held[number]
    masks = {mask.digest: mask for mask in agent.masks_of(element)}
    message = PostMasks(element.epoch, last=True)
    return lambda tx: post_masks(
        queue.work_queue, tx, agent.id, agent.user, number, message, masks, queue.now
    )


def propagate(queue: QueueBench, number: int) -> None:
    """Cycles of the propagation and of the roll-up until nothing is left to do."""
    for _ in range(3):
        run = Propagation(queue.work_queue, number)
        while not queue.bench.do(lambda tx: run.run(tx, queue.now, 100)):  # noqa: B023
            pass
        queue.bench.do(lambda tx: roll_up.advance(tx, number, queue.now))


def test_one_key_at_two_servers_is_one_request(race: Race, servers: Servers) -> None:
    chain = ChainDesk(servers.first)
    prepared = chain.prepared(key="k", **FILES)

    def submit(queue: QueueBench) -> Request:
        return lambda tx: submission.submit(queue.bench.pool.policy, tx, prepared, queue.now)

    first, second = race.run(submit(servers.first), submit(servers.second))
    assert first.id == second.id

    def clone(queue: QueueBench) -> Request:
        pool, now = queue.bench.pool, queue.now
        return lambda tx: copies.clone(pool.policy, tx, first.id, MANAGER, changes={}, key="c", now=now)

    one, other = race.run(clone(servers.first), clone(servers.second))
    assert one.id == other.id


def test_one_data_set_is_written_by_one_request(race: Race, servers: Servers) -> None:
    chain = ChainDesk(servers.first)
    prepared = [chain.prepared(output={"files": ["x"], "dataset": "/mine"}, merge=None) for _ in range(2)]
    benches = (servers.first, servers.second)
    first, second = race.run(
        *(
            lambda tx, queue=queue, one=one: submission.submit(queue.bench.pool.policy, tx, one, queue.now)
            for queue, one in zip(benches, prepared, strict=True)
        )
    )
    assert first.state is R.ASSIGNED
    assert isinstance(second, InvalidInput)
    assert "/mine exists already" in second.message


def test_two_verbs_on_one_request_are_ordered(race: Race, servers: Servers) -> None:
    chain = ChainDesk(servers.first)
    row = chain.submit(**FILES)
    chain.queue.intake(row.id)
    one, other = servers
    first, second = race.run(
        change_of(changes.set_priority, one, row.id, 7), change_of(changes.abort, other, row.id)
    )
    assert (first.priority, second.priority, second.state) == (7, 7, R.ABORTED)
    first, second = race.run(
        change_of(changes.abort, one, row.id), change_of(changes.force_complete, other, row.id)
    )
    assert first.state is R.ABORTED
    assert isinstance(second, IllegalMove)
    assert chain.history(row).count("state aborted") == 1


def test_elements_that_are_pulled_during_an_abort_end_too(race: Race, servers: Servers) -> None:
    """The pull has read the request before the abort, and claims its elements after it."""
    chain = ChainDesk(servers.first)
    row = chain.submit(**FILES)
    chain.queue.intake(row.id)
    answer, aborted = race.run(
        turn(servers.first, chain.agent), change_of(changes.abort, servers.second, row.id)
    )
    assert len(answer.elements) == 3
    assert aborted.state is R.ABORTED
    propagate(servers.second, row.id)
    assert {element.state for element in servers.first.elements_of(row.id)} == {"Canceled"}
    assert chain.agent.sync().stop == []
    assert servers.first.request_row(row.id).state is R.ABORTED_COMPLETED


def test_no_step_ends_while_its_elements_are_given_back(race: Race, servers: Servers) -> None:
    """Its elements go from Negotiating to Available before each trip of the roll-up: they are never in no state."""
    chain = ChainDesk(servers.first)
    row = chain.submit(**FILES)
    chain.queue.intake(row.id)
    one, other = servers
    for trip in count(1):
        chain.agent.sync()
        assert {element.state for element in one.elements_of(row.id)} == {"Negotiating"}
        released = [ElementRelease(id_, element.epoch, "drain") for id_, element in chain.agent.held.items()]
        chain.agent.held.clear()
        back = turn(other, chain.agent, want=0, releases=released)
        reached = race.run_before_trip(trip, lambda tx: roll_up.advance(tx, row.id, one.now), back)
        chain.agent.number += 1
        assert {element.state for element in one.elements_of(row.id)} == {"Available"}
        assert one.request_row(row.id).state in (R.ACQUIRED, R.RUNNING_OPEN)
        assert one.sql("SELECT count(*) FROM request_steps WHERE ended = 1") == [(0,)]
        if not reached:
            assert trip > 3
            break


@pytest.mark.parametrize("abort_first", [False, True])
def test_jobs_that_are_posted_during_an_abort_are_cancelled(
    race: Race, servers: Servers, abort_first: bool
) -> None:
    chain = ChainDesk(servers.first)
    row = chain.submit(**FILES)
    chain.queue.intake(row.id)
    chain.agent.sync()
    chain.agent.sync(0)
    number = min(chain.agent.held)
    one, other = servers

    def cancelling(tx: Transaction) -> None:
        Propagation(other.work_queue, row.id).run(tx, other.now, 100)

    one.bench.do(change_of(changes.abort, one, row.id))
    if abort_first:
        run = Propagation(one.work_queue, row.id)

        def steps(tx: Transaction) -> None:
            # Jobs of the pool, then elements that are Available, Negotiating and Acquired.
            for _ in range(4):
                run.run(tx, one.now, 100)

        _, answer = race.run(steps, post_of(other, chain.agent, number))
        assert answer.superseded
    else:
        answer, _ = race.run(post_of(one, chain.agent, number), cancelling)
        assert answer.made > 0
    propagate(other, row.id)
    # It is told to stop, and says then that it has.
    chain.agent.sync(0)
    chain.agent.sync(0)
    propagate(other, row.id)
    assert {row[0] for row in one.sql("SELECT state FROM element_jobs")} <= {"canceled"}
    assert {element.state for element in one.elements_of(row.id)} == {"Canceled"}
    assert one.request_row(row.id).state is R.ABORTED_COMPLETED


def test_an_agent_whose_lease_ends_during_its_turn_keeps_it(race: Race, servers: Servers) -> None:
    """The turn renews the lease. The duty at the other server has read the old one."""
    chain = ChainDesk(servers.first)
    row = chain.submit(**FILES)
    chain.queue.intake(row.id)
    one, other = servers
    one.bench.now = other.bench.now = one.now + 301
    gone = other.bench.do(lambda tx: expiry.over(tx, other.now))
    assert gone == [chain.agent.id]
    answer, ended = race.run(
        turn(one, chain.agent), lambda tx: expiry.expire(other.work_queue, tx, other.now, gone)
    )
    assert (len(answer.elements), ended) == (3, 0)
    assert {element.state for element in one.elements_of(row.id)} == {"Negotiating"}


def test_a_turn_that_comes_while_the_lease_ends_is_superseded(race: Race, servers: Servers) -> None:
    chain = ChainDesk(servers.first)
    row = chain.submit(**FILES)
    chain.queue.intake(row.id)
    chain.agent.sync()
    one, other = servers
    one.bench.now = other.bench.now = one.now + 301
    ended, answer = race.run(
        lambda tx: expiry.expire(one.work_queue, tx, one.now, [chain.agent.id]), turn(other, chain.agent)
    )
    assert ended == 1
    assert isinstance(answer, Superseded)
    assert {element.state for element in one.elements_of(row.id)} == {"Available"}


def test_an_agent_that_joins_again_keeps_its_new_elements(
    race: Race, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The duty at the first server has seen it as ended, and is about to give its elements back."""
    chain = ChainDesk(servers.first)
    row = chain.submit(**FILES)
    chain.queue.intake(row.id)
    one, other = servers
    one.agent("heir")
    agent = chain.agent
    one.bench.do(lambda tx: membership.remove(one.work_queue, tx, agent.name, by="alice", now=one.now))
    message = JoinRequest(agent.name, agent.team, agent.nonce)
    pulling = turn(other, agent)
    split_of = elements.split_of

    def paused(*facts: Any) -> list[int]:
        race.pause()
        return split_of(*facts)

    def back(tx: Transaction) -> Any:
        membership.join(other.work_queue, tx, message, agent.user, other.now)
        return pulling(tx)

    monkeypatch.setattr(elements, "split_of", paused)
    _, answer = race.run(lambda tx: expiry.take_over(one.work_queue, tx, one.now, [agent.id]), back)
    agent.number += 1
    agent.held.update({element.id: element for element in answer.elements})
    assert len(agent.held) == 3
    assert {element.agent_id for element in one.elements_of(row.id)} == {agent.id}
    assert agent.sync(0).stop == []
    agent.split()
    one.check_every_event_once(row.id)


def test_two_new_agents_of_one_name_are_one_row(race: Race, servers: Servers) -> None:
    def join(queue: QueueBench, nonce: str) -> Request:
        message = JoinRequest("twin", "home", nonce)
        return lambda tx: membership.join(queue.work_queue, tx, message, AgentUser("alice"), queue.now)

    first, second = race.run(join(servers.first, "a"), join(servers.second, "b"))
    assert first.agent == second.agent
    loser = PaperAgent(servers.first, "twin", nonce="a", id=first.agent)
    with pytest.raises(Superseded):
        loser.sync()
    assert PaperAgent(servers.first, "twin", nonce="b", id=first.agent).sync().agents == 1


def test_one_of_two_removals_of_an_agent_is_carried_out(race: Race, servers: Servers) -> None:
    chain = ChainDesk(servers.first)

    def remove(queue: QueueBench) -> Request:
        name = chain.agent.name
        return lambda tx: membership.remove(queue.work_queue, tx, name, by="alice", now=queue.now)

    first, second = race.run(remove(servers.first), remove(servers.second))
    assert first.ended is not None
    assert isinstance(second, Conflict)


def test_a_request_that_changes_between_reading_and_writing_is_refused(servers: Servers) -> None:
    """Each move names the version that it has read. A stale one changes nothing."""
    chain = ChainDesk(servers.first)
    row = chain.submit(**FILES)
    stale = chain.row(row)
    chain.do(changes.set_priority, row, 5)
    with pytest.raises(Conflict, match="changed by somebody else"):
        servers.second.bench.do(lambda tx: requests.move(tx.connection, stale, R.ABORTED, actor="x", now=1.0))
    assert chain.row(row).state is R.ASSIGNED
