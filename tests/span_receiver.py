"""A collector that a test plays: it takes spans by OTLP over HTTP, and keeps them."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class ReceivedSpan:
    service: str
    name: str
    trace: str
    id: str
    parent: str
    begin: int
    end: int
    attributes: dict[str, Any]
    failed: bool
    error: str


@dataclass
class SpanReceiver:
    """`status`: the answer to each message. While `hold` is not set, it answers nobody."""

    url: str = ""
    spans: list[ReceivedSpan] = field(default_factory=list)
    status: int = 200
    hold: threading.Event = field(default_factory=threading.Event)
    raw: bytes = b""

    def take(self, body: bytes) -> None:
        self.raw += body
        for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            facts = {item.key: item.value.string_value for item in of_resource.resource.attributes}
            for of_scope in of_resource.scope_spans:
                for span in of_scope.spans:
                    values = {
                        item.key: getattr(item.value, str(item.value.WhichOneof("value")))
                        for item in span.attributes
                    }
                    self.spans.append(
                        ReceivedSpan(
                            facts["service.name"],
                            span.name,
                            span.trace_id.hex(),
                            span.span_id.hex(),
                            span.parent_span_id.hex(),
                            span.start_time_unix_nano,
                            span.end_time_unix_nano,
                            values,
                            span.status.code == span.status.STATUS_CODE_ERROR,
                            span.status.message,
                        )
                    )

    def named(self, name: str) -> list[ReceivedSpan]:
        return [span for span in self.spans if span.name == name]


@contextmanager
def span_receiver() -> Iterator[SpanReceiver]:
    receiver = SpanReceiver()
    receiver.hold.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.hold.wait()
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            if receiver.status == 200:
                assert self.path == "/v1/traces"
                receiver.take(body)
            self.send_response(receiver.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    receiver.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield receiver
    finally:
        receiver.hold.set()
        server.shutdown()
        server.server_close()
        thread.join()
