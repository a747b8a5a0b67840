"""The outputs of many jobs as one tar stream, with bounded memory.

For each job, by rising id: its files as `<job>/<name>`, then the folder `<job>/`. The extended header OUTPUTS of the
folder holds the JSON of an ArchivedJob. A reader that has received the folder has the whole job; after a broken
stream it asks again for the jobs after the last complete one.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

from pilotage.core.errors import PilotageError
from pilotage.core.ids import JobId
from pilotage.outside.sandbox.directory import DirectorySandbox
from pilotage.outside.sandbox.object_records import ObjectRecord
from pilotage.server.http.stored_outputs import has_applied_result, inline_streams, listed_outputs
from pilotage.store.engine.connection import Readers
from pilotage.store.tables import attempts, listing
from pilotage.store.tables.listing import JobFacts
from pilotage.store.tables.selections import JobSelection, Viewer
from pilotage.wire.jobs import OutputFile
from pilotage.wire.outputs import ARCHIVE_OUTPUTS, ArchivedJob

JOBS_PER_PAGE = 100
"""Jobs read from the store per page, with their standard output and error in memory."""
CHUNK = 256 * 1024
BLOCK = tarfile.BLOCKSIZE


@dataclass
class _Job:
    id: int
    facts: JobFacts
    inline: dict[str, bytes]
    outputs: list[OutputFile]
    lost: list[str]
    """Files that the pilot has stored and that are missing now."""


@dataclass(frozen=True)
class OutputArchive:
    """The jobs of `selection` above `after` that `viewer` may see; without file contents if `names_only`."""

    readers: Readers
    sandbox: DirectorySandbox
    viewer: Viewer
    selection: JobSelection
    read_object: Callable[[ObjectRecord], Iterator[bytes]]
    """The bytes of an output in an S3 service. Raises PilotageError."""
    after: int = 0
    names_only: bool = False

    def chunks(self) -> Iterator[bytes]:
        """Yield the stream in pieces of about CHUNK bytes."""
        buffer = bytearray()
        for piece in self._pieces():
            buffer += piece
            if len(buffer) >= CHUNK:
                yield bytes(buffer)
                buffer.clear()
        yield bytes(buffer + bytes(2 * BLOCK))

    def _pieces(self) -> Iterator[bytes]:
        after = self.after
        while ids := self._ids(after):
            for job in self._load(ids):
                lost = list(job.lost)
                if not self.names_only:
                    for output in job.outputs:
                        yield from self._file_entry(job, output, lost)
                yield _folder_entry(job, lost)
            after = ids[-1]

    def _ids(self, after: int) -> list[int]:
        connection = self.readers.connection()
        return listing.job_ids(connection, self.selection, self.viewer, after, JOBS_PER_PAGE)

    def _load(self, ids: list[int]) -> list[_Job]:
        """Load these jobs. Each call asks for a connection, since each piece may be made by another thread."""
        connection = self.readers.connection()
        facts = listing.facts_of_jobs(connection, ids)
        epochs = {id_: facts[id_].finished_epoch for id_ in ids if id_ in facts}
        results = attempts.results_of(connection, {JobId(id_): epoch for id_, epoch in epochs.items()})
        jobs = []
        for id_ in epochs:
            result = results.get(JobId(id_))
            inline = inline_streams(facts[id_], id_, result)
            outputs = listed_outputs(self.sandbox, facts[id_], id_, result)
            names = {output.name for output in outputs}
            stored = result.outputs if result is not None and has_applied_result(facts[id_]) else []
            lost = [name for name, _ in stored if name not in names]
            jobs.append(_Job(id_, facts[id_], inline, outputs, lost))
        return jobs

    def _file_entry(self, job: _Job, output: OutputFile, lost: list[str]) -> Iterator[bytes]:
        """Yield one file. If it cannot be read to its end, it is added to `lost` and padded with zeros."""
        inline = job.inline.get(output.name)
        if inline is not None:
            yield _file_header(job.id, output.name, len(inline)) + inline + _padding(len(inline))
            return
        try:
            path = self.sandbox.open_output(job.id, job.facts.finished_epoch, output.name)
            if isinstance(path, ObjectRecord):
                yield _file_header(job.id, output.name, path.size)
                yield from self._contents_of(path, output.name, lost)
                yield _padding(path.size)
                return
            with path.open("rb", buffering=0) as file:
                size = os.fstat(file.fileno()).st_size
                yield _file_header(job.id, output.name, size)
                yield from _contents(file, size, output.name, lost)
                yield _padding(size)
        except (OSError, PilotageError):
            lost.append(output.name)

    def _contents_of(self, record: ObjectRecord, name: str, lost: list[str]) -> Iterator[bytes]:
        remaining = record.size
        try:
            for piece in self.read_object(record):
                remaining -= len(piece)
                yield piece
        except PilotageError:
            pass
        if remaining:
            lost.append(name)
            yield from _zeros(remaining)


def _contents(file: io.RawIOBase | io.FileIO, size: int, name: str, lost: list[str]) -> Iterator[bytes]:
    remaining = size
    while remaining:
        try:
            piece = file.read(min(CHUNK, remaining)) or b""
        except OSError:
            piece = b""
        if not piece:
            lost.append(name)
            break
        remaining -= len(piece)
        yield piece
    yield from _zeros(remaining)


def _zeros(size: int) -> Iterator[bytes]:
    for begin in range(0, size, CHUNK):
        yield bytes(min(CHUNK, size - begin))


def _file_header(job: int, name: str, size: int) -> bytes:
    entry = tarfile.TarInfo(f"{job}/{name}")
    entry.size, entry.mode = size, 0o644
    return entry.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _folder_entry(job: _Job, lost: list[str]) -> bytes:
    entry = tarfile.TarInfo(f"{job.id}/")
    entry.type, entry.mode = tarfile.DIRTYPE, 0o755
    summary = ArchivedJob(job.id, str(job.facts.state), job.outputs, lost)
    # ASCII only, so that names that are not UTF-8 can be represented.
    entry.pax_headers = {ARCHIVE_OUTPUTS: json.dumps(asdict(summary))}
    return entry.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _padding(size: int) -> bytes:
    return bytes(-size % BLOCK)
