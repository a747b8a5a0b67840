"""From an assigned request to element jobs on one server, and the answers that agents get on the way."""

from __future__ import annotations

import json

import msgspec
import pytest

from pilotage.core.errors import Conflict, Forbidden, IncompatibleVersion, InvalidInput, Superseded
from pilotage.core.requests.states import RequestState
from pilotage.core.sites import SiteState
from pilotage.core.splitting.mask import FileRange, Mask
from pilotage.core.workqueue.states import ElementState
from pilotage.services.workqueue import membership
from pilotage.services.workqueue.custody import AgentUser
from pilotage.services.workqueue.intake import take_slice
from pilotage.services.workqueue.splitting import read_mask
from pilotage.store.tables import agents
from pilotage.store.tables.site_states import SiteStateRow
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.agents import JoinRequest
from tests.unit.services.workqueue.queue_bench import EVENTS, QueueBench


def prepared(queue: QueueBench, blocks: int = 3, **more: object) -> int:
    """A request in the queue, of a data set with some blocks of four files."""
    data = queue.dataset(f"data{queue.sql('SELECT count(*) FROM datasets')[0][0]}")
    for number in range(blocks):
        queue.block(data, f"b{number}")
    request = queue.request(inputs=[data], **more)  # type: ignore[arg-type]
    queue.intake(request)
    return request


def test_blocks_become_elements(queue: QueueBench) -> None:
    request = prepared(queue)
    rows = queue.elements_of(request)
    assert [(row.state, row.jobs, row.files, row.events) for row in rows] == [
        (ElementState.AVAILABLE, 2, 4, 400)
    ] * 3
    assert queue.request_row(request).state is RequestState.ACQUIRED
    assert queue.sql("SELECT closed FROM request_steps WHERE request_id = ?", request) == [(1,)]


def test_intake_in_slices_goes_on_after_a_crash(queue: QueueBench) -> None:
    data = queue.dataset("data")
    for number in range(7):
        queue.block(data, f"b{number}")
    request = queue.request(inputs=[data])
    agent = queue.agent()
    assert queue.bench.do(lambda tx: _slice(queue, tx, request, 2))
    queue.reopen()
    assert len(queue.elements_of(request)) == 2
    # Nobody pulls elements of a request whose intake goes on.
    assert agent.sync().elements == []
    queue.bench.crash(lambda tx: _slice(queue, tx, request, 2))
    queue.reopen()
    queue.intake(request, 2)
    assert len(queue.elements_of(request)) == 7
    assert len(agent.sync().elements) == 7


def _slice(queue: QueueBench, tx: Transaction, request: int, limit: int) -> bool:
    return take_slice(queue.work_queue, tx, request, queue.now, limit)


def test_the_same_request_makes_no_element_twice(queue: QueueBench) -> None:
    """WMCore's case WQE-03."""
    request = prepared(queue, 2)
    queue.run("UPDATE request_steps SET taken = 0, closed = 0 WHERE request_id = ?", request)
    queue.intake(request)
    assert len(queue.elements_of(request)) == 2


def test_generated_events_become_elements(queue: QueueBench) -> None:
    step = queue.step(splitting=EVENTS, events=25_500, start_policy="MonteCarlo")
    request = queue.request(step)
    assert queue.intake(request, 2) == 2
    rows = queue.elements_of(request)
    assert [row.jobs for row in rows] == [1000, 1000, 550]
    masks = [Mask.from_json(json.loads(row.mask)) for row in rows]
    assert [(mask.first_event, mask.events, mask.first_lumi, mask.lumis) for mask in masks] == [
        (1, 10_000, 1, 1000),
        (10_001, 10_000, 1001, 1000),
        (20_001, 5500, 2001, 550),
    ]


def test_a_request_without_work_fails_with_a_reason(queue: QueueBench) -> None:
    data = queue.dataset("empty")
    queue.block(data, "nothing", files=0)
    request = queue.request(inputs=[data])
    queue.intake(request)
    row = queue.request_row(request)
    assert row.state is RequestState.FAILED
    assert "nothing: the block has no files" in row.reason


def test_a_request_that_cannot_be_served_fails_with_a_reason(queue: QueueBench) -> None:
    data = queue.dataset("data")
    queue.block(data, "b")
    request = queue.request(queue.step(start_policy="Karma"), inputs=[data])
    queue.intake(request)
    row = queue.request_row(request)
    assert row.state is RequestState.FAILED
    assert "no start policy Karma" in row.reason


def test_a_request_without_a_team_is_not_taken_in(queue: QueueBench) -> None:
    request = prepared(queue, team="")
    assert queue.request_row(request).state is RequestState.ASSIGNED
    assert queue.elements_of(request) == []


def test_elements_of_a_team_go_to_its_agents_only(queue: QueueBench) -> None:
    """WMCore's case MATCH-09, but for requests without a team."""
    prepared(queue, 1, team="A-Team")
    assert queue.agent("other", team="other").sync().elements == []
    assert len(queue.agent("one", team="A-Team").sync().elements) == 1


def test_one_agent_has_an_element(queue: QueueBench) -> None:
    """WMCore's case MATCH-10."""
    request = prepared(queue, 1)
    first, second = queue.agent("first"), queue.agent("second")
    assert len(second.sync().elements) == 1
    assert first.sync().elements == []
    second.sync()
    [row] = queue.elements_of(request)
    assert (row.state, row.agent_id) == (ElementState.ACQUIRED, second.id)


def test_the_whole_way_of_an_element(queue: QueueBench) -> None:
    request = prepared(queue, 2)
    agent = queue.agent()
    answer = agent.sync()
    assert [element.jobs for element in answer.elements] == [2, 2]
    assert {row.state for row in queue.elements_of(request)} == {ElementState.NEGOTIATING}
    agent.sync()
    assert {row.state for row in queue.elements_of(request)} == {ElementState.ACQUIRED}
    agent.split()
    rows = queue.elements_of(request)
    assert [(row.state, row.jobs, row.finished_epoch) for row in rows] == [(ElementState.RUNNING, 2, 1)] * 2
    queue.check_every_event_once(request)
    jobs = queue.sql("SELECT state, site, agent_id, events, files, size FROM element_jobs ORDER BY id")
    assert [(job[0], job[2:]) for job in jobs] == [("made", (agent.id, 200, 2, 2000))] * 4
    ids = [row.id for row in rows]
    assert queue.moves(request) == [
        ("Available", "Negotiating", ids),
        ("Negotiating", "Acquired", ids),
        ("Acquired", "Running", ids[:1]),
        ("Acquired", "Running", ids[1:]),
    ]


def test_a_repeated_turn_gets_the_same_elements(queue: QueueBench) -> None:
    prepared(queue, 5)
    agent = queue.agent()
    message = agent.message(2)
    first = agent.send(message)
    assert len(first.elements) == 2
    queue.reopen()
    assert agent.send(message).elements == first.elements
    # The agent has received the answer; an older turn that comes late changes nothing.
    agent.held = {element.id: element for element in first.elements}
    agent.number += 1
    later = agent.sync(2)
    assert len(later.elements) == 2
    with pytest.raises(Superseded):
        agent.send(message)
    assert (
        sorted(row.state for row in queue.elements_of(1))
        == ["Acquired"] * 2 + ["Available"] + ["Negotiating"] * 2
    )


def test_an_answer_that_was_never_confirmed_goes_back(queue: QueueBench) -> None:
    request = prepared(queue, 1)
    agent = queue.agent()
    agent.send(agent.message())
    agent.number += 1
    # The agent has dropped the answer: its next turn does not name the element, and gets it with a new epoch.
    [element] = agent.sync().elements
    assert element.epoch == 2
    assert [old + ">" + new for old, new, _ in queue.moves(request)] == [
        "Available>Negotiating",
        "Negotiating>Available",
        "Available>Negotiating",
    ]


def test_elements_that_are_given_back_are_free(queue: QueueBench) -> None:
    request = prepared(queue, 2)
    agent = queue.agent()
    agent.sync()
    given = sorted(agent.held)[0]
    agent.give_back(given)
    assert [row.state for row in queue.elements_of(request)] == [
        ElementState.AVAILABLE,
        ElementState.ACQUIRED,
    ]
    assert queue.element(given).agent_id is None


def test_masks_of_an_old_epoch_make_nothing(queue: QueueBench) -> None:
    request = prepared(queue, 1)
    first, second = queue.agent("first"), queue.agent("second")
    [element] = first.sync().elements
    masks = first.masks_of(element)
    queue.bench.now += 301
    second.join()
    queue.expire()
    assert len(second.sync().elements) == 1
    first.join()
    assert first.post(element, masks).superseded
    assert first.post(element, masks, last=True).superseded
    assert queue.masks(request) == []
    second.split()
    queue.check_every_event_once(request)


def test_a_new_holder_makes_only_the_rest(queue: QueueBench) -> None:
    request = prepared(queue, 1)
    first, second = queue.agent("first"), queue.agent("second")
    [element] = first.sync().elements
    posted = first.masks_of(element)[:1]
    assert first.post(element, posted).made == 1
    queue.bench.now += 301
    second.join()
    queue.expire()
    [taken] = second.sync().elements
    assert (taken.existing, taken.epoch) == (1, 2)
    assert len(second.masks_of(taken)) == 1
    second.split()
    queue.check_every_event_once(request)
    assert queue.sql("SELECT element_epoch FROM element_jobs ORDER BY id") == [(1,), (2,)]


def test_a_late_split_is_used_if_nobody_else_has_begun(queue: QueueBench) -> None:
    request = prepared(queue, 1)
    agent = queue.agent()
    [element] = agent.sync().elements
    masks = agent.masks_of(element)
    queue.bench.now += 301
    queue.expire()
    assert queue.element(element.id).state is ElementState.AVAILABLE
    agent.join()
    assert agent.post(element, masks, last=True).made == 2
    assert queue.element(element.id).state is ElementState.RUNNING
    queue.check_every_event_once(request)


def test_a_repeated_post_makes_nothing_twice(queue: QueueBench) -> None:
    request = prepared(queue, 1)
    agent = queue.agent()
    [element] = agent.sync().elements
    masks = agent.masks_of(element)
    assert agent.post(element, masks[:1]).made == 1
    answer = agent.post(element, masks)
    assert (answer.made, answer.known) == (1, 1)
    assert agent.post(element, [], last=True, total=2).made == 0
    queue.reopen()
    repeated = agent.post(element, masks, last=True, total=2)
    assert (repeated.made, repeated.known, repeated.superseded) == (0, 2, False)
    other = agent.post(element, [Mask((FileRange(1, 0, 5),), events=5)], last=True)
    assert other.superseded
    queue.check_every_event_once(request)


def test_masks_outside_of_the_element_are_refused(queue: QueueBench) -> None:
    request = prepared(queue, 2)
    agent = queue.agent()
    element, other = agent.sync().elements
    [foreign, *_] = agent.masks_of(other)
    refused = (
        foreign,
        Mask((FileRange(1, 0, 101),), events=101),
        Mask((FileRange(1, 100, 1),), events=1),
        Mask((FileRange(1, 5, 0),)),
        Mask((FileRange(1), FileRange(1)), events=200),
        Mask((FileRange(1, 0, 10), FileRange(1, 5, 10)), events=20),
        Mask((FileRange(10**9),)),
        Mask((), 1, 10),
    )
    for mask in refused:
        with pytest.raises(InvalidInput, match="masks"):
            agent.post(element, [mask])
    assert agent.post(element, [Mask((FileRange(1, 0, 50),), events=50)]).made == 1
    for overlapping in (FileRange(1, 49, 1), FileRange(1), FileRange(1, 0, -1), FileRange(1, 10, 10)):
        with pytest.raises(InvalidInput, match="masks"):
            agent.post(element, [Mask((overlapping,))])
    with pytest.raises(InvalidInput, match="has no job"):
        agent.post(element, [], last=True)
    with pytest.raises(InvalidInput, match="without a mask"):
        agent.post(other, [], last=True)
    with pytest.raises(Conflict, match="its agent knows 9"):
        agent.post(element, agent.masks_of(element), last=True, total=9)
    agent.split()
    queue.check_every_event_once(request)


@pytest.mark.parametrize(
    "document",
    [
        {"files": [[1, 0]]},
        {"files": [[1, 0, -2]]},
        {"files": [["1", 0, 5]]},
        {"files": [[True, 0, 5]]},
        {"files": {"1": 2}},
        {"files": [[1, 0, -1, [[1, 2]]]]},
        {"files": [[1, 0, -1, [[1, -2, 3]]]]},
        {"events": 1.5},
        {"events": -1},
        {"first_event": 2**63},
        {"job": 5},
    ],
)
def test_malformed_masks_are_refused(document: dict[str, object]) -> None:
    with pytest.raises(InvalidInput, match="malformed"):
        read_mask(document)


def test_an_element_that_cannot_be_split_fails_with_the_reason(queue: QueueBench) -> None:
    request = prepared(queue, 1)
    agent = queue.agent()
    [element] = agent.sync().elements
    agent.post(element, [], last=True, failure="a lumi takes more than 48 h")
    agent.post(element, [], last=True, failure="a lumi takes more than 48 h")
    [row] = queue.elements_of(request)
    assert row.state is ElementState.FAILED
    assert queue.sql("SELECT reason FROM elements") == [("a lumi takes more than 48 h",)]


def test_another_process_of_the_name_supersedes_the_first(queue: QueueBench) -> None:
    request = prepared(queue, 1)
    agent = queue.agent()
    agent.sync()
    successor = queue.agent(nonce="second")
    assert successor.id == agent.id
    [row] = queue.elements_of(request)
    assert row.state is ElementState.AVAILABLE
    with pytest.raises(Superseded):
        agent.sync()
    assert len(successor.sync().elements) == 1


def test_a_late_copy_of_a_superseded_join_leaves_the_living_process_its_elements(queue: QueueBench) -> None:
    request = prepared(queue, 1)
    first = queue.agent()
    living = queue.agent(nonce="second")
    living.sync()
    for _ in range(2):
        with pytest.raises(Superseded):
            first.join()
        living.join()
    [row] = queue.elements_of(request)
    assert row.state is ElementState.NEGOTIATING
    assert not living.sync().stop


def test_joining_again_keeps_the_elements(queue: QueueBench) -> None:
    request = prepared(queue, 1)
    agent = queue.agent()
    agent.sync()
    agent.join()
    agent.sync()
    assert queue.elements_of(request)[0].state is ElementState.ACQUIRED


def test_foreign_and_incompatible_agents_are_refused(queue: QueueBench) -> None:
    agent = queue.agent()
    stranger = JoinRequest(agent.name, "home", "x")
    with pytest.raises(Forbidden):
        queue.bench.do(
            lambda tx: membership.join(queue.work_queue, tx, stranger, AgentUser("bob"), queue.now)
        )
    newer = JoinRequest("two", "home", "x", protocol=99)
    with pytest.raises(IncompatibleVersion):
        queue.bench.do(lambda tx: membership.join(queue.work_queue, tx, newer, AgentUser("bob"), queue.now))
    agent.user = AgentUser("bob")
    with pytest.raises(Forbidden):
        agent.sync()


def test_older_requests_of_a_priority_go_first_and_a_change_acts_at_once(queue: QueueBench) -> None:
    first, second, urgent = prepared(queue, 3), prepared(queue, 3), prepared(queue, 2, priority=9000)
    agent = queue.agent()
    assert [element.request for element in agent.sync(5).elements] == [urgent] * 2 + [first] * 3
    later = prepared(queue, 2)
    queue.run("UPDATE requests SET priority = 9999 WHERE id = ?", later)
    assert [element.request for element in agent.sync(3).elements] == [later] * 2 + [second]


def test_probes_and_jumps_find_the_same_elements(queue: QueueBench) -> None:
    """The second pull knows how many groups there are, so it probes the few sets of sites with room."""
    data = queue.dataset("data")
    for number in range(12):
        queue.block(
            data, f"b{number}", 1, sites=[["A"], ["B"], ["A", "B"], ["C"], ["B", "C"], []][number % 6]
        )
    request = queue.request(inputs=[data])
    queue.intake(request)
    agent = queue.agent()
    sites = {row.id: row.location_set for row in queue.elements_of(request)}
    first = agent.sync(2, slots={"A": 100})
    assert queue.work_queue.group_counts == {request: 6}
    second = agent.sync(200, slots={"A": 100})
    taken = [element.id for answer in (first, second) for element in answer.elements]
    names = dict(queue.sql("SELECT id, sites FROM location_sets"))
    assert sorted(taken) == [number for number, row in sites.items() if "A" in names[row]]
    # A set that was stored after the first pull is known to the next one.
    queue.block(data, "late", 1, sites=["A", "C"])
    queue.run("UPDATE request_steps SET closed = 0 WHERE request_id = ?", request)
    queue.intake(request)
    assert len(agent.sync(200, slots={"A": 100}).elements) == 1


def test_slots_are_shared_and_one_element_may_exceed_them(queue: QueueBench) -> None:
    # Each site has 40 slots, and as many pending ones as half of them.
    data = queue.dataset("data")
    for number in range(20):
        queue.block(data, f"b{number}", 14, sites=["A"])
    queue.intake(queue.request(inputs=[data]))
    first = queue.agent("first")
    assert [site.slots for site in first.sync(0).sites] == [60, 60, 1]
    # 60 slots take 9 elements of 7 jobs: before the ninth there are 56.
    assert len(first.sync().elements) == 9
    assert first.sync().elements == []
    first.split()
    assert first.sync().elements == []
    second = queue.agent("second")
    assert [site.slots for site in second.sync(0).sites] == [30, 30, 1]
    assert len(second.sync().elements) == 5
    assert len(second.sync(slots={"B": 500}).elements) == 0


def test_jobs_that_pause_after_a_failure_keep_no_slots(queue: QueueBench) -> None:
    """A request that fails would keep all others from an idle site until its last try."""
    prepared(queue, 1)
    agent = queue.agent()
    assert len(agent.sync(slots={"A": 1}).elements) == 1
    agent.split()
    other = prepared(queue, 1)
    assert agent.sync(slots={"A": 1}).elements == []
    queue.run("UPDATE element_jobs SET state = 'cooloff', failure = 'payload', not_before = 9e9")
    assert [element.request for element in agent.sync(slots={"A": 1}).elements] == [other]


def test_sites_that_drain_or_are_down_are_not_filled(queue: QueueBench) -> None:
    prepared(queue, 4)
    agent = queue.agent()
    for site in "AB":
        row = SiteStateRow(site, SiteState.DRAIN, "alice", "", queue.now)
        queue.bench.set("offers", site_states={**queue.bench.pool.offers.site_states, site: row})
    answer = agent.sync()
    assert answer.elements == []
    assert {site.name: site.state for site in answer.sites} == {"A": "drain", "B": "drain", "C": "normal"}


def test_the_owner_limit_stops_pulls_of_any_priority(queue: QueueBench) -> None:
    request = prepared(queue, 1)
    agent = queue.agent()
    agent.sync()
    agent.split()
    # Two jobs in the pool, and no more are allowed.
    queue.run("UPDATE element_jobs SET state = 'released'")
    policy = queue.bench.pool.policy
    few = msgspec.structs.replace(policy.requests, max_jobs_per_owner=4, owner_limit_factor=0.5)
    queue.bench.set(policy=msgspec.structs.replace(policy, requests=few))
    urgent = prepared(queue, 1, priority=999_999)
    answer = agent.sync()
    assert (answer.elements, answer.room) == ([], 0)
    queue.run("UPDATE element_jobs SET state = 'done' WHERE id = 1")
    answer = agent.sync()
    assert ([element.request for element in answer.elements], answer.room) == ([urgent], 1)
    assert queue.request_row(request).state is RequestState.ACQUIRED


def test_draining_agents_do_not_pull(queue: QueueBench) -> None:
    prepared(queue, 2)
    agent, other = queue.agent("one"), queue.agent("two")
    queue.bench.do(
        lambda tx: membership.set_draining(
            queue.work_queue, tx, "one", 7, draining=True, by="root", now=queue.now
        )
    )
    answer = agent.sync()
    assert (answer.elements, answer.drain, answer.agents) == ([], True, 1)
    assert other.sync(0).sites[0].slots == 60
    assert agent.sync(draining=True).elements == []
    queue.bench.do(
        lambda tx: membership.set_draining(
            queue.work_queue, tx, "one", 7, draining=False, by="root", now=queue.now
        )
    )
    assert not agent.sync(draining=True).drain
    assert len(agent.sync().elements) == 2


def test_a_drain_tells_when_it_began_and_with_how_many_jobs(queue: QueueBench) -> None:
    """A second drain, by the agent itself, does not begin it anew."""
    prepared(queue, 2)
    agent = queue.agent("one")
    agent.split(*(element.id for element in agent.sync().elements))

    def drain() -> tuple[float | None, int]:
        row = queue.bench.do(lambda tx: agents.by_name(tx.connection, "one"))
        assert row is not None
        return row.drain_since, row.drain_jobs

    agent.sync()
    assert drain() == (None, 0)
    began = queue.now
    agent.sync(draining=True)
    jobs = len(queue.sql("SELECT id FROM element_jobs"))
    assert drain() == (began, jobs)
    assert jobs > 0
    queue.bench.now += 5
    queue.bench.do(
        lambda tx: membership.set_draining(
            queue.work_queue, tx, "one", 0, draining=True, by="root", now=queue.now
        )
    )
    agent.sync(draining=True)
    assert drain() == (began, jobs)
    queue.bench.do(
        lambda tx: membership.set_draining(
            queue.work_queue, tx, "one", 0, draining=False, by="root", now=queue.now
        )
    )
    agent.sync()
    assert drain() == (None, 0)


def test_an_element_without_a_place_goes_back(queue: QueueBench) -> None:
    request = prepared(queue, 2)
    agent = queue.agent()
    agent.sync()
    queue.run('UPDATE requests SET banned_sites = \'["A", "B"]\'')
    answer = agent.sync()
    assert len(answer.stop) == 2
    assert {row.state for row in queue.elements_of(request)} == {ElementState.AVAILABLE}
    assert agent.sync().elements == []
    # Unknown is not empty: an element with a location that is not known stays where it is.
    queue.run("UPDATE requests SET banned_sites = '[]'")
    agent.sync()
    queue.run("UPDATE elements SET location_set = 0")
    assert agent.sync().stop == []


def test_split_elements_get_another_agent_of_the_team(queue: QueueBench) -> None:
    request = prepared(queue, 3)
    first, stranger = queue.agent("first"), queue.agent("stranger", team="other")
    first.sync()
    first.split()
    queue.bench.now += 301
    stranger.join()
    assert queue.expire() == 1
    assert {row.agent_id for row in queue.elements_of(request)} == {first.id}
    heirs = {queue.agent("second").id, queue.agent("third").id}
    queue.expire()
    assert {row.agent_id for row in queue.elements_of(request)} == heirs
    assert {row[0] for row in queue.sql("SELECT agent_id FROM element_jobs")} == heirs
    assert queue.sql("SELECT kind, detail FROM events WHERE kind = 'agent-lost'") == [
        ("agent-lost", "first: its lease is over, 0 elements went back")
    ]


def test_cancelled_elements_wait_for_the_word_of_the_agent(queue: QueueBench) -> None:
    request = prepared(queue, 2)
    agent = queue.agent()
    agent.sync()
    agent.sync()
    held = sorted(agent.held)
    queue.run("UPDATE elements SET state = 'CancelRequested'")
    element = agent.held[held[0]]
    assert agent.post(element, []).superseded
    assert sorted(agent.sync().stop) == held
    assert {row.finished_epoch for row in queue.elements_of(request)} == {0}
    agent.sync()
    assert {row.finished_epoch for row in queue.elements_of(request)} == {1}
    assert {row.state for row in queue.elements_of(request)} == {ElementState.CANCEL_REQUESTED}
