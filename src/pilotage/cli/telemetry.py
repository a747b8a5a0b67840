"""The span of one command, where PILOTAGE_OTLP names a collector."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

ADDRESS = "PILOTAGE_OTLP"
LAST_SPANS = 1.0
"""Seconds for which a command waits for the collector at its end."""


@contextmanager
def command_span(command: str) -> Iterator[None]:
    """A span around a command. Its requests, threads and child processes continue the trace."""
    address = os.environ.get(ADDRESS, "")
    if not address:
        yield
        return
    # Here, as most commands make no span: their start is short.
    import secrets
    import time

    from pilotage.core.trace_context import VARIABLE, read_traceparent
    from pilotage.telemetry.collector import open_collector
    from pilotage.telemetry.tracer import Tracer

    collector = open_collector(address, "pilotage client")
    before = os.environ.get(VARIABLE, "")
    try:
        with Tracer(collector, time.time, secrets).span(
            f"pilotage {command}", read_traceparent(before), kind="client"
        ) as span:
            os.environ[VARIABLE] = span.context.header
            yield
    finally:
        collector.close(LAST_SPANS)
