"""Spans of this server: of requests that belong to a trace, and of attempts whose results were committed."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pilotage.core.handover import Answer
from pilotage.core.trace_context import HEADER, read_traceparent
from pilotage.server.context import Context, Telemetry
from pilotage.server.spans.of_jobs import finish_spans
from pilotage.server.tokens import Caller
from pilotage.telemetry.tracer import Span, Tracer, present_context
from pilotage.wire.pilot import ExchangeResponse, Finish
from pilotage.wire.requests import CLONE_REQUEST, RESUBMIT_REQUEST, SUBMIT_REQUEST
from pilotage.wire.submissions import OPEN_SUBMISSION, SUBMIT, SUBMIT_GRAPH

log = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Answerer = Callable[[Message, Receive, Send], Awaitable[None]]

MOST_PENDING = 1000
"""Messages of pilots whose attempts are still to be looked up. The attempts of further messages are dropped."""
_BEGINNING = (SUBMIT, SUBMIT_GRAPH, OPEN_SUBMISSION, SUBMIT_REQUEST, CLONE_REQUEST, RESUBMIT_REQUEST)
_BEGINS = re.compile("|".join(re.sub(r"\{\w+\}", r"\\d+", call.path) for call in _BEGINNING))
"""The addresses of calls that begin a trace if their sender has none."""
_looks: set[asyncio.Task[None]] = set()
"""Running look-ups: the loop itself keeps no task alive."""


async def answer_traced(
    tracer: Tracer, answer: Answerer, scope: Message, receive: Receive, send: Send
) -> None:
    """Answer a request within a span, if it belongs to a trace or begins one. Only senders with a token get spans."""
    header = next((value for name, value in scope["headers"] if name == HEADER.encode()), b"")
    parent = read_traceparent(header.decode("latin-1"))
    if parent is None and (scope["method"] != "POST" or not _BEGINS.fullmatch(scope["path"])):
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


def present_header() -> str:
    """The trace that the work of this request continues, as TRACEPARENT has it; "": none."""
    present = present_context()
    return "" if present is None else present.header


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
            read = partial(finish_spans, traces=self.telemetry.traces, finish=finish, applied=applied)
            try:
                spans = await self.context.quick_read(read)
            except Exception:  # the store is closed at the end of the server, or does not answer
                log.debug("the spans of job %s are lost", finish.job, exc_info=True)
                self.telemetry.collector.drop(1)
                continue
            for span in spans:
                self.telemetry.tracer.record(span)
            await asyncio.sleep(0)  # others have their turn: a message may have many finishes
