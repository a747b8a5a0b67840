"""Spans of jobs and of their attempts, from the events of the jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from pilotage.core.ids import JobId
from pilotage.core.jobs.states import CONFIRMED, FINAL, JobState
from pilotage.core.trace_context import AttemptTimes, TraceContext, stages_of
from pilotage.server.spans.traces import JobInTrace, Traces, reason_of
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import events, listing
from pilotage.store.tables.events import Event
from pilotage.store.tables.feed import LogRow
from pilotage.telemetry.tracer import Span
from pilotage.wire.pilot import Finish

FINISHES = frozenset({"finished", "failed-try"})
"""Events of an attempt whose result has come. Its spans are made from the message with the result."""
_WITH_PILOT = CONFIRMED | {JobState.MATCHED}


def finish_spans(connection: Connection, traces: Traces, finish: Finish, applied: float) -> list[Span]:
    """The spans of an attempt whose result was accepted. None: its job belongs to no trace that is kept."""
    for job in traces.of_jobs(connection, [finish.job]):
        history = _history(connection, job)
        own = _of_epoch(history, finish.epoch)
        times = _times_of_finish(history, own, finish, applied)
        if times is None:
            return []
        cut = _last_cut(history, own)
        life = job.life(_life_at(history, own[0]))
        # An attempt that was given up has its span already. Its late result has another one.
        context = life.named_child("attempt", finish.job, finish.epoch, *(() if cut is None else ("late",)))
        error = finish.failure or ("payload" if finish.exit_code else "")
        span = _attempt(connection, job, finish.epoch, context, life, times, error)
        if finish.exit_code is not None:
            span.attributes["pilotage.exit_code"] = finish.exit_code
        return [span, *_stages(times, context)]
    return []


def end_spans(connection: Connection, job: JobInTrace, epoch: int, row: LogRow) -> Iterator[Span]:
    """The spans that end with an event of a job: of an attempt without a result, and of the job."""
    history = _history(connection, job)
    wanted = (epoch, row.at, row.kind, row.new)
    places = (
        place
        for place, event in enumerate(history)
        if (event.epoch, event.at, event.kind, event.new) == wanted
    )
    if (place := next(places, None)) is None:
        return
    event, number = history[place], _life_at(history, place)
    life = job.life(number)
    own = _of_epoch(history[: place + 1], epoch)
    times = _times_until(history, own, place)
    if row.kind not in FINISHES and event.old in CONFIRMED and times is not None:
        context = life.named_child("attempt", job.facts.id, epoch)
        span = _attempt(connection, job, epoch, context, life, times, row.kind)
        span.attributes |= reason_of(event.detail)
        yield span
        yield from islice(_stages(times, context), 2)
    if event.new in FINAL and event.old not in FINAL:
        yield _job(job, life, history, place, number)


def _job(job: JobInTrace, life: TraceContext, history: Sequence[Event], place: int, number: int) -> Span:
    event = history[place]
    begun = 0
    if number:
        begun = max(at for at in range(place) if history[at].new in FINAL) + 1
    error = str(event.new) if event.new != JobState.DONE else ""
    span = Span("job", life, job.parent.span, history[begun].at, event.at, error=error)
    span.attributes |= _of_job(job) | {"pilotage.state": str(event.new)}
    if error and event.kind not in FINISHES:
        span.attributes |= reason_of(event.detail)
    return span


def _of_job(job: JobInTrace) -> dict[str, int]:
    of_request = {} if job.facts.request is None else {"pilotage.request": job.facts.request}
    return {"pilotage.job": job.facts.id, "pilotage.submission": job.facts.submission_id, **of_request}


def _history(connection: Connection, job: JobInTrace) -> list[Event]:
    return events.history(connection, JobId(job.facts.id), job.facts.last_event)


def _of_epoch(history: Sequence[Event], epoch: int) -> list[int]:
    return [place for place, event in enumerate(history) if event.epoch == epoch]


def _life_at(history: Sequence[Event], place: int) -> int:
    """How often the job had ended before this event."""
    return sum(event.new in FINAL and event.old not in FINAL for event in history[:place])


def _last_cut(history: Sequence[Event], own: Sequence[int]) -> int | None:
    """Where an attempt ended without a result; None: it did not."""
    cuts = (
        place
        for place in own
        if history[place].old in CONFIRMED
        and history[place].new not in CONFIRMED
        and history[place].kind not in FINISHES
    )
    return max(cuts, default=None)


def _times_of_finish(
    history: Sequence[Event], own: Sequence[int], finish: Finish, applied: float
) -> AttemptTimes | None:
    """When the attempt of a finish went on; None: its events are gone."""
    cut = _last_cut(history, own)
    if cut is not None:
        begun = history[cut].at
        late = (begun, begun, begun)
        return AttemptTimes(*late, applied, applied, finish.download, finish.wall, finish.upload)
    times = _times_until(history, own, len(history))
    if times is None:
        return None
    return times._replace(
        confirmed=min(times.confirmed, applied),
        ended=min(times.ended, applied),
        applied=applied,
        download=finish.download,
        payload=finish.wall,
        upload=finish.upload,
    )


def _times_until(history: Sequence[Event], own: Sequence[int], last: int) -> AttemptTimes | None:
    """When an attempt went on, until an event at `last` at the latest; None: its match is not in the log any more."""
    matched = next((place for place in own if history[place].new == JobState.MATCHED), None)
    if matched is None:
        return None
    later = history[matched + 1 : last + 1]
    # Without such an event the attempt goes on: the caller knows its end.
    ended = next((event.at for event in later if event.new not in _WITH_PILOT), float("inf"))
    confirmed = next((event.at for event in later if event.new in CONFIRMED), ended)
    waiting = history[matched - 1].at if matched else history[matched].at
    return AttemptTimes(waiting, history[matched].at, confirmed, ended, ended, 0.0, 0.0, 0.0)


def _attempt(
    connection: Connection,
    job: JobInTrace,
    epoch: int,
    context: TraceContext,
    life: TraceContext,
    times: AttemptTimes,
    error: str,
) -> Span:
    span = Span("attempt", context, life.span, times.waiting, times.applied, error=error)
    span.attributes |= _of_job(job) | {"pilotage.epoch": epoch, "pilotage.state": job.facts.state}
    attempts = listing.attempts(connection, job.facts.id)
    place = next((row for row in attempts if row.epoch == epoch), None)
    if place is not None:
        span.attributes |= {
            "pilotage.site": place.site,
            "pilotage.ce": place.ce,
            "pilotage.pilot": place.pilot,
        }
    return span


def _stages(times: AttemptTimes, context: TraceContext) -> Iterator[Span]:
    for stage in stages_of(times):
        yield Span(stage.name, context.named_child(stage.name), context.span, stage.begin, stage.end)
