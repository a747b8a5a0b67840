"""Why requests and elements are not further, told by the facts of the store. A prediction is then tried."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pilotage.core.requests.states import RequestState
from pilotage.core.sites import SiteState
from pilotage.services.policy.site_states import set_site_state
from pilotage.services.requests import why
from pilotage.services.workqueue.state import WorkQueue
from pilotage.store.tables import queued_requests, request_waits
from pilotage.wire.request_why import RequestWhy
from tests.unit.services.request_bench import RequestBench
from tests.unit.services.workqueue.queue_bench import QueueBench


def ask(bench: QueueBench, request: int, element: int | None = None) -> RequestWhy:
    def answer(tx: object) -> RequestWhy:
        connection = tx.connection  # type: ignore[attr-defined]
        row = queued_requests.by_ids(connection, [request])[request]
        work_queue = WorkQueue(bench.bench.pool)
        if element is None:
            return why.why_request(work_queue, connection, row, bench.now)
        facts = request_waits.element(connection, element)
        assert facts is not None
        return why.why_element(work_queue, connection, row, element, facts, bench.now)

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


def test_a_paused_request_tells_how_to_go_on(queue: QueueBench) -> None:
    data = queue.dataset("data")
    queue.block(data, "b")
    request = queue.request(inputs=[data])
    queue.intake(request)
    queue.run("UPDATE requests SET paused = 1 WHERE id = ?", request)
    answer = ask(queue, request)
    assert (answer.summary, answer.advice) == (why.PAUSED, f"`pilotage request resume {request}`")
    [element] = queue.elements_of(request)
    assert ask(queue, request, element.id).summary == why.PAUSED


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
    assert answer.summary == "2 of 2 made jobs have a site that takes them: the release goes on"
    assert ask(queue, second, element.id).jobs == {"made": 2}


def made_jobs(queue: QueueBench, sites: Sequence[str] = ("A",), count: int = 30) -> int:
    """A request whose jobs are made, for data at these sites; they are not released."""
    data = queue.dataset(f"data of {count} at {' '.join(sites)}")
    queue.block(data, "b", files=2 * count, sites=sites)
    request = queue.request(inputs=[data])
    queue.intake(request)
    agent = queue.agent()
    [element] = agent.sync().elements
    agent.split(element.id)
    return request


def job_reasons(answer: RequestWhy) -> dict[str, str]:
    return {row.site: row.reason for row in answer.made_jobs}


def release(queue: QueueBench) -> int:
    """The release itself, which proves what was told."""
    made = RequestBench(queue.bench)
    made.work_queue = queue.work_queue
    return made.release()


def test_made_jobs_at_a_threshold_are_told_with_its_numbers(queue: QueueBench) -> None:
    request = made_jobs(queue)
    assert job_reasons(ask(queue, request))["A"] == ""
    assert release(queue) == 18, "90 % of 20 for one type"
    answer = ask(queue, request)
    assert job_reasons(answer) == {
        "A": "the site has enough waiting jobs of this type: 18 of 18",
        "B": "the input is not there",
        "C": "the input is not there",
    }
    assert answer.summary == (
        "no site takes its 12 made jobs now: the site has enough waiting jobs of this type: 18 of 18 (A)"
    )
    assert "explains the oldest job in the pool" in answer.advice


def test_made_jobs_of_a_site_that_is_down_name_the_command(queue: QueueBench) -> None:
    request = made_jobs(queue)
    switch(queue, "A", SiteState.DOWN)
    answer = ask(queue, request)
    assert job_reasons(answer)["A"] == "the site is down"
    assert release(queue) == 0
    first = answer.releases[0]
    assert (first.change, first.jobs) == ("make the site normal: pilotage site enable A", 18)
    switch(queue, "A", SiteState.NORMAL)
    assert release(queue) == first.jobs


def test_a_drained_site_takes_made_jobs_only_if_there_is_no_other(queue: QueueBench) -> None:
    request = made_jobs(queue, ("A", "B"))
    switch(queue, "A", SiteState.DRAIN)
    assert job_reasons(ask(queue, request)) == {
        "A": "the site is drained",
        "B": "",
        "C": "the input is not there",
    }
    switch(queue, "B", SiteState.DOWN)
    assert job_reasons(ask(queue, request)) == {
        "A": "",
        "B": "the site is down",
        "C": "the input is not there",
    }
    assert release(queue) == 18


def test_the_banned_and_the_avoided_site_and_the_owner_limit(queue: QueueBench) -> None:
    request = made_jobs(queue, ("A", "B", "C"))
    queue.run("UPDATE requests SET banned_sites = '[\"A\"]' WHERE id = ?", request)
    queue.run("UPDATE element_jobs SET avoided_sites = '[\"B\"]'")
    policy = queue.bench.pool.policy
    few = msgspec.structs.replace(policy.requests, max_jobs_per_owner=4)
    queue.bench.set(policy=msgspec.structs.replace(policy, requests=few))
    assert release(queue) == 3
    answer = ask(queue, request)
    assert job_reasons(answer) == {
        "A": "in the request's list of banned sites",
        "B": "the jobs failed there, and are tried at another site",
        "C": "the agent is at its limit of jobs: 3 of 3",
    }
    assert answer.releases[0].change == "raise requests.max_jobs_per_owner in the policy"


def test_a_site_that_is_down_is_named_where_no_single_change_helps(queue: QueueBench) -> None:
    """The only site with the data is down, and there is no agent either."""
    data = queue.dataset("data")
    queue.block(data, "b", sites=("C",))
    request = queue.request(inputs=[data])
    queue.intake(request)
    switch(queue, "C", SiteState.DOWN)
    answer = ask(queue, request)
    assert not answer.changes
    assert answer.summary == "no site takes its 1 waiting element now: the site is down (C)"
    assert "pilotage site enable C" in answer.advice


def test_open_blocks_are_named_only_where_they_are_the_cause(queue: QueueBench) -> None:
    data = queue.dataset("data", is_open=True)
    queue.block(data, "b", is_open=True)
    request = queue.request(inputs=[data], open_until=queue.now + 1000)
    queue.intake(request)
    answer = ask(queue, request)
    assert answer.summary == "step process waits: a block of its input data is not closed"
    assert "pilotage dataset close data" in answer.advice
    queue.run("UPDATE blocks SET open = 0, closed_number = 1")
    queue.intake(request)
    queue.run("UPDATE elements SET state = 'Done'")
    assert ask(queue, request).summary == "step process has taken all blocks of data, and more may come"
    queue.run("UPDATE request_steps SET closed = 1")
    assert ask(queue, request).summary == "all of its work has ended; its state will change soon"


def test_the_reason_of_failed_elements_is_told(queue: QueueBench) -> None:
    data = queue.dataset("data")
    queue.block(data, "b")
    request = queue.request(inputs=[data])
    queue.intake(request)
    queue.run("UPDATE elements SET state = 'Failed', unsplit = 1, reason = 'no file has lumis'")
    answer = ask(queue, request)
    assert answer.summary.endswith("; 1 element failed: no file has lumis")
    queue.run("UPDATE requests SET state = 'failed', reason = 'nothing to do'")
    assert ask(queue, request).summary == "it is failed: nothing to do; 1 element failed: no file has lumis"
