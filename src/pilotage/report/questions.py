"""The questions of a report to the API. A command sends them over HTTP; a page of the server asks its own routes."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from pilotage.wire.call import ApiCall

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class ReportQuestion:
    """A call of the API."""

    call: ApiCall[Any, Any]
    request: object = None
    parts: Mapping[str, Any] = field(default_factory=dict)
    """The parts of its address."""


Reading: TypeAlias = Generator[ReportQuestion, Any, Answer]
"""Yields questions, is sent each answer or error, and returns the outcome."""


def ask(call: ApiCall[Any, Answer], request: object = None, /, **parts: object) -> Reading[Answer]:
    answer: Answer = yield ReportQuestion(call, request, parts)
    return answer
