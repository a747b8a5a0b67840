"""Requests that end by force and still merge: why they wait, and which facts of them may change."""

from __future__ import annotations

from pilotage.core.datasets.facts import FileEntry, Replica
from pilotage.services.catalogue.outputs import WrittenFile, register_outputs
from pilotage.services.requests import changes
from pilotage.services.requests.changes import SiteLists
from pilotage.store.tables.requests import RequestRow
from tests.unit.services.test_requests import Desk, end_work, steps_of
from tests.unit.services.workqueue.queue_bench import QueueBench
from tests.unit.services.workqueue.test_why import ask, reasons


def forced_with_output_at(desk: Desk, site: str) -> RequestRow:
    """A request that ended by force while it may not run at the site of its only output."""
    queue = desk.queue
    data = queue.dataset("/data")
    queue.block(data, "b0")
    row = desk.submit()
    queue.intake(row.id)
    [process, _] = steps_of(queue, row)
    assert process.output_dataset is not None
    output = WrittenFile(process.output_dataset, FileEntry("1/out", 1000, 10), Replica(site, "/pool/out"))
    queue.bench.do(lambda tx: register_outputs(tx, 1, [output], queue.now))
    desk.lists(changes.set_sites, row, SiteLists(banned=(site,)))
    queue.run("UPDATE requests SET state = 'running-open' WHERE id = ?", row.id)
    desk.do(changes.force_complete, row)
    end_work(queue, row)
    queue.intake(row.id)
    return desk.row(row)


def test_a_forced_request_tells_of_its_banned_site_and_merges_there_once_it_may(queue: QueueBench) -> None:
    desk = Desk(queue)
    row = forced_with_output_at(desk, "A")
    assert row.state == "force-complete"
    agent = queue.agent()
    assert not agent.sync().elements
    [merge] = [element for element in queue.elements_of(row.id) if element.step == 1]
    for answer in (ask(queue, row.id), ask(queue, row.id, merge.id)):
        assert answer.summary.startswith("no site takes its 1 waiting element now"), answer.summary
        assert reasons(answer)["A"] == "in the request's list of banned sites"
        command = "pilotage request sites REQUEST --banned-sites ''"
        assert answer.advice.startswith(f"take site A off the request's banned sites: {command}")
    desk.lists(changes.set_sites, row, SiteLists(banned=()))
    assert "may be taken by the next pull" in ask(queue, row.id).summary
    [offer] = agent.sync().elements
    assert offer.id == merge.id


def test_a_forced_request_gets_another_team(queue: QueueBench) -> None:
    desk = Desk(queue)
    row = forced_with_output_at(desk, "A")
    desk.do(changes.assign, row, "other", SiteLists(banned=()), queue.bench.pool.policy)
    assert desk.row(row).team == "other"
    agent = queue.agent()
    assert not agent.sync().elements
