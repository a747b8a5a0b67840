"""How soon an agent is asked to call again."""

from __future__ import annotations

from msgspec.structs import replace

from tests.unit.services.workqueue.queue_bench import QueueBench


def test_an_agent_with_few_slots_calls_more_often_while_work_waits(queue: QueueBench) -> None:
    data = queue.dataset("data")
    for number in range(30):
        queue.block(data, f"b{number}", files=8, sites=("A",))
    pool, whole = queue.bench.pool, 60.0
    settings = replace(pool.policy.requests, agent_period=whole)
    queue.bench.do(lambda tx: tx.set(pool, "policy", replace(pool.policy, requests=settings)))
    agent = queue.agent()
    assert agent.sync().period == whole
    request = queue.request(inputs=[data])
    queue.intake(request)
    first = agent.sync(1)
    slots = sum(site.slots for site in first.sites)
    assert first.elements
    assert first.period == min(whole, max(0.5, slots / 20)) < whole
    agent.split(*agent.held)
    assert agent.sync(0, draining=True).period == whole
    while agent.sync().elements:
        queue.run("UPDATE element_jobs SET state = 'done'")
        agent.split(*agent.held)
        queue.bench.now += 5
    assert agent.sync().period == whole, "no element is left"
