"""Routes for identity, shutdown, and monitoring."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping

from fastapi import Response

from pilotage import __version__
from pilotage.core.errors import InvalidInput, Overloaded
from pilotage.server.context import Context
from pilotage.server.http.app import LIVE as ALIVE
from pilotage.server.http.auditing import audited_call
from pilotage.server.http.call_router import CallRouter
from pilotage.server.http.callers import TheCaller, TheContext
from pilotage.server.http.edge import binary_response
from pilotage.services.audit import audited
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import agents, job_counts, listing, retention
from pilotage.wire.identity import WHOAMI, Identity
from pilotage.wire.monitoring import LIVE, METRICS, READY
from pilotage.wire.shutdown import SHUTDOWN, Shutdown

router = CallRouter("administration")
AGENTS_COUNTED = 10_000

monitoring = CallRouter("monitoring")


@router.call(WHOAMI)
def whoami(context: TheContext, caller: TheCaller) -> Identity:
    """The user, group and rights of the token."""
    others = [row.url for row in context.address.other_servers]
    properties = sorted(caller.properties)
    return Identity(
        caller.user, caller.group, properties, caller.expires, __version__, context.address.instance, others
    )


@router.call(SHUTDOWN)
async def shutdown(body: Shutdown, context: TheContext, caller: TheCaller) -> Shutdown:
    """Stop the server. The answer is sent at once; the server has ended when its address no longer answers."""
    if body.pilots not in ("drain", "keep", "cancel"):
        raise InvalidInput(f"pilots: {body.pilots!r} is not one of drain, keep, cancel")
    called = audited_call(context, caller, SHUTDOWN, f"server {context.address.instance}")
    # A full disk or a lost database must not keep the server from its end.
    with contextlib.suppress(Overloaded):
        await context.writer.acall(
            audited(called, lambda tx: None, made=lambda _: f"stopped; pilots: {body.pilots}")
        )
    context.stop.mode = body.pilots
    context.stop.set()
    return body


@monitoring.call(LIVE)
def live() -> dict[str, str]:
    """Answers while the process runs."""
    return ALIVE


@monitoring.call(READY)
def ready(response: Response, context: TheContext) -> dict[str, str]:
    """Whether requests are served. "disk-full" (503): no new work is accepted. Other states: the server is stopping."""
    if context.disk.space.low:
        response.status_code = 503
    return readiness(context)


def readiness(context: Context) -> dict[str, str]:
    """The state of the server: ready, disk-full, or how it stops."""
    answer = {"status": context.stop.mode or "ready", "instance": context.address.instance}
    if context.disk.space.low:
        answer |= {"status": "disk-full", "reason": context.disk.space.low}
    return answer


@monitoring.call(METRICS, responses=binary_response("text/plain; version=0.0.4"))
def metrics(context: TheContext) -> Response:
    """Metrics for Prometheus, without names of people."""
    pool, writer = context.pool, context.writer
    lines: list[str] = []
    connection = context.readers.connection()
    lines += _labelled("pilotage_jobs", "state", listing.state_totals(connection))
    depth = context.work.work_queue_depth.read()
    lines += _labelled("pilotage_requests", "state", depth.requests)
    lines += _labelled("pilotage_elements", "state", depth.elements)
    lines += _labelled("pilotage_element_jobs", "state", depth.jobs)
    present = agents.page(connection, everything=False, limit=AGENTS_COUNTED)
    lines += _labelled("pilotage_agents", "state", Counter(row.status(context.clock()) for row in present))
    gauges = _gauges(context, connection)
    counters = {
        "pilotage_commits_total": writer.groups,
        "pilotage_requests_total": writer.requests,
        "pilotage_replayed_groups_total": writer.replays,
        "pilotage_slow_transactions_total": writer.times.slow,
        "pilotage_busy_transactions_total": writer.times.busy,
        "pilotage_transactions_work_seconds_total": round(writer.times.work, 6),
        "pilotage_transactions_commit_seconds_total": round(writer.times.commit, 6),
    }
    counters |= {
        "pilotage_connections_evicted_total": context.work.connections.evicted,
        "pilotage_connections_refused_total": context.work.connections.refused,
    }
    counters.update(pool.peers.metrics())
    if context.work.telemetry is not None:
        collector = context.work.telemetry.collector
        counters |= {
            "pilotage_spans_sent_total": collector.sent,
            "pilotage_spans_dropped_total": collector.dropped,
        }
    for kind, numbers in (("gauge", gauges), ("counter", counters)):
        for name, value in numbers.items():
            lines += [f"# TYPE {name} {kind}", f"{name} {value}"]
    lines += ["# TYPE pilotage_disk_full gauge", f"pilotage_disk_full {int(bool(context.disk.space.low))}"]
    lines += _labelled("pilotage_disk_free_bytes", "disk", context.disk.space.free())
    lines += _labelled("pilotage_failing_rows", "duty", context.duties.failing.counts())
    removed = {table: shown.total for table, shown in retention.progress(connection).items()}
    lines += _labelled("pilotage_retention_rows_total", "table", removed, kind="counter")
    return Response("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")


def _labelled(name: str, label: str, numbers: Mapping[str, float], *, kind: str = "gauge") -> list[str]:
    lines = [f'{name}{{{label}="{value}"}} {number}' for value, number in sorted(numbers.items())]
    return [f"# TYPE {name} {kind}", *lines]


def _gauges(context: Context, connection: Connection) -> dict[str, float]:
    pool, writer = context.pool, context.writer
    entries = list(pool.queues.index.entries.values())
    gauges: dict[str, float] = {
        "pilotage_queues": sum(1 for entry in entries if entry.waiting),
        "pilotage_index_waiting_jobs": sum(entry.waiting for entry in entries),
        "pilotage_pilots_stalled": len(pool.pilots.stalled),
        "pilotage_history_jobs": job_counts.archived(connection),
        "pilotage_retention_last_run_timestamp_seconds": context.duties.retention_ran_at or 0,
        "pilotage_longest_transaction_seconds": writer.times.longest,
        "pilotage_longest_work_of_a_transaction_seconds": writer.times.longest_work,
    }
    if context.address.certificate_expires is not None:
        gauges["pilotage_certificate_expires_timestamp_seconds"] = context.address.certificate_expires
    return gauges
