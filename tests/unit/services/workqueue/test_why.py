"""Why requests and elements are not further, told by the facts of the store. A prediction is then tried."""

from __future__ import annotations

from pilotage.core.requests.states import RequestState
from pilotage.core.sites import SiteState
from pilotage.services.policy.site_states import set_site_state
from pilotage.services.requests import why
from pilotage.services.workqueue.state import WorkQueue
from pilotage.store.tables import queued_requests, request_waits
from pilotage.wire.request_why import RequestWhy
from tests.unit.services.workqueue.queue_bench import QueueBench


def ask(bench: QueueBench, request: int, element: int | None = None) -> RequestWhy:
    def answer(tx: object) -> RequestWhy:
        connection = tx.connection  # type: ignore[attr-defined]
        row = queued_requests.by_ids(connection, [request])[request]
        queue = WorkQueue(bench.bench.pool)
        if element is None:
            return why.why_request(queue, connection, row, bench.now)
        facts = request_waits.element(connection, element)
        assert facts is not None
        return why.why_element(queue, connection, row, element, facts, bench.now)

    return bench.bench.do(answer)


def switch(bench: QueueBench, site: str, state: SiteState) -> None:
    bench.bench.do(
        lambda tx: set_site_state(bench.bench.pool, tx, site, state, by="ada", reason="", now=bench.now)
    )


def reasons(answer: RequestWhy) -> dict[str, str]:
    return {row.site: row.reason for row in answer.sites}


def test_no_agent_and_then_one(queue: QueueBench) -> None:
    data = queue.dataset("data")
    for number in range(3):
        queue.block(data, f"b{number}")
    request = queue.request(inputs=[data])
    assert "being made" in ask(queue, request).summary
    queue.intake(request)
    answer = ask(queue, request)
    assert reasons(answer) == {
        "A": "no live agent of the team",
        "B": "no live agent of the team",
        "C": "the input is not there",
    }
    assert answer.advice == "start an agent: pilotage agent --team home (would let 3 go)"
    assert answer.elements == {"Available": 3}
    agent = queue.agent()
    answer = ask(queue, request)
    assert answer.summary == "3 of 3 waiting elements may be taken by the next pull of an agent"
    assert not answer.changes
    taken = agent.sync().elements
    assert len(taken) == 3, "as it was told"
    assert "agent one (live) has it for site" in ask(queue, request, taken[0].id).summary


def test_the_change_that_is_named_lets_as_many_go(queue: QueueBench) -> None:
    data = queue.dataset("data")
    for number in range(4):
        queue.block(data, f"b{number}", sites=("A",) if number < 3 else ("B",))
    request = queue.request(inputs=[data])
    queue.intake(request)
    agent = queue.agent()
    switch(queue, "A", SiteState.DRAIN)
    answer = ask(queue, request)
    assert answer.summary == "1 of 4 waiting elements may be taken by the next pull of an agent"
    assert answer.changes[0].elements == 3
    assert "make the site normal: pilotage site enable A" in [row.change for row in answer.changes]
    assert len(agent.sync().elements) == 1
    switch(queue, "A", SiteState.NORMAL)
    assert len(agent.sync().elements) == 3


def test_filled_slots_are_told_by_priority(queue: QueueBench) -> None:
    data = queue.dataset("data")
    for number in range(40):
        queue.block(data, f"b{number}", files=8, sites=("A",))
    first = queue.request(inputs=[data], priority=5000)
    queue.intake(first)
    agent = queue.agent()
    agent.sync()
    low = queue.request(inputs=[data], priority=4000)
    high = queue.request(inputs=[data], priority=6000)
    queue.intake(low)
    queue.intake(high)
    assert "the slots are filled" in ask(queue, low).summary
    assert "may be taken by the next pull" in ask(queue, high).summary


def test_states_before_and_after_the_queue(queue: QueueBench) -> None:
    data = queue.dataset("data")
    queue.block(data, "b")
    new = queue.request(inputs=[data], state=RequestState.NEW)
    assert ask(queue, new).advice == f"`pilotage request approve {new}` (production managers)"
    approved = queue.request(inputs=[data], state=RequestState.ASSIGNMENT_APPROVED, team="")
    assert "no team" in ask(queue, approved).summary
    aborted = queue.request(inputs=[data], state=RequestState.ABORTED)
    assert ask(queue, aborted).summary.startswith("it is aborted")
    assigned = queue.request(inputs=[data], team="")
    assert "no team" in ask(queue, assigned).summary


def test_unknown_locations_and_made_jobs(queue: QueueBench) -> None:
    data = queue.dataset("data")
    queue.block(data, "b", sites=None)
    request = queue.request(inputs=[data])
    queue.intake(request)
    agent = queue.agent()
    answer = ask(queue, request)
    assert "the location of the input is not known" in answer.summary
    known = queue.dataset("known")
    queue.block(known, "b", sites=("A",))
    second = queue.request(inputs=[known])
    queue.intake(second)
    [element] = agent.sync().elements
    agent.split(element.id)
    answer = ask(queue, second)
    assert answer.jobs == {"made": 2}
    assert answer.summary == "2 jobs are made and wait for their release to the pool"
    assert ask(queue, second, element.id).jobs == {"made": 2}
