"""Finds the traces of jobs, pieces and requests, and the ids of their spans."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from pilotage.core.jobs.json_format import description_from_json
from pilotage.core.jobs.trace import trace_of
from pilotage.core.requests.json_format import specification_from_text
from pilotage.core.requests.trace import trace_of_request
from pilotage.core.trace_context import VARIABLE, TraceContext
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import listing, requests, traced_work
from pilotage.store.tables.listing import JobFacts
from pilotage.store.tables.requests import RequestRow
from pilotage.store.tables.traced_work import PieceRow

MOST_JOBS = 1000
"""Jobs of one submission that become spans: the first ones. A trace of more could not be shown."""
MOST_PIECES, MOST_JOBS_OF_PIECE = 100, 100
"""Pieces of one request, and jobs of one piece, that become spans."""
KNOWN_REQUESTS = 1000
"""Requests whose first piece is kept in memory."""


@dataclass(frozen=True, slots=True)
class TracedJob:
    """A job of a trace that is kept."""

    facts: JobFacts
    parent: TraceContext
    """The span around the job: its piece, or the call that submitted it."""

    def life(self, number: int) -> TraceContext:
        """The span of the job. A job that has ended and is rescheduled has a further life."""
        words = (number,) if number else ()
        return self.parent.named_child("job", self.facts.id, *words)


@dataclass(frozen=True, slots=True)
class Traces:
    """Remembers facts of requests that do not change. Several threads may use it."""

    _first_pieces: dict[int, int] = field(default_factory=dict)

    def of_jobs(self, connection: Connection, jobs: Sequence[int]) -> list[TracedJob]:
        """The jobs that belong to a trace that is kept, and are not too many of their submission or request."""
        found = []
        for facts in listing.facts_of_jobs(connection, jobs).values():
            # Most texts are not parsed: their jobs have no trace.
            if VARIABLE not in facts.description:
                continue
            parent = trace_of(description_from_json(json.loads(facts.description)))
            if parent is not None and parent.sampled:
                around = self._around(connection, facts, parent)
                found += [] if around is None else [TracedJob(facts, around)]
        return found

    def _around(self, connection: Connection, facts: JobFacts, trace: TraceContext) -> TraceContext | None:
        if facts.request is None:
            return trace if facts.id - facts.first_job < MOST_JOBS else None
        [element_job] = json.loads(facts.parameters or "[0]")
        piece = traced_work.piece_of_job(connection, element_job, MOST_JOBS_OF_PIECE)
        return None if piece is None else self._of_piece(connection, piece, trace)

    def of_pieces(
        self, connection: Connection, trace: TraceContext, ids: Sequence[int]
    ) -> list[tuple[PieceRow, TraceContext]]:
        """The pieces of one request that become spans, each with the context of its span."""
        pairs = (
            (piece, self._of_piece(connection, piece, trace)) for piece in traced_work.pieces(connection, ids)
        )
        return [(piece, context) for piece, context in pairs if context is not None]

    def _of_piece(self, connection: Connection, piece: PieceRow, trace: TraceContext) -> TraceContext | None:
        first = self._first_pieces.get(piece.request_id)
        if first is None:
            if len(self._first_pieces) >= KNOWN_REQUESTS:
                self._first_pieces.clear()
            first = traced_work.first_piece(connection, piece.request_id)
            self._first_pieces[piece.request_id] = first
        if piece.id - first >= MOST_PIECES:
            return None
        return of_request(trace, piece.request_id).named_child("piece", piece.id)


def of_request(trace: TraceContext, request: int) -> TraceContext:
    """The span of a request."""
    return trace.named_child("request", request)


def trace_of_row(connection: Connection, request: int) -> tuple[RequestRow, TraceContext] | None:
    """A request and the trace that it continues; None: it has none that is kept."""
    row = requests.by_id(connection, request)
    trace = None if row is None else trace_of_request(specification_from_text(row.specification))
    return None if row is None or trace is None or not trace.sampled else (row, trace)
