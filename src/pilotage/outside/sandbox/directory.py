"""Sandboxes as files below one folder: inputs by content, outputs by (job, epoch).

A file appears under its name only when it is whole and its bytes are on the disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import hashlib
import math
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pilotage.core.errors import Conflict, InvalidInput, NotFound, TooLarge, Unreachable
from pilotage.outside.sandbox.file_errors import NAME_ERRORS, disk_errors, force_folder
from pilotage.outside.sandbox.input_objects import InputObjects
from pilotage.outside.sandbox.object_records import ObjectRecord, ObjectRecords

_DIGEST = re.compile(r"[0-9a-f]{64}")
MAX_NAME = 255
"""Bytes of the name of a file or folder, as file systems have it."""
MAX_PATH = 3000
"""Bytes of the name of an output with its folders. Linux takes 4096 of a whole path."""
MOST_TAIL = 2**40
"""Bytes that the tail of a running job may have."""
FEW = 4
"""Up to this number, paths are forced to the disk one by one."""


def _sync_together(folder: Path, paths: Sequence[Path]) -> None:
    """Force files or folders that lie in `folder` to the disk.

    One syncfs takes a tenth of the time of an fsync for each of 250 files.
    """
    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None) if len(paths) > FEW else None
    for path in [folder] if syncfs is not None else paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            if syncfs is None:
                os.fsync(handle)
            elif syncfs(handle) != 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), str(path))
        finally:
            os.close(handle)


class DirectorySandbox:
    """The sandbox store of one home."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._inputs = folder / "inputs"
        self._outputs = folder / "outputs"
        self._tails = folder / "tails"
        self._partial = folder / "partial"
        self.objects = ObjectRecords(folder / "objects")
        """The records of files that lie in S3 services, by the paths that they would have here."""
        self.input_objects = InputObjects(self.objects)
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._make_folders()
        self._mark = self._read_mark(secrets.token_hex(8))

    def _make_folders(self) -> None:
        for path in (self._inputs, self._outputs, self._tails, self._partial):
            path.mkdir(exist_ok=True, mode=0o700)

    def _read_mark(self, new: str) -> str:
        """The mark of the folder: `new` if it has none."""
        path = self.folder / ".mark"
        if not path.exists():
            made = self._partial / f"mark.{os.getpid()}"
            made.write_text(new)
            # Of two servers that begin at once one makes it.
            with contextlib.suppress(FileExistsError):
                os.link(made, path)
            made.unlink()
        return path.read_text()

    @property
    def mark(self) -> str:
        """An identifier of this folder, the same wherever it is mounted."""
        return self._mark

    def restore(self) -> None:
        """Make the folders again if somebody has removed them. Files that were in them are lost.

        Raises `Unreachable` if the folder itself is there without its mark: its file system may not be mounted, and
        files would be hidden below the mount point.
        """
        if self._partial.is_dir():
            return
        try:
            self.folder.mkdir(mode=0o700)
        except OSError:
            if not (self.folder / ".mark").exists():
                raise Unreachable(
                    f"the folder of the server's sandboxes cannot be used: {self.folder}",
                    hint="mount its file system, or make its parent folder, on the server's machine",
                ) from None
        self._make_folders()
        self._read_mark(self._mark)

    # --- inputs

    def input_path(self, digest: str) -> Path:
        if not _DIGEST.fullmatch(digest):
            raise InvalidInput(f"{digest[:80]!r} is no SHA-256 in hexadecimal")
        return self._inputs / digest[:2] / digest

    async def put_input(self, digest: str, chunks: AsyncIterator[bytes], most: int) -> int:
        """Store bytes under their digest; their number."""
        path = self.input_path(digest)
        self.restore()
        with disk_errors():
            partial, size, received = await self._receive(chunks, most)
        if received != digest:
            partial.unlink()
            raise InvalidInput(
                f"the bytes have digest {received}, not {digest}", hint="the file changed: send it again"
            )
        self._place(partial, path)
        return size

    def put_inputs(self, files: Sequence[tuple[str, bytes]]) -> None:
        """Store small files under their digests; they are forced to the disk together."""
        for digest, data in files:
            actual = hashlib.sha256(data).hexdigest()
            if actual != digest:
                raise InvalidInput(
                    f"the bytes have digest {actual}, not {digest}", hint="the file changed: send it again"
                )
        self.restore()
        with disk_errors(), contextlib.ExitStack() as cleared:
            written: list[tuple[Path, Path]] = []
            for digest, data in files:
                handle, name = tempfile.mkstemp(dir=self._partial)
                cleared.callback(Path(name).unlink, missing_ok=True)
                with os.fdopen(handle, "wb") as file:
                    file.write(data)
                written.append((Path(name), self.input_path(digest)))
            _sync_together(self._partial, [partial for partial, _ in written])
            for partial, path in written:
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                partial.replace(path)
            _sync_together(self._inputs, list({path.parent for _, path in written}))

    # --- outputs

    def output_folder(self, job: int, epoch: int) -> Path:
        return self._outputs / f"{job // 1000}" / str(job) / str(epoch)

    def output_path(self, job: int, epoch: int, name: str) -> Path:
        """Where an output lies. Names are relative and stay inside."""
        parts = name.split("/")
        if not name or "\0" in name or any(part in ("", ".", "..") for part in parts):
            raise InvalidInput(f"{name[:80]!r} is no name of an output file")
        sizes = [len(part.encode("utf-8", "surrogatepass")) for part in parts]
        if max(sizes) > MAX_NAME or sum(sizes) + len(sizes) > MAX_PATH:
            raise InvalidInput(f"{name[:80]!r} is too long for the name of an output file")
        return self.output_folder(job, epoch).joinpath(*parts)

    async def put_output(
        self, job: int, epoch: int, name: str, chunks: AsyncIterator[bytes], most: int
    ) -> int:
        """Store an output; its size. A stored file stays: other bytes under its name raise Conflict.

        So a late upload cannot change a file that a finish has named.
        """
        path = self.output_path(job, epoch, name)
        self.restore()
        with disk_errors():
            partial, size, digest = await self._receive(chunks, most)
        if not self._place_once(partial, path):
            await asyncio.to_thread(self._check_same, path, size, digest)
        return size

    async def compare_output(
        self, job: int, epoch: int, name: str, chunks: AsyncIterator[bytes], most: int
    ) -> None:
        """Raise Conflict unless exactly these bytes are stored under the name; store nothing."""
        path = self.output_path(job, epoch, name)
        if not path.is_file():
            raise Conflict(f"try {epoch} of job {job} is over: {name[:80]!r} is not taken any more")
        with disk_errors():
            partial, size, digest = await self._receive(chunks, most)
        partial.unlink()
        await asyncio.to_thread(self._check_same, path, size, digest)

    @staticmethod
    def _check_same(path: Path, size: int, digest: str) -> None:
        try:
            with path.open("rb") as file:
                same = os.fstat(file.fileno()).st_size == size
                same = same and hashlib.file_digest(file, "sha256").hexdigest() == digest
        except OSError as error:
            raise InvalidInput(f"{path.name[:80]!r} cannot be stored: {error.strerror}") from None
        if not same:
            raise Conflict(
                f"the output {path.name[:80]!r} is stored with other bytes", hint="what is stored stays"
            )

    def outputs(self, job: int, epoch: int) -> list[tuple[str, int]]:
        """(name, bytes) of each file that was uploaded for one try, here or to an S3 service."""
        folder = self.output_folder(job, epoch)
        sent = self.objects.below(self._relative(folder))
        sizes = {str(name): record.size for name, record in sent if record.etag}
        files = [path for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []
        sizes |= {str(path.relative_to(folder)): path.stat().st_size for path in files}
        return sorted(sizes.items())

    def open_output(self, job: int, epoch: int, name: str) -> Path | ObjectRecord:
        """Where the bytes of an output are. Raises NotFound."""
        path = self.output_path(job, epoch, name)
        if path.is_file():
            return path
        if (record := self.objects.find(self._relative(path))) is not None:
            return record
        raise NotFound(f"job {job} has no output {name}")

    def output_record(self, job: int, epoch: int, name: str) -> Path:
        """The path of the record of an output in `objects`."""
        return self._relative(self.output_path(job, epoch, name))

    def objects_of(self, job: int, up_to: float = math.inf) -> list[ObjectRecord]:
        """The objects of tries up to the epoch `up_to`, complete or not."""
        folder = self._relative(self.output_folder(job, 0).parent)
        return [record for path, record in self.objects.below(folder) if int(path.parts[0]) <= up_to]

    def _relative(self, path: Path) -> Path:
        return path.relative_to(self.folder)

    def delete_outputs(self, job: int) -> None:
        """Delete the files of a job, and the records of its objects."""
        folder = self.output_folder(job, 0).parent
        shutil.rmtree(folder, ignore_errors=True)
        self.objects.remove(self._relative(folder))

    def delete_tries(self, job: int, epoch: int) -> None:
        """Delete the files of tries up to `epoch`, and the records of their objects; a later one may be under way."""
        folder = self.output_folder(job, 0).parent
        for tries in (folder, self.objects.folder / self._relative(folder)):
            for part in tries.iterdir() if tries.is_dir() else ():
                if part.name.isdigit() and int(part.name) <= epoch:
                    shutil.rmtree(part, ignore_errors=True)
        tails = self._tails / str(job)
        for part in tails.iterdir() if tails.is_dir() else ():
            if part.stem.isdigit() and int(part.stem) <= epoch:
                part.unlink(missing_ok=True)

    # --- tails of running jobs: files that are overwritten, never rows

    def append_tail(self, job: int, epoch: int, stream: str, offset: int, data: bytes) -> None:
        """Write output of a running job at its place in the stream."""
        if offset + len(data) > MOST_TAIL:
            raise TooLarge(f"the tail goes beyond {MOST_TAIL:,} bytes", hint="upload it as an output")
        path = self._tail_path(job, epoch, stream)
        self.restore()
        with disk_errors():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with path.open("r+b" if path.exists() else "w+b") as file:
                file.seek(offset)
                file.write(data)

    def read_tail(self, job: int, epoch: int, stream: str, offset: int, most: int) -> bytes:
        path = self._tail_path(job, epoch, stream)
        """At most `most` bytes from `offset` on; none beyond the end."""
        return self.read_piece(path, offset, most) if path.exists() else b""

    @staticmethod
    def read_piece(path: Path, offset: int, most: int) -> bytes:
        """At most `most` bytes of a file from `offset` on; none beyond its end."""
        with path.open("rb") as file:
            if offset >= os.fstat(file.fileno()).st_size:
                return b""  # No file system could even be asked for every number.
            file.seek(offset)
            return file.read(most)

    def delete_tails(self, job: int) -> None:
        shutil.rmtree(self._tails / str(job), ignore_errors=True)

    def _tail_path(self, job: int, epoch: int, stream: str) -> Path:
        return self._tails / str(job) / f"{epoch}.{stream}"

    # --- files

    async def _receive(self, chunks: AsyncIterator[bytes], most: int) -> tuple[Path, int, str]:
        handle, name = tempfile.mkstemp(dir=self._partial)
        digest, size = hashlib.sha256(), 0
        try:
            with os.fdopen(handle, "wb") as file:
                async for chunk in chunks:
                    size += len(chunk)
                    if size > most:
                        raise TooLarge(
                            f"the file has more than {most} bytes", hint="jobs.max_input_file in the policy"
                        )
                    digest.update(chunk)
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            os.unlink(name)
            raise
        return Path(name), size, digest.hexdigest()

    @classmethod
    def _place(cls, partial: Path, path: Path) -> None:
        """Give a received file its name, in place of an earlier one."""
        with cls._placing(partial, path):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            partial.replace(path)
        force_folder(path.parent)

    @classmethod
    def _place_once(cls, partial: Path, path: Path) -> bool:
        """Give a received file its name unless the name is taken; whether it was free."""
        with cls._placing(partial, path):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                os.link(partial, path)
            except FileExistsError:
                return False
        force_folder(path.parent)
        return True

    @staticmethod
    @contextmanager
    def _placing(partial: Path, path: Path) -> Iterator[None]:
        try:
            with disk_errors():
                yield
        except OSError as error:
            if error.errno not in NAME_ERRORS:
                raise  # a fault of this server or its disk: the sender tries again
            raise InvalidInput(f"{path.name[:80]!r} cannot be stored: {error.strerror}") from None
        finally:
            partial.unlink(missing_ok=True)
