"""The use of a job that runs, in words: whether it works or may be stuck."""

from __future__ import annotations

from typing import Final, Protocol

from pilotage.core.jobs.durations import format_duration

OLD: Final = 120.0
"""Seconds after which a short text tells the age of its figures. Pilots tell them with each heartbeat."""
IDLE_CORES: Final = 0.02
"""A program that uses less of a core computes nothing: it waits."""
QUIET: Final = 60.0
"""Seconds without output after which a program that waits may be stuck."""
NOT_TOLD: Final = "its pilot has not told its use yet"


class ShownUse(Protocol):
    """A `JobUse` of wire."""

    @property
    def at(self) -> float: ...
    @property
    def ran(self) -> float: ...
    @property
    def cpu(self) -> float: ...
    @property
    def busy(self) -> float: ...
    @property
    def memory(self) -> int: ...
    @property
    def peak(self) -> int: ...
    @property
    def output_at(self) -> float | None: ...


def short_use(use: ShownUse, now: float) -> str:
    """Such as "3 min CPU in 10 min, 210 MB, last output 9 min ago". Old figures begin with their age."""
    age = max(0.0, now - use.at)
    begin, since = (f"{format_duration(age)} ago: ", "before") if age > OLD else ("", "ago")
    return f"{begin}{_cpu(use)}, {use.memory} MB, {_output(use, since)}"


def full_use(use: ShownUse, limit: int, now: float) -> str:
    """All figures and their age. `limit`: MB that the job may have; 0: there is no limit."""
    of = f" of {limit} MB" if limit else ""
    lately = f"lately {use.busy:.2f} cores"
    memory = f"{use.memory} MB of memory (at most {use.peak} MB{of})"
    return (
        f"{_cpu(use)} ({lately}), {memory}, {_output(use, 'before')};"
        f" measured {format_duration(max(0.0, now - use.at))} ago"
    )


def verdict(use: ShownUse) -> str:
    """Whether it works, as far as the figures tell."""
    if use.busy >= IDLE_CORES:
        return "it computes"
    if is_quiet(use):
        return "it neither computes nor writes, so it may be stuck"
    return "it hardly uses a processor, and may wait for something"


def is_quiet(use: ShownUse) -> bool:
    """Whether it has written nothing for long."""
    return _silence(use) >= QUIET


def may_be_stuck(use: ShownUse) -> bool:
    return use.busy < IDLE_CORES and is_quiet(use)


def _silence(use: ShownUse) -> float:
    return use.ran if use.output_at is None else max(0.0, use.at - use.output_at)


def _cpu(use: ShownUse) -> str:
    return f"{format_duration(use.cpu)} CPU in {format_duration(use.ran)}"


def _output(use: ShownUse, since: str) -> str:
    return (
        "no output yet" if use.output_at is None else f"last output {format_duration(_silence(use))} {since}"
    )
