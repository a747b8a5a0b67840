"""The way of spans to a collector, and the duty that makes spans. Without a collector it imports nothing further."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pilotage.core.secret_source import SecretSource
from pilotage.server.context import Context, Telemetry
from pilotage.telemetry.collector import open_collector
from pilotage.telemetry.tracer import Tracer

if TYPE_CHECKING:
    from pilotage.server.duties.spans import SpanDuty


def open_telemetry(collector: str, clock: Callable[[], float], secrets: SecretSource) -> Telemetry | None:
    """The spans of a server, for the collector at this address; "": it makes none."""
    if not collector:
        return None
    opened = open_collector(collector, "pilotage")
    return Telemetry(Tracer(opened, clock, secrets), opened)


async def span_duties(context: Context) -> list[SpanDuty]:
    """The duty of spans, which follows the events from now on; none without a collector."""
    telemetry = context.work.telemetry
    if telemetry is None:
        return []
    from pilotage.server.duties.spans import SpanDuty

    duty = SpanDuty(context, telemetry)
    await duty.begin()
    return [duty]
