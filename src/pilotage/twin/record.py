"""The record of a server's own work: JSON Lines, compressed by gzip. A header, then a line for each job.

Its CEs and its policy are the documents that `--ces` and `--policy` take, so each is checked by its own reader.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, BinaryIO, Final

import msgspec

from pilotage.core.errors import InvalidInput
from pilotage.core.plurals import plural
from pilotage.twin.ces import TwinCe
from pilotage.twin.ces_file import parse_ces
from pilotage.twin.workload import TraceJob, TraceJobs

FORMAT: Final = "pilotage-record"
VERSION: Final = 1
LONGEST_LINE: Final = 8 * 1024 * 1024
"""Bytes. The header has a whole policy."""
_HINT: Final = "write one with `pilotage twin record --out FILE`"

_Count = Annotated[int, msgspec.Meta(ge=0, le=10**9)]
_Time = Annotated[float, msgspec.Meta(ge=0, le=10**11)]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]


class RecordHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The first line."""

    format: str = FORMAT
    version: int = VERSION
    begin: _Time
    """The period, in seconds since 1970."""
    end: _Time
    whole_since: _Time = 0.0
    """Jobs that ended before may be missing; 0: none is."""
    named: bool
    """Whether owners and groups have their names."""
    policy_version: _Count = 0
    """The version of the policy in force."""
    policy: str
    """The policy in force; without names one that has its shares."""
    ces: str
    jobs: _Count
    """The number of lines that follow."""
    left_out: dict[str, _Count] = {}
    """Number of jobs of the period that are not here, by the reason."""
    remarks: tuple[str, ...] = ()
    """Sentences about further things that are missing."""


class _JobLine(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    submit: _Time
    """Seconds from the begin of the period."""
    run: Annotated[float, msgspec.Meta(gt=0, le=10**11)]
    processors: Annotated[int, msgspec.Meta(ge=1, le=10**6)]
    memory: _Count
    wall: _Time
    owner: _Name
    group: _Name
    cpu: _Time = 0.0


class _RecordFormat(msgspec.Struct):
    format: str = ""
    version: int = 0


@dataclass(frozen=True, slots=True)
class WorkRecord:
    """The jobs that came to a server in a period, its CEs, and its policy."""

    header: RecordHeader
    jobs: TraceJobs
    """Their times count from the begin of the period."""
    ces: tuple[TwinCe, ...]

    @property
    def notes(self) -> Iterator[str]:
        """Sentences about the jobs and CEs that the record does not have."""
        for reason, count in self.header.left_out.items():
            if count:
                yield f"{plural(count, 'job')} left out: {reason}"
        if self.header.whole_since > self.header.begin:
            late = (self.header.whole_since - self.header.begin) / 86400
            yield f"jobs that ended in the first {late:.1f} days of the period may be deleted; later ones are whole"
        yield from self.header.remarks


def write_record(record: WorkRecord, path: Path) -> None:
    """Write a new file, which only its owner can read. An existing one is not replaced."""
    encode = msgspec.json.Encoder().encode
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as text:
            text.write(encode(record.header) + b"\n")
            for job in record.jobs:
                row = (job.submit, job.run, job.processors, job.memory, job.wall)
                line = _JobLine(*row, job.owner, job.group, job.cpu)
                text.write(encode(line) + b"\n")
    except FileExistsError:
        raise InvalidInput(f"{path} exists already", hint="name another file") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidInput(f"cannot write {path}: {reason}") from None


def read_record(path: Path) -> WorkRecord:
    """The record in a file. Raises `InvalidInput` for all that is no whole record of this version."""
    try:
        with gzip.open(path, "rb") as text:
            return _read(path, text)
    except FileNotFoundError:
        raise InvalidInput(f"there is no file {path}", hint=_HINT) from None
    except gzip.BadGzipFile:
        raise InvalidInput(f"{path} is no record: it is not compressed by gzip", hint=_HINT) from None
    except (EOFError, zlib.error):
        raise InvalidInput(f"{path}: the compressed data is damaged or cut off", hint=_HINT) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidInput(f"cannot read {path}: {reason}") from None


def _read(path: Path, text: BinaryIO | gzip.GzipFile) -> WorkRecord:
    header = _header(path, text.readline(LONGEST_LINE))
    try:
        # A server without jobs in the period may have had no pilots either.
        ces = parse_ces(header.ces) if header.jobs else ()
    except InvalidInput as error:
        raise InvalidInput(f"{path}: its CEs cannot be read: {error.message}", hint=_HINT) from None
    jobs, decoder = TraceJobs(), msgspec.json.Decoder(_JobLine)
    for number, line in enumerate(iter(lambda: text.readline(LONGEST_LINE), b""), 2):
        try:
            job = decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidInput(f"{path}, line {number:,} is no job: {error}", hint=_HINT) from None
        row = (job.submit, job.run, job.processors, job.memory, job.wall)
        jobs.append(TraceJob(number - 1, *row, job.owner, job.group, job.cpu))
    if len(jobs) != header.jobs:
        raise InvalidInput(f"{path} has {len(jobs):,} of its {header.jobs:,} jobs", hint=_HINT)
    jobs.sort()
    return WorkRecord(header, jobs, ces)


def _header(path: Path, line: bytes) -> RecordHeader:
    try:
        kind = msgspec.json.decode(line, type=_RecordFormat)
        if kind.format != FORMAT:
            raise InvalidInput(f"{path} is no record of a server's work", hint=_HINT)
        if kind.version != VERSION:
            raise InvalidInput(
                f"{path} is a record of version {kind.version}, and this program reads version {VERSION}",
                hint="record again with this program",
            )
        return msgspec.json.decode(line, type=RecordHeader)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} is no record of a server's work: {error}", hint=_HINT) from None
