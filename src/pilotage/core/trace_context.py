"""Contexts of traces, as W3C Trace Context writes them, and the stages of one attempt at a job.

A *span* is one piece of work with its beginning and end; a trace is a tree of spans (docs/how-to/opentelemetry.md).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

VARIABLE = "TRACEPARENT"
"""The variable with the context in the environment of commands and jobs."""
HEADER = "traceparent"
_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


@dataclass(frozen=True, slots=True)
class TraceContext:
    """A span of a trace, by the ids in hexadecimal digits."""

    trace: str
    span: str
    sampled: bool = True
    """Whether its trace is kept. The spans of others are passed on, and not recorded."""

    @property
    def header(self) -> str:
        """The value of the header `traceparent`."""
        return f"00-{self.trace}-{self.span}-{int(self.sampled):02x}"

    def child(self, span: str) -> TraceContext:
        return replace(self, span=span)

    def named_child(self, *words: str | int) -> TraceContext:
        """The span of something that has a name. The same name gives the same id, also to another server."""
        text = "\0".join(map(str, (self.trace, self.span, *words)))
        return self.child(hashlib.blake2b(text.encode(), digest_size=8).hexdigest())


def read_traceparent(text: str) -> TraceContext | None:
    """The context that a header or a variable holds; None for anything else, as the standard wants it."""
    match = _FORM.fullmatch(text.strip()) if len(text) < 1000 else None
    if match is None:
        return None
    version, trace, span, flags, further = match.groups()
    if version == "ff" or (version == "00" and further) or not int(trace, 16) or not int(span, 16):
        return None
    return TraceContext(trace, span, bool(int(flags, 16) & 1))


def untraced(description: Mapping[str, Any]) -> dict[str, Any]:
    """A stored description without the trace of its request: a repeated request has another one."""
    variables = description.get("environment", {}).items()
    return {**description, "environment": {name: value for name, value in variables if name != VARIABLE}}


class AttemptTimes(NamedTuple):
    """When an attempt at a job went on: instants of the server's clock, and durations that its pilot has measured."""

    waiting: float
    """When the job began to wait for this attempt."""
    matched: float
    confirmed: float
    ended: float
    """When the server heard of its end."""
    applied: float
    """When the result was committed."""
    download: float
    payload: float
    upload: float


class AttemptStage(NamedTuple):
    name: str
    begin: float
    end: float


def stages_of(times: AttemptTimes) -> Sequence[AttemptStage]:
    """The stages of an attempt, one after another, from its wait to its end."""
    # A pilot tells durations, which are laid back from the end that the server knows.
    uploaded = times.ended - times.upload
    marks = [
        ("wait", times.matched),
        ("match", times.confirmed),
        ("start", uploaded - times.payload - times.download),
        ("download", uploaded - times.payload),
        ("payload", uploaded),
        ("upload", times.ended),
        ("finish", times.applied),
    ]
    return tuple(_in_order(times.waiting, marks))


def _in_order(begin: float, marks: Sequence[tuple[str, float]]) -> Iterator[AttemptStage]:
    """Stages that end at these instants. None ends before it begins, or after the last instant."""
    last = max(begin, marks[-1][1])
    for name, instant in marks:
        end = min(max(begin, instant), last)
        yield AttemptStage(name, begin, end)
        begin = end
