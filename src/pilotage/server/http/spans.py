"""Spans of this server: of requests that belong to a trace, and of attempts whose results were committed."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pilotage.core.handover import Answer
from pilotage.core.ids import JobId
from pilotage.core.jobs.description import JobDescription
from pilotage.core.jobs.json_format import description_from_json
from pilotage.core.jobs.lengths import LENGTHS
from pilotage.core.jobs.states import JobState
from pilotage.core.trace_context import (
    HEADER,
    VARIABLE,
    AttemptTimes,
    TraceContext,
    read_traceparent,
    stages_of,
)
from pilotage.server.context import Context, Telemetry
from pilotage.server.tokens import Caller
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import events, listing
from pilotage.telemetry.tracer import Span, Tracer, present_context
from pilotage.wire.pilot import ExchangeResponse, Finish
from pilotage.wire.submissions import OPEN_SUBMISSION, SUBMIT, SUBMIT_GRAPH

log = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Answerer = Callable[[Message, Receive, Send], Awaitable[None]]

MOST_JOBS = 1000
"""Jobs of one submission whose attempts become spans: the first ones. A trace of more could not be shown."""
MOST_PENDING = 1000
"""Messages of pilots whose attempts are still to be looked up. The attempts of further messages are dropped."""
_BEGINNING = frozenset(call.path for call in (SUBMIT, SUBMIT_GRAPH, OPEN_SUBMISSION))
"""Requests that begin a trace if their sender has none."""
_WITH_PILOT = frozenset({str(JobState.MATCHED), str(JobState.RUNNING), str(JobState.STALLED)})
_looks: set[asyncio.Task[None]] = set()
"""Running look-ups: the loop itself keeps no task alive."""


async def answer_traced(
    tracer: Tracer, answer: Answerer, scope: Message, receive: Receive, send: Send
) -> None:
    """Answer a request within a span, if it belongs to a trace or begins one. Only senders with a token get spans."""
    header = next((value for name, value in scope["headers"] if name == HEADER.encode()), b"")
    parent = read_traceparent(header.decode("latin-1"))
    if parent is None and (scope["method"] != "POST" or scope["path"] not in _BEGINNING):
        await answer(scope, receive, send)
        return
    with tracer.span(scope["method"], parent, kind="server") as span:

        async def send_and_note(message: Message) -> None:
            if message["type"] == "http.response.start":
                span.attributes["http.response.status_code"] = message["status"]
                span.error = str(message["status"]) if message["status"] >= 500 else ""
            await send(message)

        try:
            await answer(scope, receive, send_and_note)
        finally:
            _describe(span, scope)


def _describe(span: Span, scope: Message) -> None:
    """Name a request by its route: addresses have ids, and are many."""
    span.attributes["http.request.method"] = scope["method"]
    if route := getattr(scope.get("route"), "path", ""):
        span.name = f"{scope['method']} {route}"
        span.attributes["http.route"] = route
    if not isinstance(scope.get("state", {}).get("identity"), Caller):
        span.context = replace(span.context, sampled=False)


def with_present_trace(description: JobDescription) -> JobDescription:
    """The description of jobs that continue the trace of this request, by TRACEPARENT in their environment."""
    present = present_context()
    others = tuple(item for item in description.environment if item[0] != VARIABLE)
    if present is None or len(others) >= LENGTHS["environment"].max_entries:
        return description
    return replace(description, environment=(*others, (VARIABLE, present.header)))


@dataclass(frozen=True, slots=True)
class FinishSpans:
    """Makes spans of the finishes in one message of a pilot, once its answer is certain."""

    context: Context
    telemetry: Telemetry
    finishes: Sequence[Finish]
    encode: Callable[[ExchangeResponse], bytes] = field(repr=False)

    def __call__(self, response: ExchangeResponse) -> bytes:
        """The encoded answer. The look-up of the attempts begins after it."""
        accepted = {
            (verdict.job, verdict.epoch)
            for verdict in response.finishes
            if verdict.verdict == Answer.ACCEPTED
        }
        finishes = [finish for finish in self.finishes if (finish.job, finish.epoch) in accepted]
        if len(_looks) >= MOST_PENDING:
            self.telemetry.collector.drop(len(finishes))
        elif finishes:
            look = asyncio.get_running_loop().create_task(self._record(finishes, self.context.clock()))
            _looks.add(look)
            look.add_done_callback(_looks.discard)
        return self.encode(response)

    async def _record(self, finishes: Sequence[Finish], applied: float) -> None:
        for finish in finishes:
            read = partial(attempt_spans, finish=finish, applied=applied)
            try:
                spans = await self.context.quick_read(read)
            except Exception:  # the store is closed at the end of the server, or does not answer
                log.debug("the spans of job %s are lost", finish.job, exc_info=True)
                self.telemetry.collector.drop(1)
                continue
            for span in spans:
                self.telemetry.tracer.record(span)
            await asyncio.sleep(0)  # others have their turn: a message may have many finishes


def attempt_spans(connection: Connection, finish: Finish, applied: float) -> list[Span]:
    """The spans of an attempt, of its stages too. None: its job belongs to no trace that is kept."""
    facts = listing.job_facts(connection, finish.job)
    if facts is None or facts.id - facts.first_job >= MOST_JOBS:
        return []
    environment = dict(description_from_json(json.loads(facts.description)).environment)
    parent = read_traceparent(environment.get(VARIABLE, ""))
    if parent is None or not parent.sampled:
        return []
    times = _times(events.history(connection, JobId(finish.job), facts.last_event), finish, applied)
    return [] if times is None else list(_spans(connection, facts, parent, finish, times))


def _times(history: Sequence[events.Event], finish: Finish, applied: float) -> AttemptTimes | None:
    """When the attempt of a finish went on; None: its events are gone."""
    own = [place for place, event in enumerate(history) if event.epoch == finish.epoch]
    matched = next((place for place in own if history[place].new == JobState.MATCHED), None)
    if matched is None:
        return None
    later = history[matched + 1 :]
    ended = next((event.at for event in later if event.new not in _WITH_PILOT), applied)
    return AttemptTimes(
        waiting=history[matched - 1].at if matched else history[matched].at,
        matched=history[matched].at,
        confirmed=next((event.at for event in later if event.new == JobState.RUNNING), ended),
        ended=ended,
        applied=max(ended, applied),
        download=finish.download,
        payload=finish.wall,
        upload=finish.upload,
    )


def _spans(
    connection: Connection,
    facts: listing.JobFacts,
    parent: TraceContext,
    finish: Finish,
    times: AttemptTimes,
) -> Iterator[Span]:
    attempts = listing.attempts(connection, facts.id)
    place = next((row for row in attempts if row.epoch == finish.epoch), None)
    context = parent.named_child("attempt", facts.id, finish.epoch)
    span = Span("attempt", context, parent.span, times.waiting, times.applied, error=finish.failure)
    span.attributes |= {
        "pilotage.job": facts.id,
        "pilotage.epoch": finish.epoch,
        "pilotage.submission": facts.submission_id,
        "pilotage.state": facts.state,
    }
    if finish.exit_code is not None:
        span.attributes["pilotage.exit_code"] = finish.exit_code
        span.error = span.error or ("payload" if finish.exit_code else "")
    if place is not None:
        span.attributes |= {
            "pilotage.site": place.site,
            "pilotage.ce": place.ce,
            "pilotage.pilot": place.pilot,
        }
    yield span
    for stage in stages_of(times):
        yield Span(stage.name, context.named_child(stage.name), context.span, stage.begin, stage.end)
