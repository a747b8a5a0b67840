"""A CE that holds no jobs and keeps ended ones: they are removed when the ends of their pilots are stored."""

from __future__ import annotations

import asyncio
import http.client
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from pilotage.core.pilots.handover import SubmissionPhase
from pilotage.core.pilots.states import PilotState
from pilotage.server.duties.batch_clients import OwnBatchClients
from pilotage.server.duties.ce import CeDuty
from pilotage.services.director.demand import post_orders
from pilotage.store.tables import pilot_submissions, pilots
from pilotage.store.writer.transaction import Transaction
from tests.arc_double import DoubledArc, adapter
from tests.unit.server.duty_pool import Pool
from tests.unit.services.bench import NODE
from tests.unit.services.iterations import run_iteration
from tests.unit.services.test_batch_director import MAX_WAITING, SETTLE, Site
from tests.unit.services.workqueue.queue_bench import QueueBench


@dataclass
class ArcSite:
    """A pool whose CE is an ARC CE in memory."""

    site: Site
    ce: DoubledArc
    duty: CeDuty

    def cycle(self) -> None:
        """An iteration over all CEs, and the CE's own cycle that carries it out; then time passes."""
        self.site.bench.do(self._order)
        asyncio.run(self.duty.cycle())
        self.site.bench.now += SETTLE + 60

    def _order(self, tx: Transaction) -> None:
        pool = self.site.bench.pool
        pool.ces.nodes.setdefault("batch", NODE)
        post_orders(pool, tx, run_iteration(pool, tx.connection, pool.rng, self.site.bench.now))

    def phases(self) -> set[SubmissionPhase]:
        rows = pilot_submissions.live(self.site.bench.connection, "batch")
        return {row.phase for row in rows}


@pytest.fixture
def arc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ArcSite]:
    site = Site(tmp_path, max_failures=100)
    context = Pool(QueueBench(site.bench), monkeypatch).context
    ce = DoubledArc()
    duty = CeDuty(context, site.director, cast(Any, adapter(ce)), OwnBatchClients(context, 64))
    yield ArcSite(site, ce, duty)
    duty.close()
    site.close()


def test_a_submission_to_a_ce_that_holds_nothing_is_released(arc: ArcSite) -> None:
    arc.site.bench.submit(10)
    arc.cycle()
    assert len(arc.ce.jobs) == MAX_WAITING
    assert arc.phases() == {SubmissionPhase.RELEASING}
    arc.cycle()
    assert arc.phases() == {SubmissionPhase.RELEASED}
    assert len(arc.ce.jobs) == MAX_WAITING, "pilots that are accepted count as waiting"


def test_ended_jobs_are_removed_when_their_ends_are_stored(arc: ArcSite) -> None:
    arc.site.bench.submit(2)
    arc.cycle()
    first = list(arc.ce.jobs)
    ordered = [pilot.id for pilot in pilots.live(arc.site.bench.connection, "batch")]
    assert len(first) == len(ordered) > 0
    foreign = arc.ce.add("pilotage-of-another-server/0", "FINISHED")
    for id_ in first:
        arc.ce.jobs[id_].state, arc.ce.jobs[id_].failure = "FAILED", "no space left"
    arc.cycle()
    arc.cycle()
    assert not set(first) & set(arc.ce.jobs)
    assert foreign in arc.ce.jobs
    ended = pilots.by_ids(arc.site.bench.connection, ordered)
    assert {pilot.state for pilot in ended} == {PilotState.ABORTED}
    assert all("no space left" in pilot.reason for pilot in ended)


def test_a_submission_whose_answer_was_lost_is_adopted_and_not_made_again(arc: ArcSite) -> None:
    arc.ce.after["action=new"] = http.client.RemoteDisconnected("closed")
    arc.site.bench.submit(10)
    arc.cycle()
    assert arc.phases() == {SubmissionPhase.IN_DOUBT}
    made = len(arc.ce.jobs)
    arc.ce.after.clear()
    arc.cycle()
    arc.cycle()
    assert SubmissionPhase.RELEASED in arc.phases()
    assert len(arc.ce.jobs) == max(made, MAX_WAITING), "they count as waiting"


def test_of_two_jobs_of_one_pilot_one_is_kept(arc: ArcSite) -> None:
    arc.site.bench.submit(10)
    arc.cycle()
    names = {id_: job.name for id_, job in arc.ce.jobs.items()}
    double = arc.ce.add(names["id2"], "ACCEPTING")
    arc.cycle()
    assert arc.ce.jobs[double].state == "FAILED"
    assert {arc.ce.jobs[id_].state for id_ in names} == {"ACCEPTING"}
