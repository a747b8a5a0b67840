"""The way of spans to a collector: a bounded queue, and a thread that sends them by OTLP over HTTP."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pilotage import __version__
from pilotage.core.errors import InvalidInput
from pilotage.telemetry.tracer import Span

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

log = logging.getLogger(__name__)

ROOM = 10_000
"""Spans that wait at most. Further ones are dropped and counted."""
BATCH = 512
TIMEOUT = 10
"""Seconds for one batch, retries included."""
_PATH = "/v1/traces"

Send = Callable[[Sequence[Span]], bool]
"""Sends spans; whether the collector has accepted them. It raises nothing, and may take `TIMEOUT` seconds."""


class Collector:
    """Queues spans, and sends them in a thread of its own. The makers of spans never wait for it."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._waiting: queue.Queue[Span | None] = queue.Queue(ROOM)
        self._lock = threading.Lock()
        self.dropped = 0
        """Spans that were lost: the queue was full, or the collector did not accept them."""
        self.sent = 0
        self._thread = threading.Thread(target=self._run, name="spans", daemon=True)
        self._thread.start()

    def put(self, span: Span) -> None:
        try:
            self._waiting.put_nowait(span)
        except queue.Full:
            self.drop(1)

    def drop(self, count: int) -> None:
        """Count spans that are lost."""
        with self._lock:
            self.dropped += count

    def close(self, patience: float) -> None:
        """Send the waiting spans, for `patience` seconds at most. The rest is lost with the process."""
        try:
            self._waiting.put(None, timeout=patience)
        except queue.Full:
            return
        self._thread.join(patience)

    def _run(self) -> None:
        open_ = True
        while open_:
            batch = [self._waiting.get()]
            while len(batch) < BATCH:
                try:
                    batch.append(self._waiting.get_nowait())
                except queue.Empty:
                    break
            open_ = None not in batch
            self._deliver([span for span in batch if span is not None])

    def _deliver(self, spans: Sequence[Span]) -> None:
        if not spans:
            return
        if self._send(spans):
            self.sent += len(spans)
            return
        if not self.dropped:
            log.warning("the collector of spans does not accept them; they are dropped")
        self.drop(len(spans))


def open_collector(address: str, service: str) -> Collector:
    """The collector at an address such as http://127.0.0.1:4318. Raises InvalidInput if none can be used."""
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
        raise InvalidInput(
            f"{parts.hostname or address[:80]!r} is not the address of a collector",
            hint="write http://HOST:4318",
        )
    endpoint = address if parts.path.endswith(_PATH) else address.rstrip("/") + _PATH
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace.export import SpanExportResult
    except ImportError:
        raise InvalidInput(
            "spans need the OpenTelemetry packages", hint="python3 -m pip install 'pilotage[traces]'"
        ) from None
    # The exporter tells each failure by itself, with a traceback.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    exporter = OTLPSpanExporter(endpoint, timeout=TIMEOUT)
    resource = Resource.create({"service.name": service, "service.version": __version__})

    def send(spans: Sequence[Span]) -> bool:
        try:
            return exporter.export([_readable(span, resource) for span in spans]) is SpanExportResult.SUCCESS
        except Exception:
            log.debug("spans were not sent", exc_info=True)
            return False

    return Collector(send)


def _readable(span: Span, resource: object) -> ReadableSpan:
    """The span as the exporter takes it."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
    from opentelemetry.trace.status import Status, StatusCode

    assert isinstance(resource, Resource)
    trace, flags = int(span.context.trace, 16), TraceFlags(TraceFlags.SAMPLED)
    return ReadableSpan(
        span.name,
        SpanContext(trace, int(span.context.span, 16), False, flags),
        SpanContext(trace, int(span.parent, 16), True, flags) if span.parent else None,
        resource,
        dict(span.attributes),
        kind={"server": SpanKind.SERVER, "client": SpanKind.CLIENT}.get(span.kind, SpanKind.INTERNAL),
        status=Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.UNSET),
        start_time=int(span.begin * 1e9),
        end_time=int(span.end * 1e9),
    )
