"""Divides a pilot's long message into parts, each for a transaction of its own.

A pilot that could not reach the server for some time reports thousands of jobs in one message. In one transaction they
would keep all others waiting. A message that is repeated gets the same answers, so a message may end after any part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from pilotage.wire.finish_size import size_of
from pilotage.wire.pilot import ExchangeRequest, ExchangeResponse, Finish

SIZE_AT_ONCE = 20_000
"""Size of the finishes of one transaction, counted by `size_of`; a single finish may be larger."""
REPORTS_AT_ONCE = 100
"""Finishes, releases, confirms or starts of one transaction."""
HELD_AT_ONCE = 500
"""Entries of `holding` of one transaction."""

Entry = TypeVar("Entry")


def parts_of(request: ExchangeRequest) -> list[ExchangeRequest]:
    """The parts of a message in the order of the protocol; most messages are one part."""
    reports = len(request.finishes) + len(request.releases) + len(request.confirms) + len(request.starts)
    is_short = reports <= REPORTS_AT_ONCE and len(request.holding) <= HELD_AT_ONCE
    if is_short and (not request.finishes or sum(map(size_of, request.finishes)) <= SIZE_AT_ONCE):
        return [request]
    incarnation = request.incarnation
    return [
        *(ExchangeRequest(incarnation, finishes=part) for part in _slices_of_finishes(request.finishes)),
        *(ExchangeRequest(incarnation, releases=part) for part in _slices(request.releases, REPORTS_AT_ONCE)),
        *(
            ExchangeRequest(incarnation, confirms=part, ahead=request.ahead)
            for part in _slices(request.confirms, REPORTS_AT_ONCE)
        ),
        *(ExchangeRequest(incarnation, holding=part) for part in _slices(request.holding, HELD_AT_ONCE)),
        *(ExchangeRequest(incarnation, starts=part) for part in _slices(request.starts, REPORTS_AT_ONCE)),
        # The take follows the reports, as in a message of one part; a pilot that leaves has reported all.
        replace(request, finishes=[], releases=[], confirms=[], starts=[], holding=[]),
    ]


def _slices(entries: list[Entry], size: int) -> Iterator[list[Entry]]:
    for first in range(0, len(entries), size):
        yield entries[first : first + size]


def _slices_of_finishes(finishes: list[Finish]) -> Iterator[list[Finish]]:
    part: list[Finish] = []
    size = 0
    for finish in finishes:
        size += size_of(finish)
        if part and (size > SIZE_AT_ONCE or len(part) == REPORTS_AT_ONCE):
            yield part
            part, size = [], size_of(finish)
        part.append(finish)
    if part:
        yield part


def joined(responses: Sequence[ExchangeResponse]) -> ExchangeResponse:
    """The answer to a message, from the answers to its parts."""
    return replace(
        responses[-1],
        finishes=[verdict for response in responses for verdict in response.finishes],
        releases=[verdict for response in responses for verdict in response.releases],
        confirms=[verdict for response in responses for verdict in response.confirms],
        stop=[verdict for response in responses for verdict in response.stop],
        follow=[job for response in responses for job in response.follow],
    )
