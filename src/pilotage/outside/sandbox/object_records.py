"""Records of the files of sandboxes that lie in an S3 service: small files at the paths that the files would have.

A record is begun before the first byte is sent, so the removal of a job finds also objects that were never completed.
It is complete when the service has confirmed the object, and never changes then.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pilotage.core.errors import Conflict, InvalidInput, NotFound
from pilotage.outside.sandbox.file_errors import NAME_ERRORS, disk_errors, force_folder


class ObjectRecord(NamedTuple):
    """A file of a sandbox in an S3 service."""

    url: str
    """s3://HOST/BUCKET/KEY"""
    size: int = 0
    etag: str = ""
    """The mark of its contents that the service has given; empty: it is not complete."""


class ObjectRecords:
    """The records of one folder of sandboxes. Paths are relative to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def begin(self, path: Path, url: str) -> None:
        """Note that an object is about to be written. A record that is there stays."""
        target = self.folder / path
        if not target.exists():
            self._write(target, ObjectRecord(url), durable=False)

    def complete(self, path: Path, size: int, etag: str) -> None:
        """Note that the object is there. Raises `Conflict` if it was completed with other contents."""
        record = self._read(path)
        if record is None:
            raise NotFound(
                f"no address was given for {path.name[:80]!r}", hint="ask for one before it is sent"
            )
        if not record.etag:
            self._write(self.folder / path, ObjectRecord(record.url, size, etag), durable=True)
        elif (record.size, record.etag) != (size, etag):
            raise Conflict(f"{path.name[:80]!r} is stored with other bytes", hint="what is stored stays")

    def begun(self, path: Path) -> ObjectRecord | None:
        """The record of an object, complete or not."""
        return self._read(path)

    def find(self, path: Path) -> ObjectRecord | None:
        """The record of an object that is complete."""
        record = self._read(path)
        return record if record is not None and record.etag else None

    def below(self, path: Path) -> Iterator[tuple[Path, ObjectRecord]]:
        """(path below `path`, record) of all objects in a folder, complete or not."""
        folder = self.folder / path
        for file in folder.rglob("*") if folder.is_dir() else ():
            if file.is_file() and (record := self._read(file.relative_to(self.folder))) is not None:
                yield file.relative_to(folder), record

    def move(self, path: Path, to: Path) -> None:
        """Let a record have another path, in place of the record there. A record that is gone stays gone."""
        target = self.folder / to
        with disk_errors(), contextlib.suppress(FileNotFoundError):
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.replace(self.folder / path, target)
            force_folder(target.parent)

    def delete(self, path: Path) -> None:
        """Delete the record of an object that is gone."""
        (self.folder / path).unlink(missing_ok=True)

    def remove(self, path: Path) -> None:
        """Remove the records of a folder, whose objects are gone."""
        shutil.rmtree(self.folder / path, ignore_errors=True)

    def _read(self, path: Path) -> ObjectRecord | None:
        try:
            return ObjectRecord(*json.loads((self.folder / path).read_bytes()))
        except OSError:
            return None

    def _write(self, target: Path, record: ObjectRecord, *, durable: bool) -> None:
        try:
            with disk_errors():
                target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                partial = self.folder / "partial"
                partial.mkdir(exist_ok=True, mode=0o700)
                handle, made = tempfile.mkstemp(dir=partial)
                try:
                    with os.fdopen(handle, "w") as file:
                        json.dump(record, file)
                        file.flush()
                        if durable:
                            os.fsync(file.fileno())
                    os.replace(made, target)
                finally:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(made)
                if durable:
                    force_folder(target.parent)
        except OSError as error:
            if error.errno not in NAME_ERRORS:
                raise
            raise InvalidInput(f"{target.name[:80]!r} cannot be stored: {error.strerror}") from None
