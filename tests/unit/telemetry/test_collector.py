"""Spans on their way to a collector that is slow, away or absent."""

from __future__ import annotations

import secrets
import subprocess
import sys
import threading
from collections.abc import Sequence

import pytest

from pilotage.core.errors import InvalidInput
from pilotage.core.trace_context import TraceContext, read_traceparent
from pilotage.telemetry import collector as collectors
from pilotage.telemetry.collector import Collector, open_collector
from pilotage.telemetry.tracer import Span, Tracer, child_span, outgoing_headers, present_context
from tests.deadlines import PATIENCE
from tests.instance import until
from tests.ports import free_port
from tests.span_receiver import span_receiver


class Kept:
    """A sink that keeps spans."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def put(self, span: Span) -> None:
        self.spans.append(span)


def tracer() -> tuple[Tracer, list[Span]]:
    kept = Kept()
    instants = iter(range(1000))
    return Tracer(kept, lambda: float(next(instants)), secrets), kept.spans


def test_spans_are_a_tree() -> None:
    made, spans = tracer()
    with made.span("outer", None) as outer, child_span("inner"):
        assert outgoing_headers({"TRACEPARENT": "00-" + "1" * 32 + "-" + "2" * 16 + "-01"}) == {
            "traceparent": spans_context(present_context())
        }
    [inner, whole] = spans
    assert (inner.name, inner.parent, inner.context.trace) == (
        "inner",
        outer.context.span,
        outer.context.trace,
    )
    assert whole is outer
    assert outer.parent == ""
    assert outer.begin < inner.begin < inner.end < outer.end
    assert present_context() is None
    with child_span("nothing"):
        assert present_context() is None


def spans_context(context: TraceContext | None) -> str:
    assert context is not None
    return context.header


def test_a_failure_and_a_trace_that_is_not_kept() -> None:
    made, spans = tracer()
    with pytest.raises(ValueError, match="secret"), made.span("failing", None):
        raise ValueError("a secret")
    assert [(span.name, span.error) for span in spans] == [("failing", "ValueError")]
    with made.span("quiet", TraceContext("1" * 32, "2" * 16, sampled=False)):
        assert outgoing_headers({})["traceparent"].endswith("-00")
    assert len(spans) == 1


def test_the_variable_continues_a_trace() -> None:
    text = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"
    assert outgoing_headers({"TRACEPARENT": text}) == {"traceparent": text}
    assert outgoing_headers({"TRACEPARENT": "nonsense"}) == {}


def test_a_program_that_uses_opentelemetry_continues_its_span() -> None:
    from opentelemetry.sdk.trace import TracerProvider

    with TracerProvider().get_tracer("test").start_as_current_span("own") as own:
        sent = read_traceparent(outgoing_headers({})["traceparent"])
    assert sent is not None
    assert int(sent.span, 16) == own.get_span_context().span_id


def test_a_collector_that_hangs_costs_dropped_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collectors, "ROOM", 5)
    monkeypatch.setattr(collectors, "BATCH", 1)
    begun, go = threading.Event(), threading.Event()

    def send(spans: Sequence[Span]) -> bool:
        begun.set()
        return go.wait(PATIENCE)

    collector = Collector(send)
    span = Span("one", TraceContext("1" * 32, "2" * 16), "", 0.0)
    collector.put(span)
    assert begun.wait(PATIENCE)
    for _ in range(8):
        collector.put(span)  # returns at once
    assert collector.dropped == 3
    collector.close(0.0)
    go.set()
    until(lambda: collector.sent == 6, what="the spans that waited")


def test_spans_reach_a_collector_and_one_that_is_away_loses_them() -> None:
    with span_receiver() as receiver:
        collector = open_collector(receiver.url, "pilotage")
        made = Tracer(collector, lambda: 1.5, secrets)
        with made.span("sent", None, kind="server", **{"pilotage.job": 7}):
            pass
        until(lambda: receiver.spans, what="the span")
        [span] = receiver.spans
        assert (span.service, span.name, span.begin, span.attributes) == (
            "pilotage",
            "sent",
            1_500_000_000,
            {"pilotage.job": 7},
        )
        receiver.status = 400
        with made.span("refused", None):
            pass
        until(lambda: collector.dropped == 1, what="the dropped span")
        collector.close(PATIENCE)


def test_an_absent_collector_ends_no_program() -> None:
    collector = open_collector(f"http://127.0.0.1:{free_port()}", "pilotage")
    with Tracer(collector, lambda: 1.0, secrets).span("lost", None):
        pass
    collector.close(PATIENCE)
    assert (collector.sent, collector.dropped) == (0, 1)


@pytest.mark.parametrize(
    "address", ["", "collector:4318", "ftp://h", "http://", "http://u:p@h:1", "http://h?x=1"]
)
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(InvalidInput, match="not the address of a collector") as refused:
        open_collector(address, "pilotage")
    assert "u:p" not in str(refused.value)


def test_without_the_packages_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    with pytest.raises(InvalidInput, match="need the OpenTelemetry packages") as refused:
        open_collector("http://127.0.0.1:4318", "pilotage")
    assert "pilotage[traces]" in refused.value.hint


CLIENT = """
import pilotage.client, pilotage.cli.session
from pilotage.cli.telemetry import command_span
from pilotage.telemetry.tracer import outgoing_headers
with command_span("submit"):
    assert outgoing_headers({}) == {}
"""
SERVER = "import pilotage.server.process.run, pilotage.server.http.routing, pilotage.server.http.spans"


@pytest.mark.parametrize(
    ("program", "unwanted"),
    [
        (CLIENT, ["opentelemetry", "google.protobuf", "requests"]),
        # FastAPI imports the interface, which does nothing by itself.
        (SERVER, ["opentelemetry.sdk", "opentelemetry.exporter", "google.protobuf", "requests"]),
    ],
)
def test_without_a_collector_its_packages_are_not_imported(program: str, unwanted: list[str]) -> None:
    program += f"\nimport sys\nprint([name for name in {unwanted} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=True, env={}
    )
    assert done.stdout.strip() == "[]"
