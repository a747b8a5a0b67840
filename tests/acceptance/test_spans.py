"""A submission as one trace, from the command to the end of its job, at a collector that speaks OTLP."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import httpx
import pytest

from pilotage.core.trace_context import TraceContext, read_traceparent
from pilotage.wire.requests import RequestClone
from tests.deadlines import PATIENCE
from tests.instance import Instance, until
from tests.span_receiver import ReceivedSpan, SpanReceiver, span_receiver

STAGES = ("wait", "match", "start", "download", "payload", "upload", "finish")
SECRET = "a-secret-of-the-job"


@pytest.fixture(scope="module")
def receiver() -> Iterator[SpanReceiver]:
    with span_receiver() as made:
        yield made


@pytest.fixture(scope="module")
def instance(receiver: SpanReceiver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    made = Instance(tmp_path_factory.mktemp("server"), idle=600, lease=600, owners="any")
    try:
        made.start("--otlp", receiver.url)
        made.apply()
        yield made
    finally:
        made.close()


def metric(instance: Instance, name: str) -> int:
    text = httpx.get(f"http://127.0.0.1:{instance.port}/metrics", timeout=PATIENCE).text
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith(f"{name} "))


def attempts_of(receiver: SpanReceiver, trace: str, count: int = 1) -> list[ReceivedSpan]:
    def found() -> list[ReceivedSpan]:
        spans = [span for span in receiver.named("attempt") if span.trace == trace]
        children = [span for span in receiver.named("finish") if span.trace == trace]
        return spans if len(spans) == len(children) == count else []

    return until(found, what="the spans of the attempts")


def of_job(receiver: SpanReceiver, name: str, job: int, count: int = 1) -> list[ReceivedSpan]:
    """The spans of this name that tell of a job, the earliest first."""

    def found() -> list[ReceivedSpan]:
        spans = [span for span in receiver.named(name) if span.attributes.get("pilotage.job") == job]
        return sorted(spans, key=lambda span: span.begin) if len(spans) >= count else []

    spans = until(found, what=f"the span {name!r} of job {job}")
    assert len(spans) == count
    return spans


def of_request(receiver: SpanReceiver, name: str, request: int, least: int = 1) -> list[ReceivedSpan]:
    """The spans of this name that tell of a request."""

    def found() -> list[ReceivedSpan]:
        spans = [span for span in receiver.named(name) if span.attributes.get("pilotage.request") == request]
        return spans if len(spans) >= least else []

    return until(found, what=f"the span {name!r} of request {request}")


def test_a_submission_is_one_trace(
    instance: Instance, receiver: SpanReceiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PILOTAGE_OTLP", receiver.url)
    (tmp_path / "in.txt").write_text("an input")
    command = ["submit", "--parsable", "--input", str(tmp_path / "in.txt"), "--output", "out.txt", "--env"]
    script = f'cp in.txt out.txt; echo "$TRACEPARENT"; : {SECRET}'
    done = instance.cli(*command, f"SECRET={SECRET}", "--", "/bin/sh", "-c", script)
    assert done.returncode == 0, done.stderr
    job = int(done.stdout)
    instance.cli("wait", str(job))
    [command_span] = until(lambda: receiver.named("pilotage submit"), what="the span of the command")
    assert (command_span.parent, command_span.service) == ("", "pilotage client")
    trace = command_span.trace
    [attempt] = attempts_of(receiver, trace)
    [request] = [span for span in receiver.named("POST /v1/submissions") if span.trace == trace]
    assert (request.parent, request.service) == (command_span.id, "pilotage")
    assert request.attributes["http.response.status_code"] == 200
    within = [span for span in receiver.spans if span.parent == request.id]
    assert "transaction" in {span.name for span in within}
    [whole] = of_job(receiver, "job", job)
    assert (whole.parent, whole.trace, attempt.parent) == (request.id, trace, whole.id)
    assert whole.begin <= attempt.begin
    assert (whole.attributes["pilotage.state"], whole.failed) == ("Done", False)
    assert attempt.attributes["pilotage.job"] == job
    assert attempt.attributes["pilotage.state"] == "Done"
    assert not attempt.failed
    found = {span.name: span for span in receiver.spans if span.parent == attempt.id}
    assert found.keys() == set(STAGES)
    stages = [found[name] for name in STAGES]
    assert (stages[0].begin, stages[-1].end) == (attempt.begin, attempt.end)
    assert all(one.end == following.begin for one, following in pairwise(stages))
    assert command_span.begin <= request.begin
    # The job itself goes on with the trace.
    told = read_traceparent(instance.client().log(job).data.decode())
    assert told == TraceContext(trace, request.id)
    token = (instance.home / "token").read_text().strip()
    for secret in (SECRET, token, "/bin/sh"):
        assert secret.encode() not in receiver.raw


def test_a_program_continues_its_own_trace_and_a_repeated_submission_is_the_same(
    instance: Instance, receiver: SpanReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = TraceContext("ab" * 16, "cd" * 8)
    client = instance.client()
    monkeypatch.setenv("TRACEPARENT", own.header)
    first = client.submit({"executable": "/bin/false"}, key="again")
    monkeypatch.delenv("TRACEPARENT")
    assert client.submit({"executable": "/bin/false"}, key="again").first == first.first
    [attempt] = attempts_of(receiver, own.trace)
    assert attempt.failed
    assert (attempt.attributes["pilotage.exit_code"], attempt.error) == (1, "payload")
    [whole] = of_job(receiver, "job", first.first)
    assert (whole.error, attempt.parent) == ("Failed", whole.id)
    [request] = [span for span in receiver.named("POST /v1/submissions") if span.trace == own.trace]
    assert request.parent == own.span
    # A trace that its maker does not keep is passed on, and not recorded.
    unsampled = TraceContext("ef" * 16, "cd" * 8, sampled=False)
    monkeypatch.setenv("TRACEPARENT", unsampled.header)
    quiet = client.submit({"executable": "/bin/sh", "arguments": ["-c", "echo $TRACEPARENT"]})
    client.wait(quiet)
    told = read_traceparent(client.log(quiet.first).data.decode())
    assert told is not None
    assert (told.trace, told.sampled) == (unsampled.trace, False)
    assert not [span for span in receiver.spans if span.trace == unsampled.trace]


def test_a_request_is_one_trace_over_elements_jobs_and_attempts(
    instance: Instance, receiver: SpanReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = TraceContext("1a" * 16, "2b" * 8)
    client = instance.client()
    monkeypatch.setenv("TRACEPARENT", own.header)
    wanted = {
        "name": "traced",
        "team": "home",
        "events": 30,
        "program": {"executable": "/bin/true"},
        "splitting": {"algorithm": "EventBased", "events_per_job": 10},
    }
    number = client.submit_request(wanted, key="traced").request.id
    other = TraceContext("3c" * 16, "4d" * 8)
    monkeypatch.setenv("TRACEPARENT", other.header)
    assert client.submit_request(wanted, key="traced").request.id == number, "its trace is no difference"
    monkeypatch.delenv("TRACEPARENT")
    until(lambda: client.request(number).request.state == "completed", what="the end of the request")

    [whole] = of_request(receiver, "request", number)
    [call] = [span for span in receiver.named("POST /v1/requests") if span.trace == own.trace]
    assert (call.parent, whole.parent) == (own.span, call.id)
    elements = of_request(receiver, "element", number)
    assert {(element.parent, element.attributes["pilotage.state"]) for element in elements} == {
        (whole.id, "Done")
    }
    jobs = of_request(receiver, "job", number, 3)
    assert {job.parent for job in jobs} <= {element.id for element in elements}
    attempts = of_request(receiver, "attempt", number, 3)
    assert {attempt.parent for attempt in attempts} == {job.id for job in jobs}
    spans = [whole, *elements, *jobs, *attempts]
    assert {(span.trace, span.failed) for span in spans} == {(own.trace, False)}
    by_id = {span.id: span for span in spans}
    inner = [span for span in spans if span is not whole]
    assert all(by_id[span.parent].begin <= span.begin for span in inner)
    # A clone has a trace of its own.
    copy = client.clone_request(number, RequestClone(name="traced-again")).id
    until(lambda: client.request(copy).request.state == "completed", what="the end of the clone")
    [again] = of_request(receiver, "request", copy)
    assert again.trace != own.trace


def test_a_request_that_is_aborted_says_why(instance: Instance, receiver: SpanReceiver) -> None:
    client = instance.client()
    wanted = {
        "name": "unwanted",
        "team": "nobody",
        "events": 20,
        "program": {"executable": "/bin/true"},
        "splitting": {"algorithm": "EventBased", "events_per_job": 10},
    }
    number = client.submit_request(wanted).request.id
    until(lambda: list(client.request_elements(number)), what="its elements")
    client.abort_request(number, reason="no need")

    [whole] = of_request(receiver, "request", number)
    assert (whole.error, whole.attributes["pilotage.reason"]) == ("aborted-completed", "no need")
    elements = of_request(receiver, "element", number)
    assert {(element.parent, element.error) for element in elements} == {(whole.id, "Canceled")}


def test_killed_jobs_end_their_spans_with_the_reason(instance: Instance, receiver: SpanReceiver) -> None:
    client = instance.client()
    job = client.submit({"executable": "/bin/sleep", "arguments": ["100000"]}).first
    instance.reaches(job, "Running")
    client.kill(job, reason="a wrong input")
    [attempt] = of_job(receiver, "attempt", job)
    [whole] = of_job(receiver, "job", job)
    assert (attempt.error, attempt.attributes["pilotage.reason"]) == ("killed", "a wrong input")
    assert (whole.error, whole.attributes["pilotage.reason"]) == ("Killed", "a wrong input")
    assert (attempt.parent, attempt.trace, attempt.end) == (whole.id, whole.trace, whole.end)
    assert attempt.begin < attempt.end
    stages = [span for span in receiver.spans if span.parent == attempt.id]
    assert {stage.name for stage in stages} == {"wait", "match"}
    # It is tried again, which is a further span of the same trace.
    client.reschedule(job)
    instance.reaches(job, "Running")
    client.kill(job, reason="again")
    first, second = of_job(receiver, "job", job, 2)
    assert (first.id, second.trace, second.parent) == (whole.id, whole.trace, whole.parent)
    assert second.begin >= first.end
    assert of_job(receiver, "attempt", job, 2)[1].parent == second.id
    # A job that no pilot has had ends its span, too.
    waiting = client.submit({"executable": "/bin/true", "memory": 10**9}).first
    client.kill(waiting, reason="too large")
    [whole] = of_job(receiver, "job", waiting)
    assert (whole.error, whole.attributes["pilotage.reason"]) == ("Killed", "too large")
    assert not [span for span in receiver.named("attempt") if span.attributes["pilotage.job"] == waiting]


def test_a_lost_attempt_ends_its_span(instance: Instance, receiver: SpanReceiver, tmp_path: Path) -> None:
    script = f"test -e {tmp_path}/second && exit 0; touch {tmp_path}/second; sleep 100000"
    client = instance.client()
    job = client.submit({"executable": "/bin/sh", "arguments": ["-c", script]}).first
    until((tmp_path / "second").exists, what="the first attempt")
    for pid in instance.pilot_pids():
        os.kill(pid, signal.SIGKILL)
    instance.reaches(job, "Done")
    lost, done = of_job(receiver, "attempt", job, 2)
    [whole] = of_job(receiver, "job", job)
    # The guardian of the pilot may live long enough to give the job back.
    assert lost.error in ("lease-over", "released")
    assert lost.attributes["pilotage.reason"]
    assert (done.error, whole.error) == ("", "")
    assert {lost.parent, done.parent} == {whole.id}
    assert (whole.begin, whole.end) == (lost.begin, max(whole.end, done.begin))


def test_a_server_that_is_recorded_makes_no_spans(receiver: SpanReceiver, tmp_path: Path) -> None:
    other = Instance(tmp_path)
    done = other.cli("up", "--record", str(tmp_path / "record"), "--otlp", receiver.url)
    assert done.returncode == 2
    assert "makes no spans" in done.stderr


def test_strangers_make_no_spans(instance: Instance, receiver: SpanReceiver) -> None:
    theirs = TraceContext("12" * 16, "34" * 8)
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        answer = httpx.post(
            f"http://127.0.0.1:{instance.port}/v1/submissions",
            json={},
            headers={"traceparent": theirs.header, **headers},
            timeout=PATIENCE,
        )
        assert answer.status_code == 401
    client = instance.client()
    client.wait(client.submit({"executable": "/bin/true"}))
    until(lambda: metric(instance, "pilotage_spans_sent_total"), what="the spans of the job")
    assert not [span for span in receiver.spans if span.trace == theirs.trace]


def test_a_collector_that_refuses_or_hangs_costs_spans_only(
    instance: Instance, receiver: SpanReceiver
) -> None:
    receiver.status = 400
    try:
        client = instance.client()
        client.wait(client.submit({"executable": "/bin/true"}))
        until(lambda: metric(instance, "pilotage_spans_dropped_total"), what="a dropped span")
        receiver.hold.clear()
        jobs = client.submit({"executable": "/bin/true", "arguments": ["%s"]}, values=[1, 2, 3])
        client.wait(jobs)
        assert {job.state for job in client.jobs(jobs)} == {"Done"}
    finally:
        receiver.status = 200
        receiver.hold.set()
