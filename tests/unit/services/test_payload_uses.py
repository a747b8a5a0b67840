"""The use of running payloads at the server: whose, of which attempt, how old, and until when."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from pilotage.cli.job_facts import job_facts
from pilotage.core.ids import PilotId
from pilotage.core.jobs.use_wording import NOT_TOLD, full_use
from pilotage.services.pilots.payload_uses import use_of
from pilotage.services.why import answer as why_answer
from pilotage.store.tables import listing
from pilotage.store.tables.selections import JobSelection, Viewer
from pilotage.wire.jobs import JobDetail, JobSummary
from pilotage.wire.payload_use import JobUse, PayloadUse
from pilotage.wire.pilot import OfferedJob
from pilotage.wire.why import Why
from tests.unit.services.bench import Bench, Paper


def told(offer: OfferedJob, **more: Any) -> PayloadUse:
    values = {
        "ran": 600.0,
        "cpu": 180.0,
        "busy": 0.5,
        "memory": 210,
        "peak": 250,
        "silent": 540.0,
        "age": 5.0,
    }
    return PayloadUse(offer.job, offer.epoch, **{**values, **more})


def summary(bench: Bench, job: int) -> JobSummary:
    readers = bench.readers()
    [row] = listing.jobs(readers.connection(), JobSelection(ids=[job]), Viewer("", everything=True), 0, 1)
    readers.close()
    return JobSummary(*row, use_of(bench.pool, row.id, row.epoch, row.state, row.pilot))


def why(bench: Bench, job: int) -> Why:
    return why_answer.why_job(None, bench.connection, summary(bench, job), bench.now)


def running(bench: Bench) -> tuple[int, Paper, OfferedJob]:
    [job] = bench.submit(memory=500)
    pilot = bench.pilot()
    return job, pilot, pilot.hold()


def test_what_a_pilot_tells_is_known_by_the_clock_of_the_server(bench: Bench) -> None:
    job, pilot, offer = running(bench)
    assert summary(bench, job).use is None
    pilot.send(uses=[told(offer)])
    at = bench.now - 5.0
    known = JobUse(at, ran=600.0, cpu=180.0, busy=0.5, memory=210, peak=250, output_at=at - 540.0)
    assert summary(bench, job).use == known
    bench.now += 40.0
    pilot.send()
    assert summary(bench, job).use == known, "a heartbeat without figures changes none"
    pilot.send(uses=[told(offer, silent=None)])
    later = summary(bench, job).use
    assert later is not None
    assert (later.at, later.output_at) == (bench.now - 5.0, None)


def test_the_words_of_a_running_job_have_all_figures(bench: Bench) -> None:
    job, pilot, offer = running(bench)
    assert NOT_TOLD in why(bench, job).summary
    pilot.send(uses=[told(offer)])
    answer, shown = why(bench, job), summary(bench, job)
    assert shown.use is not None
    words = full_use(shown.use, 500, bench.now)
    assert answer.use == shown.use
    assert answer.summary.endswith(f"; it computes: {words}")
    assert (answer.advice, answer.state) == ("", "Running")
    facts = dict(job_facts(JobDetail(shown, {"memory": 500}, [], []), bench.now, exact=True))
    assert facts["use"] == words
    pilot.send(uses=[told(offer, busy=0.0)])
    assert "it may be stuck" in why(bench, job).summary
    assert f"`pilotage logs {job}`" in why(bench, job).advice


@pytest.mark.parametrize("end", ["finish", "release", "kill"])
def test_a_job_that_does_not_run_has_none(bench: Bench, end: str) -> None:
    job, pilot, offer = running(bench)
    pilot.send(uses=[told(offer)])
    if end == "kill":
        bench.act("kill", job)
    else:
        getattr(pilot, end)(offer)
    assert summary(bench, job).use is None
    assert why(bench, job).use is None


def test_the_use_of_an_earlier_attempt_is_not_that_of_the_next(bench: Bench) -> None:
    job, pilot, offer = running(bench)
    pilot.send(uses=[told(offer)])
    pilot.release(offer)
    pilot.hold()
    assert bench.state(job) == "Running"
    assert summary(bench, job).use is None


def test_a_pilot_tells_nothing_of_the_jobs_of_others(bench: Bench) -> None:
    job, _, offer = running(bench)
    bench.pilot().send(uses=[told(offer)])
    assert summary(bench, job).use is None


def test_memory_keeps_nothing_of_pilots_that_have_ended(bench: Bench) -> None:
    _, pilot, offer = running(bench)
    pilot.send(uses=[told(offer)])
    assert PilotId(pilot.id) in bench.pool.pilots.uses
    pilot.finish(offer)
    pilot.send(uses=[told(offer)], leaving="idle")
    assert bench.pool.pilots.uses == {}
    pilot.send(uses=[told(offer)])
    assert bench.pool.pilots.uses == {}, "it has ended"


def test_figures_write_no_row(bench: Bench) -> None:
    _, pilot, offer = running(bench)
    pilot.send()
    before = bench.writes
    pilot.send()
    plain = bench.writes - before
    pilot.send(uses=[told(offer)])
    assert bench.writes - before == 2 * plain


def test_the_server_tells_each_fact_that_a_pilot_tells() -> None:
    pilots, people = ({field.name for field in fields(kind)} for kind in (PayloadUse, JobUse))
    assert pilots - people == {"job", "epoch", "silent", "age"}, "as output_at and at"
