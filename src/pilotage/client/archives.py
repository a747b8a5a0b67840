"""Download of the outputs of many jobs from one tar stream.

The stream is read entry by entry and never extracted by tarfile: only regular files of requested jobs are written,
and only below the folder of their job. See ArchiveRequest in wire/outputs.py.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from pilotage import wire
from pilotage.client.downloads import TRIES, Download, output_path, partial_path
from pilotage.core.errors import InvalidInput, PilotageError, Unreachable

if TYPE_CHECKING:
    from pilotage.client.transport import Transport
    from pilotage.wire.outputs import ArchivedJob

FolderOf = Callable[[int], Path]
"""The folder for the outputs of a job."""

JOBS_PER_REQUEST = 10_000
CHUNK = 256 * 1024


def list_outputs(transport: Transport, jobs: Iterable[int]) -> Iterator[ArchivedJob]:
    """List the outputs of these jobs by ascending id, without contents. Invisible jobs are left out."""
    for piece in _batches(jobs):
        request = {"selection": {"ids": piece}, "names_only": True}
        with _open_archive(transport, request) as archive:
            for entry in _entries(archive):
                if entry.isdir():
                    yield _parse_archived_job(entry)


def fetch_outputs(
    transport: Transport, jobs: Iterable[int], place: FolderOf, force: bool
) -> Iterator[Download]:
    """Write the outputs of each job to the folder `place(job)`; yield one Download per complete job.

    A broken stream is reopened after the last complete job. Errors of one job are reported in its Download.
    """
    for piece in _batches(jobs):
        yield from _fetch_piece(transport, piece, place, force)


def _fetch_piece(transport: Transport, jobs: list[int], place: FolderOf, force: bool) -> Iterator[Download]:
    last, tries = 0, TRIES
    come: set[int] = set()
    while tries:
        tries -= 1
        request = {"selection": {"ids": jobs}, "after": last}
        try:
            with _open_archive(transport, request) as archive:
                for report in _unpack(archive, set(jobs) - come, place, force):
                    last, tries = report.job, TRIES
                    come.add(report.job)
                    yield report
            break
        except Unreachable:
            if not tries:
                raise
    for job in jobs:
        if job not in come:
            yield Download(job, place(job), failed={"": "the job no longer exists"})


def _unpack(archive: tarfile.TarFile, jobs: set[int], place: FolderOf, force: bool) -> Iterator[Download]:
    unpacking: _JobUnpacker | None = None
    for entry in _entries(archive):
        job, name = _parse_entry_name(entry, jobs)
        if unpacking is None or unpacking.report.job != job:
            unpacking = _JobUnpacker(Download(job, place(job)), force)
        if entry.isdir():
            for lost in _parse_archived_job(entry).lost:
                _discard_lost(unpacking.report, lost)
            yield unpacking.report
            unpacking = None
            continue
        source = archive.extractfile(entry)
        assert source is not None
        unpacking.write(name, source)


class _JobUnpacker:
    """Writes the outputs of one job to its folder."""

    def __init__(self, report: Download, force: bool) -> None:
        self.report = report
        self._force = force
        self._folders: set[Path] = set()
        """Created folders, known to be below the folder of the job."""

    def write(self, name: str, source: IO[bytes]) -> None:
        """Write one file completely or not at all; errors go to the report."""
        try:
            target = output_path(self.report.folder, name, self._folders)
            if os.path.lexists(target):
                if not self._force:
                    self.report.kept.append(target)
                    return
                if target.is_dir() and not target.is_symlink():
                    raise InvalidInput(f"{target} is a folder; the output of this name cannot be written")
            if target.parent not in self._folders:
                target.parent.mkdir(parents=True, exist_ok=True)
                self._folders.add(target.parent)
            _copy(source, target)
        except OSError as trouble:
            self.report.failed[name] = f"cannot write it: {trouble.strerror or trouble}"
        except InvalidInput as error:
            self.report.failed[name] = error.message
        else:
            self.report.written.append(target)


def _copy(source: IO[bytes], target: Path) -> None:
    partial = partial_path(target)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    with open(os.open(partial, flags, 0o666), "wb", buffering=0) as file:
        try:
            while piece := source.read(CHUNK):
                _write_all(file, piece)
            os.replace(partial, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(partial)
            raise


def _write_all(file: io.FileIO, piece: bytes) -> None:
    rest = memoryview(piece)
    while rest:
        rest = rest[file.write(rest) :]


def _discard_lost(report: Download, name: str) -> None:
    """Remove a file that the server could not read to the end."""
    target = output_path(report.folder, name)
    if target in report.written:
        report.written.remove(target)
        target.unlink(missing_ok=True)
    report.failed[name] = "the server could not read it"


def _batches(jobs: Iterable[int]) -> Iterator[list[int]]:
    ids = sorted(set(jobs))
    for start in range(0, len(ids), JOBS_PER_REQUEST):
        yield ids[start : start + JOBS_PER_REQUEST]


def _parse_entry_name(entry: tarfile.TarInfo, jobs: set[int]) -> tuple[int, str]:
    """(job, output name) of an entry; raises PilotageError for an entry that was not requested."""
    first, _, name = entry.name.partition("/")
    known = first.isascii() and first.isdigit() and int(first) in jobs
    if not known or not (entry.type == tarfile.REGTYPE if name else entry.isdir()):
        raise PilotageError(
            f"the server's answer has {entry.name[:80]!r}, which was not requested; the download stops"
        )
    return int(first), name


def _parse_archived_job(entry: tarfile.TarInfo) -> ArchivedJob:
    try:
        content = json.loads(entry.pax_headers[wire.outputs.ARCHIVE_OUTPUTS])
        outputs = [
            wire.jobs.OutputFile(str(output["name"]), int(output["size"])) for output in content["outputs"]
        ]
        return wire.outputs.ArchivedJob(
            int(content["id"]), str(content["state"]), outputs, [str(name) for name in content["lost"]]
        )
    except (KeyError, ValueError, TypeError) as trouble:
        raise PilotageError(
            "the server's answer is not understood", hint="is it of this version?"
        ) from trouble


def _entries(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    try:
        while (entry := archive.next()) is not None:
            yield entry
            archive.members = []  # type: ignore[attr-defined]  # tarfile keeps every entry in memory otherwise
    except (tarfile.TarError, ValueError) as trouble:
        raise Unreachable(f"the stream of outputs broke: {trouble}") from trouble


@contextmanager
def _open_archive(transport: Transport, request: Mapping[str, object]) -> Iterator[tarfile.TarFile]:
    with transport.stream(wire.outputs.READ_OUTPUTS, request) as answer:
        try:
            with tarfile.open(
                fileobj=cast(IO[bytes], answer),
                mode="r|",
                bufsize=CHUNK,
                encoding="utf-8",
                errors="surrogateescape",
            ) as archive:
                yield archive
        except tarfile.TarError as trouble:
            raise Unreachable(f"the stream of outputs broke: {trouble}") from trouble
