"""Several resubmissions of one request: no failed part is made again twice, and none is lost."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from pilotage.cli.outcome import JOB_FAILED
from pilotage.cli.requests.wait import RequestOutcome, is_repaired
from pilotage.core.errors import Conflict, InvalidInput
from pilotage.core.jobs.description import JobDescription
from pilotage.core.requests.json_format import stored_steps
from pilotage.core.requests.states import RequestState
from pilotage.core.requests.step_changes import StepChanges
from pilotage.core.splitting.mask import Mask
from pilotage.services.catalogue import removal
from pilotage.services.requests import changes, copies, progress
from pilotage.services.requests.copies import Resubmitted
from pilotage.services.workqueue import roll_up
from pilotage.services.workqueue.programs import ProgramCache
from pilotage.services.workqueue.propagation import Propagation
from pilotage.services.workqueue.resubmission import KEEPING
from pilotage.store.tables import requests, resubmissions
from pilotage.store.tables.requests import RequestRow
from pilotage.store.tables.selections import Viewer
from pilotage.wire.resubmissions import Resubmissions, ResubmissionState
from pilotage.wire.submissions import UploadedInput
from tests.unit.services.test_requests import ALICE, MANAGER, Desk
from tests.unit.services.workqueue.queue_bench import QueueBench

R = RequestState
FILES: dict[str, Any] = {"merge": None}
GENERATED: dict[str, Any] = {
    "merge": None,
    "input": None,
    "events": 120,
    "splitting": {"algorithm": "EventBased", "events_per_job": 10},
}
LUMIS: dict[str, Any] = {"merge": None, "splitting": {"algorithm": "LumiBased", "lumis_per_job": 3}}


class ChainDesk(Desk):
    """Resubmits requests, and lets their work end as told."""

    def __init__(self, queue: QueueBench) -> None:
        super().__init__(queue)
        dataset = queue.dataset("/data")
        for number in range(3):
            queue.block(dataset, f"b{number}", lumis=[(1, 10 * number + 1, 10 * number + 10)])
        self.agent = queue.agent()

    def resubmit(self, number: int, key: str = "", actor: Any = MANAGER) -> Resubmitted:
        bench = self.bench
        return bench.do(
            lambda tx: copies.resubmit(bench.pool.policy, tx, number, actor, key=key, now=bench.now)
        )

    def make_jobs(self, number: int) -> list[int]:
        """Intake, pull and splitting of a request; returns its element jobs."""
        self.queue.intake(number)
        self.agent.sync()
        self.agent.split()
        sql = "SELECT id FROM element_jobs WHERE request_id = ? ORDER BY id"
        return [row[0] for row in self.queue.sql(sql, number)]

    def end(self, number: int, failed: list[int], *, aborted: list[int] | None = None) -> None:
        """End a request: these jobs have failed for good, or were cancelled; the others are done."""
        run = self.queue.run
        run("UPDATE element_jobs SET state = 'done' WHERE request_id = ?", number)
        for state, jobs in (("exhausted", failed), ("canceled", aborted or [])):
            for job in jobs:
                run("UPDATE element_jobs SET state = ? WHERE id = ?", state, job)
        state = R.COMPLETED if aborted is None else R.ABORTED_COMPLETED
        run("UPDATE requests SET state = ? WHERE id = ?", state, number)

    def failed_request(self, failed: int, **fields: Any) -> tuple[RequestRow, list[int]]:
        """A completed request whose first jobs have failed for good."""
        row = self.submit(**fields)
        jobs = self.make_jobs(row.id)
        self.end(row.id, jobs[:failed])
        return row, jobs

    def masks_of(self, *jobs: int) -> list[str]:
        sql = "SELECT mask FROM element_jobs WHERE id = ?"
        return sorted(self.queue.sql(sql, job)[0][0] for job in jobs)


@pytest.fixture
def chain(queue: QueueBench) -> ChainDesk:
    return ChainDesk(queue)


@pytest.mark.parametrize("fields", [FILES, GENERATED])
def test_parts_of_a_resubmission_under_way_are_not_taken_again(
    chain: ChainDesk, fields: dict[str, Any]
) -> None:
    row, _ = chain.failed_request(2, **fields)
    first = chain.resubmit(row.id, key="one")
    assert (first.parts, first.left_out) == (2, ())
    for key in ("two", "three", ""):
        with pytest.raises(Conflict, match=rf"each failed part .* 2 in request {first.row.id} \(assigned\)"):
            chain.resubmit(row.id, key=key)
    assert chain.resubmit(row.id, key="one") == first
    assert len(chain.make_jobs(first.row.id)) == 2
    with pytest.raises(Conflict, match="each failed part"):
        chain.resubmit(row.id, key="two")
    assert len(chain.queue.sql("SELECT id FROM requests")) == 2


def test_a_repaired_request_tells_where_its_parts_are_done(chain: ChainDesk) -> None:
    row, _ = chain.failed_request(2, **FILES)

    def shown() -> Resubmissions | None:
        ended = chain.queue.request_row(row.id)
        return chain.bench.do(lambda tx: progress.detail(tx.connection, ended, chain.bench.now)).resubmitted

    assert shown() is None
    again = chain.resubmit(row.id).row.id
    assert shown() == Resubmissions(2, 2, [ResubmissionState(again, "assigned", 2)])
    [failed, _] = chain.make_jobs(again)
    chain.end(again, [failed])
    assert shown() == Resubmissions(2, 1, [ResubmissionState(again, "completed", 1)])
    last = chain.resubmit(row.id).row.id
    with pytest.raises(Conflict) as refused:
        chain.resubmit(row.id)
    assert f"request show {last}" in refused.value.hint
    chain.make_jobs(last)
    chain.end(last, [])
    parts = [ResubmissionState(again, "completed", 1), ResubmissionState(last, "completed", 1)]
    assert shown() == Resubmissions(2, 2, parts)
    with pytest.raises(Conflict) as refused:
        chain.resubmit(row.id)
    assert refused.value.hint == "all of them are done: nothing is left to make again"


def test_a_repaired_request_counts_as_done_for_those_who_wait(chain: ChainDesk) -> None:
    row, _ = chain.failed_request(2, **FILES)

    def repaired() -> bool:
        ended = chain.queue.request_row(row.id)
        shown = chain.bench.do(lambda tx: progress.detail(tx.connection, ended, chain.bench.now))
        assert shown.request.failed_jobs == 2
        return is_repaired(shown.resubmitted)

    assert not repaired()
    first = chain.resubmit(row.id).row
    assert not repaired()
    [failed, _] = chain.make_jobs(first.id)
    chain.end(first.id, [failed])
    assert not repaired()
    second = chain.resubmit(row.id).row
    assert not repaired()
    chain.make_jobs(second.id)
    chain.end(second.id, [])
    assert repaired()
    outcome = RequestOutcome(row.id, "completed", True, 1, 2, 2, 0, repaired=True)
    assert (outcome.code, replace(outcome, repaired=False).code) == (0, JOB_FAILED)
    chain.do(changes.reject, second)
    assert not repaired()
    with pytest.raises(Conflict) as refused:
        chain.resubmit(row.id)
    assert refused.value.hint.endswith(f"`pilotage request clone {row.id}` makes all again")


def test_the_way_out_of_a_resubmission_that_is_not_wanted_is_told(chain: ChainDesk) -> None:
    row, _ = chain.failed_request(1, **FILES)
    first = chain.resubmit(row.id).row
    with pytest.raises(Conflict) as refused:
        chain.do(changes.reject, first)
    assert refused.value.hint == f"`pilotage request abort {first.id}` ends it"


@pytest.mark.parametrize("fields", [FILES, GENERATED, LUMIS])
def test_a_second_resubmission_takes_only_what_failed_since(chain: ChainDesk, fields: dict[str, Any]) -> None:
    row, _ = chain.failed_request(3, **fields)
    first = chain.resubmit(row.id)
    again = chain.make_jobs(first.row.id)
    chain.end(first.row.id, again[:1])
    second = chain.resubmit(row.id)
    assert second.left_out == ((first.row.id, 2),)
    assert second.parts == 1
    assert chain.masks_of(*chain.make_jobs(second.row.id)) == chain.masks_of(again[0])
    with pytest.raises(Conflict, match=f"1 in request {second.row.id}"):
        chain.resubmit(first.row.id)


def test_siblings_and_grandchildren_share_the_parts(chain: ChainDesk) -> None:
    """Parts that failed twice go to a resubmission of the request, or of its resubmission, but not to both."""
    row, _ = chain.failed_request(4, **FILES)
    child = chain.resubmit(row.id)
    jobs = chain.make_jobs(child.row.id)
    chain.end(child.row.id, jobs[:2], aborted=jobs[2:3])
    grandchild = chain.resubmit(child.row.id)
    assert (grandchild.parts, grandchild.left_out) == (2, ())
    sibling = chain.resubmit(row.id)
    # One part is done in the child, two are under way in the grandchild; one was cancelled.
    assert (sibling.parts, sibling.left_out) == (1, ((child.row.id, 1), (grandchild.row.id, 2)))
    assert chain.masks_of(*chain.make_jobs(sibling.row.id)) == chain.masks_of(jobs[2])


def test_the_last_request_of_a_chain_closes_the_data_set_that_all_write(chain: ChainDesk) -> None:
    queue, bench = chain.queue, chain.bench

    def output_of(number: int) -> int | None:
        [step] = bench.do(lambda tx: requests.steps_of(tx.connection, number))
        return step.output_dataset

    def is_open() -> bool:
        return bool(queue.sql("SELECT open FROM datasets WHERE id = ?", output_of(row.id))[0][0])

    def finish(number: int) -> None:
        queue.run("UPDATE element_jobs SET state = 'done' WHERE request_id = ?", number)
        queue.run("UPDATE elements SET state = 'Done' WHERE request_id = ?", number)
        bench.do(lambda tx: roll_up.advance(tx, number, bench.now))

    row, _ = chain.failed_request(3, **FILES)
    child = chain.resubmit(row.id).row.id
    jobs = chain.make_jobs(child)
    chain.end(child, jobs[:1], aborted=jobs[1:2])
    grandchild, sibling = chain.resubmit(child).row.id, chain.resubmit(row.id).row.id
    assert {output_of(number) for number in (row.id, child, grandchild, sibling)} == {output_of(row.id)}
    queue.run("UPDATE datasets SET open = 0 WHERE id = ?", output_of(row.id))
    chain.make_jobs(grandchild)
    chain.make_jobs(sibling)
    assert is_open()
    finish(grandchild)
    assert is_open()
    finish(sibling)
    assert not is_open()


def test_a_resubmission_opens_no_data_set_before_it_is_acquired(chain: ChainDesk) -> None:
    """It may be rejected until then. Without the data set of the first request it has a new one."""
    row, _ = chain.failed_request(1, **FILES)
    queue = chain.queue
    queue.run("UPDATE datasets SET open = 0 WHERE request_id = ?", row.id)
    rejected = chain.resubmit(row.id, actor=ALICE).row
    chain.do(changes.reject, rejected)
    assert not queue.sql("SELECT id FROM datasets WHERE request_id IS NOT NULL AND open = 1")
    [[name]] = queue.sql("SELECT name FROM datasets WHERE request_id = ?", row.id)
    everybody = Viewer("", everything=True)
    chain.bench.do(lambda tx: removal.remove(tx, name, changer=everybody, now=chain.bench.now))
    again = chain.resubmit(row.id).row.id
    assert queue.sql("SELECT name, open FROM datasets WHERE request_id = ?", again) == [(name, 1)]


@pytest.mark.parametrize("end", ["withdrawn", "rejected", "aborted"])
def test_an_ended_resubmission_frees_its_parts(chain: ChainDesk, end: str) -> None:
    row, _ = chain.failed_request(2, **FILES)
    if end == "aborted":
        first = chain.resubmit(row.id)
        chain.queue.intake(first.row.id)
        chain.do(changes.abort, first.row)
        with pytest.raises(Conflict, match=r"\(aborted\)"):
            chain.resubmit(row.id)
    else:
        # Alice's requests wait for an approval.
        first = chain.resubmit(row.id, actor=ALICE)
        assert first.row.state is R.NEW
        chain.do(changes.abort if end == "withdrawn" else changes.reject, first.row)
    run = Propagation(chain.queue.work_queue, first.row.id)
    while not chain.bench.do(lambda tx: run.run(tx, chain.bench.now, 1)):
        pass
    if end == "aborted":
        chain.bench.do(lambda tx: roll_up.advance(tx, first.row.id, chain.bench.now))
    assert [element.state for element in chain.queue.elements_of(first.row.id)] == ["Canceled"]
    assert chain.agent.sync().elements == []
    second = chain.resubmit(row.id)
    assert (second.parts, second.left_out) == (2, ())
    assert len(chain.make_jobs(second.row.id)) == 2


def test_a_failed_resubmission_keeps_its_parts_until_it_is_rejected(chain: ChainDesk) -> None:
    """It may be assigned again."""
    row, _ = chain.failed_request(1, **FILES)
    first = chain.resubmit(row.id)
    chain.queue.run("UPDATE requests SET state = 'failed' WHERE id = ?", first.row.id)
    with pytest.raises(Conflict, match="each failed part"):
        chain.resubmit(row.id)
    chain.do(changes.reject, first.row)
    assert chain.resubmit(row.id).parts == 1


def test_a_clone_is_no_resubmission(chain: ChainDesk) -> None:
    """A clone runs all, in data sets of its own: the failed parts of the first request stay free."""
    row, _ = chain.failed_request(1, **FILES)
    bench = chain.bench
    clone = bench.do(
        lambda tx: copies.clone(bench.pool.policy, tx, row.id, MANAGER, changes={}, key="", now=bench.now)
    )
    jobs = chain.make_jobs(clone.id)
    chain.end(clone.id, jobs[:2])
    first, of_clone = chain.resubmit(row.id), chain.resubmit(clone.id)
    assert (first.parts, first.left_out, of_clone.parts, of_clone.left_out) == (1, (), 2, ())
    copy = bench.do(
        lambda tx: copies.clone(
            bench.pool.policy, tx, first.row.id, MANAGER, changes={}, key="", now=bench.now
        )
    )
    assert copy.root is None
    assert len(chain.make_jobs(copy.id)) == len(jobs)


def test_a_key_of_another_request_is_refused(chain: ChainDesk) -> None:
    row, _ = chain.failed_request(1, **FILES)
    other, _ = chain.failed_request(1, **FILES)
    chain.resubmit(row.id, key="k")
    with pytest.raises(Conflict, match="the key k belongs to another request"):
        chain.resubmit(other.id, key="k")


def test_a_key_of_another_program_is_refused(chain: ChainDesk) -> None:
    row, _ = chain.failed_request(1, **FILES)
    chain.resubmit(row.id, key="k")
    bench, other = chain.bench, UploadedInput("run.sh", "0" * 64, 3)
    with pytest.raises(Conflict, match="the key k belongs to another request"):
        bench.do(
            lambda tx: copies.resubmit(
                bench.pool.policy, tx, row.id, MANAGER, inputs=[other], key="k", now=bench.now
            )
        )


def test_a_resubmission_has_other_resources_and_the_same_pieces(chain: ChainDesk) -> None:
    """More memory for the parts that failed, as a key that is sent again says too."""
    row, _ = chain.failed_request(1, **FILES)
    bench = chain.bench

    def resubmit(steps: StepChanges) -> Resubmitted:
        return bench.do(
            lambda tx: copies.resubmit(
                bench.pool.policy, tx, row.id, MANAGER, steps=steps, key="k", now=bench.now
            )
        )

    resplit = StepChanges("", {}, {"files_per_job": 7})
    with pytest.raises(InvalidInput, match=r"total_files cannot change: .* exactly the parts that failed"):
        resubmit(StepChanges("", {}, {"total_files": 7}))
    larger = StepChanges("", {"memory": 4000})
    new = resubmit(larger)
    assert resubmit(larger).row.id == new.row.id
    with pytest.raises(Conflict, match="the key k belongs to another request"):
        resubmit(StepChanges("", {"memory": 5000}))
    [made] = chain.make_jobs(new.row.id)
    assert made
    assert description(chain, new.row).memory == 4000
    clone = bench.do(
        lambda tx: copies.clone(
            bench.pool.policy, tx, row.id, MANAGER, changes={}, steps=resplit, key="", now=bench.now
        )
    )
    [step, *_] = stored_steps(clone.specification, clone.id)
    assert dict(step.splitting.parameters)["files_per_job"] == 7
    assert description(chain, clone).memory != 4000


@pytest.mark.parametrize(
    ("fields", "smaller", "jobs"),
    [
        (FILES, {"files_per_job": 1}, 2),
        (GENERATED, {"events_per_job": 3}, 4),
        (LUMIS, {"lumis_per_job": 1}, 3),
    ],
    ids=["files", "generated", "lumis"],
)
def test_a_piece_that_is_too_long_is_made_again_in_smaller_jobs(
    chain: ChainDesk, fields: dict[str, Any], smaller: dict[str, Any], jobs: int
) -> None:
    """Also if some of the smaller jobs fail again: each event is in one more job."""
    row, [first, *_] = chain.failed_request(1, **fields)
    bench = chain.bench

    def resubmit(number: int, splitting: dict[str, Any]) -> Resubmitted:
        steps = StepChanges("", {}, splitting)
        return bench.do(
            lambda tx: copies.resubmit(
                bench.pool.policy, tx, number, MANAGER, steps=steps, key="", now=bench.now
            )
        )

    new = resubmit(row.id, smaller)
    made = chain.make_jobs(new.row.id)
    assert len(made) == jobs
    assert parts_of(chain, made) == parts_of(chain, [first])
    chain.end(new.row.id, made[1:2])
    last = chain.resubmit(row.id)
    assert (last.parts, last.left_out) == (1, ((new.row.id, 1),))
    again = chain.make_jobs(last.row.id)
    assert parts_of(chain, again) == parts_of(chain, made[1:2])


def parts_of(chain: ChainDesk, jobs: list[int]) -> list[tuple[int, ...]]:
    """The events, lumis or files of jobs, each as often as a job has it."""
    parts: list[tuple[int, ...]] = []
    for text in chain.masks_of(*jobs):
        mask = Mask.from_json(json.loads(text))
        if mask.generates:
            parts += [(event,) for event in range(mask.first_event, mask.first_event + mask.events)]
        for file in mask.ranges:
            parts += [
                (file.file, run, lumi) for run, first, last in file.lumis for lumi in range(first, last + 1)
            ] or [(file.file, file.first, file.events)]
    return sorted(parts)


def description(chain: ChainDesk, row: RequestRow) -> JobDescription:
    program = chain.bench.do(lambda tx: ProgramCache().get(tx.connection, row.id, 0))
    assert program is not None
    return program.description


def test_unsplit_elements_are_resubmitted_once(chain: ChainDesk) -> None:
    """The first resubmission makes a part of an element; the second one takes the rest."""
    row = chain.submit(**FILES)
    chain.queue.intake(row.id)
    chain.agent.sync()
    for number in sorted(chain.agent.held):
        element = chain.agent.held.pop(number)
        chain.agent.post(element, [], last=True, failure="no lumis")
    chain.end(row.id, [])
    first = chain.resubmit(row.id)
    assert first.parts == 3
    jobs = chain.make_jobs(first.row.id)
    chain.end(first.row.id, [], aborted=jobs[1:3])
    second = chain.resubmit(row.id)
    # Each part is done at least partly; two have a rest.
    assert (second.parts, second.left_out) == (2, ((first.row.id, 3),))
    assert chain.masks_of(*chain.make_jobs(second.row.id)) == chain.masks_of(*jobs[1:3])


@pytest.mark.parametrize("verb", [changes.force_complete, changes.abort])
def test_failed_pieces_of_a_request_that_is_ended_early_keep_their_errors(
    chain: ChainDesk, verb: Any
) -> None:
    """Jobs that pause after a failure, or were made again, are not merely cancelled."""
    row = chain.submit(**FILES)
    jobs = chain.make_jobs(row.id)
    run = chain.queue.run
    failure = "retries = 1, exit_code = 3, failure = 'payload', message = 'exit code 3'"
    run(f"UPDATE element_jobs SET state = 'cooloff', not_before = 9e9, {failure} WHERE id = ?", jobs[0])
    run(f"UPDATE element_jobs SET state = 'made', {failure} WHERE id = ?", jobs[1])
    run("UPDATE requests SET state = 'running-closed' WHERE id = ?", row.id)
    chain.do(verb, row)
    propagation = Propagation(chain.queue.work_queue, row.id)
    while not chain.bench.do(lambda tx: propagation.run(tx, chain.bench.now, 1)):
        pass
    # The agent has finished; the elements end with their jobs.
    chain.bench.do(lambda tx: roll_up.advance(tx, row.id, chain.bench.now))
    states = chain.queue.sql("SELECT id, state, message FROM element_jobs ORDER BY id")
    assert [tuple(state) for state in states[:2]] == [(job, "exhausted", "exit code 3") for job in jobs[:2]]
    assert {state for _, state, _ in states[2:]} == {"canceled"}
    ended_row = chain.queue.request_row(row.id)
    detail = chain.bench.do(lambda tx: progress.detail(tx.connection, ended_row, chain.bench.now))
    [error] = detail.errors
    assert (error.exit_code, error.count, error.exhausted, error.message) == (3, 2, 2, "exit code 3")
    ended = detail.request
    assert (ended.failed_jobs, ended.canceled_elements) == (2, ended.elements)
    outcome = RequestOutcome(row.id, ended.state, True, 0, 0, 0, ended.canceled_elements)
    assert outcome.code == JOB_FAILED
    again = chain.resubmit(row.id)
    assert again.parts == 2
    assert chain.masks_of(*chain.make_jobs(again.row.id)) == chain.masks_of(*jobs[:2])


def test_a_running_request_tells_how_it_ends(chain: ChainDesk) -> None:
    """Pauses before further tries take hours: the hint names the way out, and when the next try is."""
    row = chain.submit(**FILES)
    jobs = chain.make_jobs(row.id)
    with pytest.raises(Conflict) as refused:
        chain.resubmit(row.id)
    assert refused.value.hint == f"wait for its end: `pilotage request wait {row.id}`"
    chain.queue.run("UPDATE element_jobs SET state = 'cooloff', not_before = 86400 WHERE id = ?", jobs[0])
    chain.queue.run("UPDATE requests SET state = 'running-closed' WHERE id = ?", row.id)
    with pytest.raises(Conflict) as refused:
        chain.resubmit(row.id)
    assert f"`pilotage request force-complete {row.id}`" in refused.value.hint
    assert "next retry of a failed job is at 1970-01-02 00:00:00 UTC" in refused.value.hint


def done_events(chain: ChainDesk) -> Counter[tuple[int, int]]:
    """How often each event of each file is in a done job; file 0: generated."""
    events: Counter[tuple[int, int]] = Counter()
    for (text,) in chain.queue.sql("SELECT mask FROM element_jobs WHERE state = 'done'"):
        mask = Mask.from_json(json.loads(text))
        if mask.generates:
            events.update((0, number) for number in range(mask.first_event, mask.first_event + mask.events))
        for part in mask.ranges:
            lumis = [lumi for _, first, last in part.lumis for lumi in range(first, last + 1)]
            events.update((part.file, number) for number in lumis or [-1])
    return events


@pytest.mark.parametrize("fields", [FILES, GENERATED, LUMIS])
@pytest.mark.parametrize("seed", range(6))
def test_any_order_of_resubmissions_makes_each_part_once(
    chain: ChainDesk, fields: dict[str, Any], seed: int
) -> None:
    """Jobs fail or are cancelled at random; any request of the chain is resubmitted, at any time."""
    rng = Random(seed)
    row, jobs = chain.failed_request(0, **fields)
    expected = set(done_events(chain))
    chain.end(row.id, rng.sample(jobs, 5))
    known = {row.id: True}
    for turn in range(60):
        last = turn > 45
        number = rng.choice(sorted(known))
        if rng.random() < 0.6:
            with suppress(Conflict):
                known[chain.resubmit(number).row.id] = False
        elif not known[number]:
            jobs = chain.make_jobs(number)
            bad = [] if last else [job for job in jobs if rng.random() < 0.4]
            cut = rng.randrange(len(bad) + 1)
            chain.end(number, bad[:cut], aborted=bad[cut:] if bad[cut:] else None)
            known[number] = True
        assert set(done_events(chain).values()) <= {1}
    while True:
        under_way = [number for number, has_ended in known.items() if not has_ended]
        for number in under_way:
            chain.make_jobs(number)
            chain.end(number, [])
            known[number] = True
        for number in sorted(known):
            with suppress(Conflict):
                known[chain.resubmit(number).row.id] = False
        if all(known.values()):
            break
    events = done_events(chain)
    assert set(events) == expected
    assert set(events.values()) == {1}
    states = chain.bench.do(lambda tx: resubmissions.of_chain(tx.connection, row.id))
    assert not [other for other in states if other.state in KEEPING]


class MergeChain(ChainDesk):
    """A request whose pieces are merged and removed."""

    def steps(self, number: int) -> dict[str, Any]:
        return {step.name: step for step in requests.steps_of(self.bench.connection, number)}

    def merged_request(self) -> tuple[int, list[int]]:
        """A request with three blocks of pieces, and its jobs; the merges have jobs now."""
        row = self.submit(merge={"cleanup": True, "max_files": 4})
        self.set_states(row.id, self.make_jobs(row.id), [])
        pieces = self.steps(row.id)["process"].output_dataset
        for number in range(3):
            self.queue.block(pieces, f"p{number}", sites=("A",))
        self.queue.run("UPDATE datasets SET open = 0 WHERE id = ?", pieces)
        self.queue.run("UPDATE requests SET state = 'running-closed' WHERE id = ?", row.id)
        merges = [job for job in self.make_jobs(row.id) if self._step(job) == 1]
        assert len(merges) == 3
        return row.id, merges

    def _step(self, job: int) -> int:
        return int(self.queue.sql("SELECT step FROM element_jobs WHERE id = ?", job)[0][0])

    def set_states(self, number: int, done: list[int], failed: list[int]) -> None:
        """Jobs have ended, their elements too, and so have the steps without other elements."""
        run = self.queue.run
        for jobs, state, of_element in ((done, "done", "Done"), (failed, "exhausted", "Failed")):
            for job in jobs:
                run("UPDATE element_jobs SET state = ? WHERE id = ?", state, job)
                run(
                    "UPDATE elements SET state = ? WHERE id = (SELECT element_id FROM element_jobs WHERE id = ?)",
                    *(of_element, job),
                )
        run(
            "UPDATE request_steps SET ended = 1 WHERE request_id = ? AND type <> 'Cleanup' AND position IN"
            " (SELECT step FROM elements WHERE request_id = ?)",
            *(number, number),
        )

    def cleanups(self, number: int) -> int:
        """The elements that remove pieces, after one more cycle."""
        self.queue.run("UPDATE requests SET state = 'running-closed' WHERE id = ?", number)
        self.queue.intake(number)
        sql = "SELECT count(*) FROM elements WHERE request_id = ? AND step = ?"
        return int(self.queue.sql(sql, number, self.steps(number)["process.cleanup"].position)[0][0])


@pytest.mark.parametrize("fails_again", [False, True])
def test_the_resubmission_that_merges_the_rest_removes_the_pieces(
    queue: QueueBench, fails_again: bool
) -> None:
    chain = MergeChain(queue)
    first, merges = chain.merged_request()
    chain.set_states(first, merges[:2], merges[2:])
    assert chain.cleanups(first) == 0
    assert chain.steps(first)["process.cleanup"].closed
    queue.run("UPDATE requests SET state = 'completed' WHERE id = ?", first)
    again = chain.resubmit(first).row.id
    if fails_again:
        chain.set_states(again, [], chain.make_jobs(again))
        assert chain.cleanups(again) == 0
        assert chain.steps(again)["process.cleanup"].closed
        queue.run("UPDATE requests SET state = 'completed' WHERE id = ?", again)
        again = chain.resubmit(again).row.id
    jobs = chain.make_jobs(again)
    assert len(jobs) == 1
    assert chain.cleanups(again) == 0
    assert not chain.steps(again)["process.cleanup"].closed
    chain.set_states(again, jobs, [])
    assert chain.cleanups(again) == 3


def test_pieces_that_nobody_has_merged_stay(queue: QueueBench) -> None:
    """A merge that was cancelled is made again by no resubmission."""
    chain = MergeChain(queue)
    first, merges = chain.merged_request()
    chain.set_states(first, merges[:1], merges[1:2])
    queue.run("UPDATE element_jobs SET state = 'canceled' WHERE id = ?", merges[2])
    queue.run("UPDATE requests SET state = 'aborted-completed' WHERE id = ?", first)
    again = chain.resubmit(first).row.id
    jobs = chain.make_jobs(again)
    chain.set_states(again, jobs, [])
    assert (len(jobs), chain.cleanups(again)) == (1, 0)
    assert chain.steps(again)["process.cleanup"].closed
