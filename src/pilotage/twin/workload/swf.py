"""Reads the Standard Workload Format 2.2: 18 numbers a line, -1 for an unknown one, comments behind `;`.

A trace of ten million lines is read line by line; a job takes 56 bytes. Lines that are no usable job are counted by
their reason. Further columns behind the 18 are allowed and not read.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from io import BufferedReader
from pathlib import Path
from typing import Final

from pilotage.core.errors import InvalidInput
from pilotage.twin.workload.seen_numbers import SeenNumbers
from pilotage.twin.workload.trace_jobs import TraceJob, TraceJobs

ByteStream = gzip.GzipFile | BufferedReader

FIELDS: Final = 18
LONGEST_LINE: Final = 1024 * 1024
LARGEST_TIME: Final = 10**11
"""Seconds. Some traces tell times since 1970."""
LARGEST_COUNT: Final = 10**6
"""Processors of a job."""
LARGEST_MEMORY: Final = 10**9
"""MB of a job."""
LINES_NAMED: Final = 3
"""Line numbers that are kept for each reason."""
PROGRESS_LINES: Final = 100_000

_GZIP: Final = b"\x1f\x8b"
_HEADER: Final = re.compile(r";\s*([A-Za-z]+):\s*(.*?)\s*$")
_SWF_HINT: Final = "name a trace in the Standard Workload Format (.swf or .swf.gz)"
_CANCELLED, _PARTS = 5, (2, 3, 4)


class Unusable(StrEnum):
    """Why a line is not a job of the twin."""

    TOO_LONG = "the line has more than a million characters"
    MISSING_FIELDS = "the line has fewer than 18 fields"
    NOT_NUMBERS = "a field is not a number"
    OUT_OF_RANGE = "a number is too large"
    PART = "the line is a part of an interrupted job, and another line has the whole job"
    CANCELLED = "the job was cancelled before it started"
    NEGATIVE_SUBMIT = "the time of submission is negative"
    UNKNOWN_RUN = "the run time is unknown"
    NEGATIVE_RUN = "the run time is negative"
    ZERO_RUN = "the run time is 0"
    NO_PROCESSORS = "the number of processors is unknown or 0"
    REPEATED = "an earlier line has the same job number"


class MemoryUnit(StrEnum):
    """Meaning of the field of the requested memory."""

    SWF = "kb-per-processor"
    """The unit of the format."""
    BYTES = "bytes"
    """Bytes of the whole job, as some traces have it."""
    NONE = "none"
    """The field is not read."""


@dataclass(slots=True)
class LeftOut:
    """The lines that are no job, by their reason."""

    counts: dict[Unusable, int] = field(default_factory=dict)
    lines: dict[Unusable, list[int]] = field(default_factory=dict)
    """The first lines of each reason; lines count from 1."""

    def add(self, reason: Unusable, line: int) -> None:
        self.counts[reason] = self.counts.get(reason, 0) + 1
        named = self.lines.setdefault(reason, [])
        if len(named) < LINES_NAMED:
            named.append(line)

    def sentences(self) -> list[str]:
        """One sentence for each reason, the most frequent first."""
        ordered = sorted(self.counts.items(), key=lambda entry: -entry[1])
        return [f"{self._place(reason, count)}: {reason}" for reason, count in ordered]

    def _place(self, reason: Unusable, count: int) -> str:
        named = ", ".join(f"{line:,}" for line in self.lines[reason])
        if count == 1:
            return f"1 line ({named})"
        return f"{count:,} lines ({named}{', ...' if count > LINES_NAMED else ''})"


@dataclass(slots=True)
class SwfTrace:
    """A trace as it was read."""

    jobs: TraceJobs = field(default_factory=TraceJobs)
    left_out: LeftOut = field(default_factory=LeftOut)
    header: dict[str, str] = field(default_factory=dict)
    """The first value of each name in the comments."""
    lines: int = 0
    dependent: int = 0
    """Jobs that waited for another job in the trace. Here they do not."""

    @property
    def max_procs(self) -> int:
        """`MaxProcs` of the header; 0: the header does not tell it."""
        number = re.match(r"\d{1,9}", self.header.get("MaxProcs", ""))
        return int(number[0]) if number else 0


def read_swf(
    path: Path, memory: MemoryUnit = MemoryUnit.SWF, progress: Callable[[int], None] | None = None
) -> SwfTrace:
    """The jobs of a file, which may be compressed by gzip. `progress` is told the number of lines now and then.

    Raises `InvalidInput` if the file cannot be read or has no job.
    """
    trace = SwfTrace()
    with _opened(path) as stream:
        try:
            for job in swf_jobs(_bounded_lines(stream), trace, memory):
                trace.jobs.append(job)
                if progress is not None and len(trace.jobs) % PROGRESS_LINES == 0:
                    progress(trace.lines)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            raise InvalidInput(
                f"{path}: the compressed data is damaged or cut off after line {trace.lines:,}",
                hint="copy the file again, and test it with `gzip -t`",
            ) from None
    _check(path, trace)
    submits = trace.jobs.rows["submit"]
    submits -= submits.min()
    trace.jobs.sort()
    return trace


def swf_jobs(lines: Iterable[bytes], trace: SwfTrace, memory: MemoryUnit) -> Iterator[TraceJob]:
    """The usable jobs, with their times as they are. The header and the unusable lines go into `trace`."""
    seen = SeenNumbers()
    for line in lines:
        trace.lines += 1
        if line.startswith(b";"):
            if match := _HEADER.match(line[:LONGEST_LINE].decode("utf-8", "replace")):
                trace.header.setdefault(match[1], match[2])
            continue
        if not (fields := line.split(None, FIELDS)):
            continue
        job = Unusable.TOO_LONG if len(line) >= LONGEST_LINE else _job(fields, memory)
        if isinstance(job, TraceJob) and not seen.add(job.number):
            job = Unusable.REPEATED
        if isinstance(job, Unusable):
            trace.left_out.add(job, trace.lines)
        else:
            trace.dependent += not fields[16].startswith((b"-", b"0"))
            yield job


def _job(fields: list[bytes], unit: MemoryUnit) -> TraceJob | Unusable:
    """The job of a line, or the reason why it is none."""
    if len(fields) < FIELDS:
        return Unusable.MISSING_FIELDS
    try:
        number, submit, run = _number(fields[0]), _number(fields[1]), _number(fields[3])
        allocated, requested, wall = _number(fields[4]), _number(fields[7]), _number(fields[8])
        memory, status, owner, group = (_number(fields[place]) for place in (9, 10, 11, 12))
    except (ValueError, OverflowError):
        return Unusable.NOT_NUMBERS
    processors = requested if requested > 0 else allocated
    if (reason := _reason(submit, run, processors, status)) is not None:
        return reason
    megabytes = _megabytes(memory, processors, unit)
    times = max(submit, run, wall)
    if (
        times > LARGEST_TIME
        or processors > LARGEST_COUNT
        or megabytes > LARGEST_MEMORY
        or abs(number) > 2**62
    ):
        return Unusable.OUT_OF_RANGE
    return TraceJob(
        number=number,
        submit=float(submit),
        run=float(run),
        processors=processors,
        memory=megabytes,
        wall=float(max(wall, 0)),
        owner=f"user{owner}" if owner >= 0 else "user-unknown",
        group=f"group{group}" if group >= 0 else "group-unknown",
    )


def _reason(submit: int, run: int, processors: int, status: int) -> Unusable | None:
    if status in _PARTS:
        return Unusable.PART
    if status == _CANCELLED and run <= 0:
        return Unusable.CANCELLED
    if submit < 0:
        return Unusable.NEGATIVE_SUBMIT
    if run <= 0:
        return {-1: Unusable.UNKNOWN_RUN, 0: Unusable.ZERO_RUN}.get(run, Unusable.NEGATIVE_RUN)
    return Unusable.NO_PROCESSORS if processors <= 0 else None


def _number(text: bytes) -> int:
    """A whole number. A fraction, which the format allows for few fields, is cut off."""
    try:
        return int(text)
    except ValueError:
        return int(float(text))


def _megabytes(memory: int, processors: int, unit: MemoryUnit) -> int:
    """MB of the whole job, rounded up; 0: unknown."""
    if memory <= 0 or unit is MemoryUnit.NONE:
        return 0
    if unit is MemoryUnit.BYTES:
        return -(-memory // 2**20)
    return -(-memory * processors // 1024)


@contextmanager
def _opened(path: Path) -> Iterator[ByteStream]:
    """The text of the file. Compressed files are known by their first bytes, not by their name."""
    if "\0" in str(path):
        raise InvalidInput(f"cannot read {path}: the name has a NUL character")
    try:
        with path.open("rb") as raw:
            start = raw.read(2)
            raw.seek(0)
            if not start:
                raise InvalidInput(f"{path} is empty", hint=_SWF_HINT)
            with gzip.open(raw, "rb") if start == _GZIP else raw as text:
                yield text
    except FileNotFoundError:
        raise InvalidInput(f"there is no file {path}", hint=_SWF_HINT) from None
    except gzip.BadGzipFile:
        raise
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror or error}") from None


def _bounded_lines(stream: ByteStream) -> Iterator[bytes]:
    """The lines. The rest of a line that is too long is dropped."""
    while line := stream.readline(LONGEST_LINE):
        yield line
        while len(line) == LONGEST_LINE and not line.endswith(b"\n"):
            line = stream.readline(LONGEST_LINE)


def _check(path: Path, trace: SwfTrace) -> None:
    if len(trace.jobs):
        return
    reasons = trace.left_out.sentences()
    if not reasons:
        raise InvalidInput(f"{path} has no jobs, only comments or empty lines")
    hint = "a line of the Standard Workload Format has 18 numbers: job, submission, wait, run time, processors, ..."
    raise InvalidInput(f"no line of {path} is a usable job; {reasons[0]}", hint=hint)
