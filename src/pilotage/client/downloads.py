"""Download of job outputs to local files, never outside the given folder."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Container
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from pilotage import wire
from pilotage.core.errors import InvalidInput, PilotageError, Unreachable

if TYPE_CHECKING:
    from pilotage.client.transport import Transport
    from pilotage.wire.jobs import OutputFile

TRIES = 3


@dataclass
class Download:
    """Result of downloading the outputs of one job."""

    job: int
    folder: Path
    written: list[Path] = field(default_factory=list)
    kept: list[Path] = field(default_factory=list)
    """Existing files that were not changed."""
    failed: dict[str, str] = field(default_factory=dict)
    """Reason by output name; only from `download_many`, where one failure does not stop the others."""


def output_path(folder: Path, name: str, known: Container[Path] = ()) -> Path:
    """The local path of the output `name`. Raises InvalidInput if the name or a link leads out of `folder`.

    `known`: folders that were checked before.
    """
    pure = PurePosixPath(name)
    if not pure.parts or "\0" in name or pure.is_absolute() or ".." in pure.parts:
        raise InvalidInput(f"the output name {name!r} leads out of {folder}; it is not written")
    target = folder.joinpath(*pure.parts)
    if target.parent not in known and not target.parent.resolve().is_relative_to(folder.resolve()):
        raise InvalidInput(f"{target.parent} leads out of {folder} by a link; nothing is written there")
    return target


def partial_path(target: Path) -> Path:
    """Temporary path for a file until it is complete."""
    digest = hashlib.sha256(os.fsencode(target.name)).hexdigest()[:16]
    return target.with_name(f".{digest}.{os.getpid()}.partial")


def fetch(transport: Transport, job: int, outputs: list[OutputFile], folder: Path, force: bool) -> Download:
    """Write all outputs of a job below `folder`. Each file appears atomically."""
    report = Download(job, folder)
    for output in outputs:
        target = output_path(folder, output.name)
        if os.path.lexists(target) and not force:
            report.kept.append(target)
            continue
        if target.is_dir() and not target.is_symlink():
            raise InvalidInput(f"{target} is a folder; the output of this name cannot be written")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            _fetch_one(transport, job, output, target)
        except OSError as trouble:
            raise InvalidInput(f"cannot write {target}: {trouble.strerror or trouble}") from trouble
        report.written.append(target)
    return report


def _fetch_one(transport: Transport, job: int, output: OutputFile, target: Path) -> None:
    partial = partial_path(target)
    try:
        for left in reversed(range(TRIES)):
            try:
                size = _stream_to(transport, job, output.name, partial)
            except Unreachable:
                if not left:
                    raise
                continue
            if size == output.size:
                os.replace(partial, target)
                return
        raise PilotageError(
            f"job {job}: {output.name} came with {size} of {output.size} bytes", hint="try again later"
        )
    finally:
        partial.unlink(missing_ok=True)


def _stream_to(transport: Transport, job: int, name: str, partial: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    with (
        transport.stream(wire.jobs.READ_OUTPUT, job=job, name=name) as response,
        os.fdopen(os.open(partial, flags, 0o666), "wb") as file,
    ):
        for chunk in response.pieces():
            file.write(chunk)
        return file.tell()
