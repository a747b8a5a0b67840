"""Submissions that are interrupted, whom a pilot serves, what a payload is told, and new policies."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pilotage.core import policy as policies
from pilotage.core.errors import Conflict, InvalidInput, Overloaded
from pilotage.core.ids import QueueId
from pilotage.core.jobs.description import InputFile
from pilotage.core.queues.fit import Condition
from pilotage.services.director.ce_director import CeDirector
from pilotage.services.director.local_orders import LocalOrders
from pilotage.services.director.ordering import order_pilots
from pilotage.services.policy.apply import apply_policy
from pilotage.services.submission import job_creation as making_module
from pilotage.services.submission.accept import accept
from pilotage.services.submission.job_creation import JobCreator
from pilotage.store.tables import submissions
from pilotage.wire.pilot import Input
from tests.unit.services.bench import HEARTBEAT, HOME_OWNER, NODE, POLICY, Bench

LIMIT = '[[limits]]\nattribute = "owner"\nvalue = "bob"\nsite = "here"\nrunning = 1\n'


def test_jobs_and_their_queue_appear_once_made(bench: Bench) -> None:
    submission = bench.accept(bench.prepared(1200))
    assert bench.pool.queues.index.entries == {}
    making = JobCreator(submission.id)
    steps = [bench.do(lambda tx: making.step(bench.pool, tx)) for _ in range(5)]
    assert steps == [False, False, False, False, True]
    assert bench.pool.queues.index.entries[submission.queue].waiting == 1200
    assert bench.do(lambda tx: making.step(bench.pool, tx))
    assert bench.connection.execute("SELECT count(*), min(id), max(id) FROM jobs").fetchone() == (
        1200,
        1,
        1200,
    )


@pytest.mark.parametrize("chunks", [0, 1, 2, 3])
def test_a_submission_interrupted_after_any_chunk_is_completed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, chunks: int
) -> None:
    monkeypatch.setattr(making_module, "SIZE", 10)
    first = bench.accept(bench.prepared(30))
    making = JobCreator(first.id)
    for _ in range(chunks):
        bench.do(lambda tx: making.step(bench.pool, tx))
    bench.crash(lambda tx: JobCreator(first.id).step(bench.pool, tx))
    left = submissions.with_unmade_jobs(bench.connection)
    assert left == ([] if chunks == 3 else [first.id])
    # Others come before the server has made what was left.
    later = bench.submit(5)
    for one in left:
        again = JobCreator(one)
        while not bench.do(lambda tx, again=again: again.step(bench.pool, tx)):
            pass
    bench.check()
    parameters = bench.connection.execute(
        "SELECT parameters FROM jobs WHERE submission_id = ? ORDER BY id", (first.id,)
    ).fetchall()
    assert [json.loads(row[0]) for row in parameters] == [[n] for n in range(30)]
    assert later == list(range(31, 36))
    pilot = bench.pilot(processors=64)
    assert len(pilot.take(64, processors=64)) == 35


def test_jobs_made_below_ids_that_were_read_are_matched(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making_module, "SIZE", 10)
    slow = bench.accept(bench.prepared(20))
    making = JobCreator(slow.id)
    bench.do(lambda tx: making.step(bench.pool, tx))
    bench.submit(3)
    pilot = bench.pilot(processors=64)
    first = pilot.take(5, processors=64)
    assert bench.do(lambda tx: making.step(bench.pool, tx))
    rest = pilot.take(64, processors=64)
    assert len(first) + len(rest) == 23


def test_a_chunk_whose_group_failed_is_made_once(bench: Bench) -> None:
    submission = bench.accept(bench.prepared(7))
    making = JobCreator(submission.id)

    def fails(_: Any) -> None:
        raise RuntimeError("this one only")

    done, error = bench.together(lambda tx: making.step(bench.pool, tx), fails)
    assert done is True
    assert isinstance(error, RuntimeError)
    assert bench.pool.queues.index.entries[submission.queue].waiting == 7


def test_a_submission_in_the_making_twice_is_made_once(bench: Bench) -> None:
    submission = bench.accept(bench.prepared(1300))
    first, again = JobCreator(submission.id), JobCreator(submission.id)
    ended = [False, False]
    while not all(ended):
        for place, making in enumerate((first, again)):
            ended[place] = bench.do(lambda tx, making=making: making.step(bench.pool, tx))
        bench.check()
    assert bench.pool.queues.index.entries[submission.queue].waiting == 1300


def test_a_take_whose_group_failed_gives_the_same_jobs_back(bench: Bench) -> None:
    bench.submit(3)
    pilot = bench.pilot()

    def fails(_: Any) -> None:
        raise RuntimeError("this one only")

    for expected in (2, 1, 0):
        answer, _ = bench.together(pilot.asking(pilot.request(take=pilot.asked())), fails)
        pilot.number += 1
        assert len(answer.offers) == 1
        bench.check()
        assert bench.pool.queues.index.entries[QueueId(1)].waiting == expected


def test_a_refused_request_takes_back_what_it_had_done_in_memory(bench: Bench) -> None:
    [job] = bench.submit()
    pilot = bench.pilot()

    def takes_and_fails(tx: Any) -> None:
        pilot.asking(pilot.request(take=pilot.asked()))(tx)
        accept(bench.pool, tx, bench.prepared(9), bench.now)
        raise RuntimeError("after all its work")

    with pytest.raises(RuntimeError):
        bench.do(takes_and_fails)
    bench.check()
    assert bench.pool.queues.index.entries[QueueId(1)].waiting == 1
    assert pilot.row.only_owner is None
    assert pilot.take()[0].job == job
    assert bench.submit() == [2]


def test_an_idempotency_key_gives_the_first_submission_again(bench: Bench) -> None:
    first = bench.accept(bench.prepared(3, key="k"))
    bench.make(first)
    again = bench.accept(bench.prepared(3, key="k"))
    assert again == first
    bench.make(again)
    assert bench.connection.execute("SELECT count(*) FROM jobs").fetchone() == (3,)
    with pytest.raises(Conflict, match="key k"):
        bench.accept(bench.prepared(4, key="k"))
    with pytest.raises(Conflict):
        bench.accept(bench.prepared(3, key="k", arguments=("other",)))
    # Keys are each owner's own, and no key is none.
    assert bench.accept(bench.prepared(3, key="k", owner="bob")).id != first.id
    assert bench.accept(bench.prepared()).id != bench.accept(bench.prepared()).id


def test_alike_jobs_share_one_queue_row(bench: Bench) -> None:
    bench.submit(sites=("here",), tags=("a", "b"))
    bench.submit(sites=("here",), tags=("b", "a", "b"))
    bench.submit(sites=("here",), tags=("b", "a"), cpu_time=499)
    assert bench.connection.execute("SELECT count(*) FROM queues").fetchone() == (1,)
    bench.submit(sites=("here",), tags=("b", "a"), cpu_time=501)
    bench.submit(owner="bob", sites=("here",), tags=("b", "a"))
    assert bench.connection.execute("SELECT count(*) FROM queues").fetchone() == (3,)


def test_too_many_waiting_jobs_of_one_owner_are_refused(tmp_path: Path) -> None:
    bench = Bench(tmp_path, POLICY.replace("[jobs]", "[jobs]\nmax_waiting_per_owner = 5"))
    bench.submit(4)
    with pytest.raises(Overloaded):
        bench.submit(2)
    assert len(bench.submit(5, owner="bob")) == 5
    bench.submit(1)
    bench.close()


def test_a_payload_is_told_its_parameters(bench: Bench) -> None:
    rows = [["x y", value, "in"] for value in range(11)]
    jobs = bench.submit(
        names=("", "energy", "file"),
        rows=rows,
        arguments=("%s", "e=%(energy)s", "%n", "job %j", "100%"),
        environment=(("ID", "%j"), ("E", "%(energy)s")),
        std_output="out.%n.%j",
        output_sandbox=("%(energy)s.root",),
    )
    [offer] = [o for o in bench.pilot(processors=64).take(64, processors=64) if o.job == jobs[3]]
    payload = offer.payload
    assert payload.arguments == ["x y", "e=3", "03", f"job {jobs[3]}", "100%"]
    assert payload.environment == {"ID": str(jobs[3]), "E": "3"}
    assert payload.std_output == f"out.03.{jobs[3]}"
    assert payload.outputs == ["3.root"]


def test_a_job_without_parameters_knows_its_id(bench: Bench) -> None:
    [job] = bench.submit(std_error="err.%j")
    assert bench.pilot().take()[0].payload.std_error == f"err.{job}"


def test_a_payload_gets_only_the_inputs_that_its_job_names(bench: Bench) -> None:
    uploaded = [
        Input("a.dat", "copy", "digest a", 1),
        Input("b.dat", "copy", "digest b", 1),
        Input("folder/one", "copy", "digest 1", 1),
        Input("folder/two", "copy", "digest 2", 1, True),
        Input("folderless", "copy", "digest 3", 1),
    ]
    jobs = bench.submit(
        names=("",),
        rows=[["a"], ["b"]],
        inputs=uploaded,
        input_sandbox=(
            InputFile("%s.dat", "copy", "%s.dat"),
            InputFile("folder", "copy", "folder"),
            InputFile("shared", "shared", "/data/%s"),
        ),
    )
    by_job = {o.job: o.payload for o in bench.pilot(processors=2).take(2, processors=2)}
    names = [item.name for item in by_job[jobs[0]].inputs]
    assert names == ["a.dat", "folder/one", "folder/two", "shared"]
    second = by_job[jobs[1]].inputs
    assert [(item.name, item.mode, item.source) for item in (second[0], second[-1])] == [
        ("b.dat", "copy", "digest b"),
        ("shared", "shared", "/data/b"),
    ]


def test_a_pilot_is_bound_to_its_first_owner(bench: Bench) -> None:
    for owner in ("alice", "bob"):
        bench.submit(4, owner=owner)
    pilot = bench.pilot(processors=8)
    offers = pilot.take(8, processors=8)
    [owner] = {offer.payload.owner for offer in offers}
    assert len(offers) == 4
    assert pilot.row.only_owner == owner
    assert pilot.take(8, processors=8) == []
    bench.crash()
    assert pilot.take(8, processors=8) == []
    assert bench.pool.queues.index.explain is not None
    other = bench.pilot(processors=8).take(8, processors=8)
    assert {offer.payload.owner for offer in other} == {"alice", "bob"} - {owner}


def test_ahead_too_a_pilot_serves_one_owner_only(bench: Bench) -> None:
    for owner in ("alice", "bob"):
        bench.submit(3, owner=owner)
    assert len({o.payload.owner for o in bench.pilot().take(6, ahead=5)}) == 1


def test_jobs_asked_for_ahead_need_not_fit_beside_the_others(bench: Bench) -> None:
    bench.submit(14, processors=2)
    pilot = bench.pilot(processors=5)
    assert len(pilot.take(10, processors=4)) == 2
    # Two beside each other, and four ahead, of five cores as of four.
    assert len(pilot.take(8, ahead=4, processors=5)) == 6
    assert len(pilot.take(5, ahead=4, processors=4)) == 5
    # Ahead or not, each must fit the node as it is.
    assert pilot.take(4, ahead=4, processors=1) == []


def test_a_pilot_offers_no_more_than_its_batch_job_was_given(bench: Bench) -> None:
    bench.submit(processors=2)
    bench.submit(memory=3000)
    pilot = bench.pilot(processors=1, memory=2000)
    assert pilot.send(take=pilot.asked(processors=64, memory=64000)).no_match == {
        "processors": 1,
        "memory": 1,
    }


def test_the_local_ce_of_the_home_owner_serves_nobody_else(bench: Bench) -> None:
    assert bench.pool.policy.ces["home"].owners == "home"
    director = CeDirector("home", LocalOrders(replace(NODE, processors=2)), local=True)
    bench.submit(owner="bob")
    assert bench.do(lambda tx: order_pilots(director, bench.pool, tx, bench.now)) == []
    bench.submit(owner=HOME_OWNER)
    [ordered] = bench.do(lambda tx: order_pilots(director, bench.pool, tx, bench.now))
    assert bench.pilot_row(ordered.members[0]).only_owner == HOME_OWNER
    pilot = bench.pilot("home", only_owner=HOME_OWNER)
    assert [offer.payload.owner for offer in pilot.take()] == [HOME_OWNER]
    assert pilot.send(take=pilot.asked()).no_match == {"owner": 1}


def test_a_clock_that_was_set_back_does_not_keep_pilots_from_being_started(bench: Bench) -> None:
    director = CeDirector("home", LocalOrders(replace(NODE, processors=2)), local=True)
    assert bench.do(lambda tx: order_pilots(director, bench.pool, tx, bench.now)) == []
    bench.submit(owner=HOME_OWNER)
    director.memory.not_before = bench.now + 100
    assert bench.do(lambda tx: order_pilots(director, bench.pool, tx, bench.now)) == []
    bench.now -= 3600
    assert len(bench.do(lambda tx: order_pilots(director, bench.pool, tx, bench.now))) == 1


def test_no_match_counts_the_queues_at_their_first_condition(bench: Bench) -> None:
    bench.submit(sites=("nowhere",))
    bench.submit(banned_sites=("here",), processors=9)
    bench.submit(grid_ces=("home",))
    bench.submit(5, platforms=("el7",))
    bench.submit(memory=64000)
    bench.submit(requirements="target.Processors > 5")
    bench.submit(pilot_types=("private",))
    bench.submit(setup="other")
    pilot = bench.pilot()
    assert Counter(pilot.send(take=pilot.asked()).no_match) == {
        str(condition): 1
        for condition in (
            *(Condition.SITE, Condition.BANNED_SITE, Condition.GRID_CE, Condition.PLATFORM, Condition.MEMORY),
            *(Condition.REQUIREMENTS, Condition.PILOT_TYPE, Condition.SETUP),
        )
    }


def test_requirements_see_the_node(bench: Bench) -> None:
    [job] = bench.submit(requirements='target.Platform == "el9" && target.Glibc >= 2.3')
    pilot = bench.pilot()
    assert pilot.take() == []
    assert pilot.take(attributes={"Glibc": "2.1"}) == []
    assert [offer.job for offer in pilot.take(attributes={"Glibc": "2.34"})] == [job]


def test_a_running_limit_holds_through_the_whole_life_of_jobs(tmp_path: Path) -> None:
    bench = Bench(tmp_path, POLICY + LIMIT)
    bench.submit(3, owner="bob")
    pilot = bench.pilot(processors=4)
    [offer] = pilot.take(3, processors=4)
    assert pilot.send(take=pilot.asked(processors=4)).no_match == {"limit": 1}
    pilot.confirm(offer)
    bench.crash()
    assert pilot.take(3, processors=4) == []
    pilot.finish(offer)
    [second] = pilot.take(3, processors=4)
    bench.act("kill", second.job)
    [third] = pilot.take(3, processors=4)
    bench.check()
    bench.later(4000)
    bench.check()
    assert pilot.confirm(third) == "superseded"
    bench.close()


def new_policy(bench: Bench, text: str) -> int:
    """As the route does it: parsed first."""
    policy = policies.parse(text)
    return bench.do(
        lambda tx: apply_policy(bench.pool, tx, policy, text, by="alice", reason="why", now=bench.now)
    )


def test_a_new_policy_is_matched_by_at_once(bench: Bench) -> None:
    bench.submit(2, cpu_time=700)
    pilot = bench.pilot()
    old = bench.pool.queues.index
    assert pilot.take(cpu_left=4000) == []
    version = new_policy(bench, POLICY.replace("[jobs]", "[matching]\ncpu_buckets = [1000, 9000]\n[jobs]"))
    assert bench.pool.server.policy_version == version == 2
    assert bench.pool.queues.index is not old
    bench.check()
    # What waits keeps its bucket (5000), between two of the new ones; what is new gets a new one.
    assert pilot.take(cpu_left=4999) == []
    assert len(pilot.take(cpu_left=5000)) == 1
    bench.submit(1, cpu_time=700)
    assert len(pilot.take(cpu_left=1000)) == 1
    assert bench.kinds("policy")[-1] == "version 1 to version 2: why"
    bench.crash()
    assert bench.pool.server.policy_version == 2


def test_a_bad_policy_leaves_the_old_one_in_force(bench: Bench) -> None:
    before = bench.pool.policy
    with pytest.raises(InvalidInput):
        new_policy(bench, POLICY + "[nonsense]\n")
    assert bench.pool.policy is before


def test_a_policy_that_could_not_be_stored_leaves_the_old_one_in_force(bench: Bench) -> None:
    bench.submit(2)
    before = (bench.pool.policy, bench.pool.server.policy_version, bench.pool.queues.index)
    text = POLICY.replace(f"heartbeat = {HEARTBEAT}", "heartbeat = 1", 1) + LIMIT
    policy = policies.parse(text)

    def fails(tx: Any) -> None:
        apply_policy(bench.pool, tx, policy, text, by="alice", reason="", now=bench.now)
        raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError):
        bench.do(fails)
    assert (bench.pool.policy, bench.pool.server.policy_version, bench.pool.queues.index) == before
    assert bench.pool.offers.limits.limiter.limits == ()
    assert bench.pool.queues.index.entries[QueueId(1)].waiting == 2


def test_a_site_that_is_banned_gets_nothing(bench: Bench) -> None:
    bench.submit()
    pilot = bench.pilot()
    new_policy(bench, POLICY.replace("[sites.here]", "[sites.here]\nbanned = true"))
    assert pilot.send(take=pilot.asked()).no_match == {"site-closed": 1}
    new_policy(bench, POLICY)
    assert len(pilot.take()) == 1
