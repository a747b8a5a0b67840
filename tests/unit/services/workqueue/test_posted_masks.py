"""The numbers of masks are the server's; a piece that no job may process fails alone."""

from __future__ import annotations

import json

import pytest

from pilotage.core.errors import InvalidInput
from pilotage.core.requests.specification import StepSplitting
from pilotage.core.splitting.mask import FileRange, Mask
from pilotage.core.workqueue.states import ElementState
from pilotage.services.workqueue import resubmission
from pilotage.services.workqueue.splitting import read_mask
from tests.unit.services.workqueue.queue_bench import EVENTS, PaperAgent, QueueBench, lumi

LONG = StepSplitting(
    "EventAwareLumiBased", (("events_per_job", 100), ("time_per_event", 10.0), ("max_lumi_time", 1000.0))
)


def offered(queue: QueueBench, splitting: StepSplitting) -> tuple[PaperAgent, int]:
    """An element of a block with three files: two with short lumis, one with two long ones."""
    data = queue.dataset("data")
    block = queue.block(data, "b", 3, events=50)
    for number in range(3):
        lumis = json.dumps([(1, 2 * number + 1, 2 * number + 2)])
        queue.run("UPDATE files SET lumis = ? WHERE name = ?", lumis, f"b/{number}")
    queue.run("UPDATE files SET events = 5000 WHERE name = 'b/1'")
    queue.run("UPDATE blocks SET events = 5100 WHERE id = ?", block)
    request = queue.request(queue.step(splitting=splitting), inputs=[data])
    queue.intake(request)
    agent = queue.agent()
    agent.sync()
    return agent, request


def test_an_agents_word_about_events_is_not_believed(queue: QueueBench) -> None:
    agent, _ = offered(queue, LONG)
    [element] = agent.held.values()
    boast = Mask((FileRange(1, lumis=(lumi(1, 1, 1),)),), first_event=7, events=10**12, first_lumi=3, lumis=9)
    agent.post(element, [boast])
    [(events, text)] = queue.sql("SELECT events, mask FROM element_jobs")
    assert events == 25
    assert json.loads(text) == {"events": 25, "files": [[1, 0, -1, [[1, 1, 1]]]]}
    # The same piece with another boast is the same piece.
    with pytest.raises(InvalidInput, match="has a job"):
        agent.post(element, [Mask(boast.ranges, events=5)])


@pytest.mark.parametrize("twice", [(lumi(1, 1, 2), lumi(1, 2, 2)), (lumi(1, 1, 1), lumi(1, 1, 1))])
def test_a_range_of_lumis_is_named_once(queue: QueueBench, twice: tuple[object, ...]) -> None:
    agent, _ = offered(queue, LONG)
    [element] = agent.held.values()
    with pytest.raises(InvalidInput, match="named twice"):
        agent.post(element, [Mask((FileRange(1, lumis=twice),))])  # type: ignore[arg-type]
    assert agent.post(element, [Mask((FileRange(1, lumis=(lumi(1, 1, 2),)),))]).made == 1
    assert queue.sql("SELECT events FROM element_jobs") == [(50,)]


def test_the_server_numbers_generated_lumis(queue: QueueBench) -> None:
    request = queue.request(queue.step(splitting=EVENTS, events=25, start_policy="MonteCarlo"))
    queue.intake(request)
    agent = queue.agent()
    [element] = agent.sync().elements
    with pytest.raises(InvalidInput, match="several jobs"):
        agent.post(element, [Mask((), 5, 10, 1, 1)])
    assert agent.post(element, [Mask((), 11, 10, first_lumi=1, lumis=3)]).made == 1
    [mask] = queue.masks(request)
    assert (mask.first_event, mask.events, mask.first_lumi, mask.lumis) == (11, 10, 2, 1)
    agent.split()
    assert [(mask.first_event, mask.first_lumi) for mask in queue.masks(request)] == [
        (11, 2),
        (1, 1),
        (21, 3),
    ]
    queue.check_every_event_once(request)


def test_a_piece_that_takes_too_long_fails_alone_and_can_be_resubmitted(queue: QueueBench) -> None:
    agent, request = offered(queue, LONG)
    agent.split()
    [row] = queue.elements_of(request)
    assert row.state is ElementState.RUNNING
    jobs = queue.sql(
        "SELECT state, failure, message, ended IS NULL, events FROM element_jobs ORDER BY events"
    )
    assert [(job[0], job[1], bool(job[3])) for job in jobs] == [
        ("made", "", True),
        ("exhausted", "splitting", False),
    ]
    assert "which take 6.9 h: more than the 0.3 h of max_lumi_time" in jobs[1][2]
    assert queue.sql("SELECT jobs, jobs_failed FROM elements") == [(2, 1)]
    queue.check_every_event_once(request)
    stored = queue.request_row(request)
    parts = queue.bench.do(lambda tx: resubmission.failed_parts(tx.connection, stored, []))
    [piece] = parts.pieces[0]
    assert piece.mask is not None
    assert [part.file for part in piece.mask.ranges] == [2]
    assert not piece.mask.refused


def test_an_element_of_pieces_that_all_take_too_long_fails(queue: QueueBench) -> None:
    short = dict(LONG.parameters) | {"max_lumi_time": 1.0}
    agent, request = offered(queue, StepSplitting(LONG.algorithm, tuple(short.items())))
    agent.split()
    [row] = queue.elements_of(request)
    assert row.state is ElementState.FAILED
    assert queue.sql("SELECT count(*) FROM element_jobs WHERE state = 'exhausted'") == [(3,)]


@pytest.mark.parametrize("refused", [5, None, ["x"], "x" * 2001])
def test_a_malformed_reason_is_refused(refused: object) -> None:
    with pytest.raises(InvalidInput, match="malformed"):
        read_mask({"files": [[1, 0, -1]], "refused": refused})
