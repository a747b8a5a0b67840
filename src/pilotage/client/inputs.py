"""Local input files and folders: hashing, and upload of the content that the server lacks."""

from __future__ import annotations

import hashlib
import os
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from pilotage import wire
from pilotage.client.transport import Transport
from pilotage.core.errors import InvalidInput, TooLarge

if TYPE_CHECKING:
    from pilotage.client.storage_upload import StorageUpload
    from pilotage.wire.submissions import UploadedInput
    from pilotage.wire.uploads import MissingUploads

MAX_FILES = 10_000
MAX_BYTES = 2 * 1024**3
UPLOAD_THREADS = 4
CHUNK = 1024 * 1024

LARGE_HINT = (
    "let the job read large data where it lies: an input `shared:/path` on a shared file system, or a URL"
)

Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes in all), from any thread."""


@dataclass(frozen=True)
class LocalFile:
    """One file to be sent, `name` as the payload will see it."""

    name: str
    path: Path
    size: int
    digest: str
    executable: bool

    def uploaded(self) -> UploadedInput:
        return wire.submissions.UploadedInput(self.name, self.digest, self.size, self.executable)


def gather_files(named: Iterable[tuple[str, Path]]) -> list[LocalFile]:
    """All files of `named` (name in the payload's folder, local file or folder), hashed.

    Links inside a folder are followed as long as they stay inside it; links that lead out, sockets, pipes and
    devices raise InvalidInput, as do two different files of one name.
    """
    files: dict[str, tuple[Path, os.stat_result]] = {}
    total = 0
    for name, path in named:
        for inner, file, status in _files(check_name(name), path):
            if inner in files and files[inner][0] != file:
                raise InvalidInput(f"two inputs have the name {inner}: {files[inner][0]} and {file}")
            if inner not in files:
                total += status.st_size
            files[inner] = (file, status)
            if len(files) > MAX_FILES:
                raise TooLarge(f"more than {MAX_FILES:,} input files", hint="pack them into one archive")
            if total > MAX_BYTES:
                raise TooLarge(f"the inputs have more than {MAX_BYTES // 1024**3} GiB", hint=LARGE_HINT)
    digests: dict[Path, str] = {}
    return [_hashed(name, path, status, digests) for name, (path, status) in files.items()]


def hash_file(path: Path) -> LocalFile:
    """One file, hashed; its name is that of the path. A folder or anything else raises InvalidInput."""
    try:
        status = path.stat()
    except OSError as trouble:
        raise _unreadable(path, trouble) from trouble
    if stat.S_ISDIR(status.st_mode):
        raise InvalidInput(
            f"{path} is a folder: of an input that differs from job to job each job gets one file",
            hint="pack the folder into an archive, or let the name of the input differ too",
        )
    _require_regular_file(path, status)
    return _hashed(path.name, path, status, {})


def check_name(name: str) -> str:
    """`name` as a relative path that stays in the payload's folder, or InvalidInput."""
    pure = PurePosixPath(name)
    if not name or "\0" in name or pure.is_absolute() or ".." in pure.parts or str(pure) == ".":
        raise InvalidInput(f"{name!r} cannot be the name of an input", hint="a relative path without ..")
    return str(pure)


def _files(name: str, path: Path) -> Iterator[tuple[str, Path, os.stat_result]]:
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            root = path.resolve()
            yield from _folder(name, root, root, (root,))
            return
        _require_regular_file(path, status)
    except OSError as trouble:
        raise _unreadable(path, trouble) from trouble
    yield name, path, status


def _folder(
    name: str, folder: Path, root: Path, chain: tuple[Path, ...]
) -> Iterator[tuple[str, Path, os.stat_result]]:
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        path = Path(entry.path)
        real = path
        if entry.is_symlink():
            real = path.resolve()
            if not real.is_relative_to(root):
                raise InvalidInput(f"the link {path} leads out of {root}", hint="name its target as an input")
        status = real.stat()
        if not stat.S_ISDIR(status.st_mode):
            _require_regular_file(path, status)
            yield f"{name}/{entry.name}", path, status
        elif real in chain:
            raise InvalidInput(f"the link {path} leads in a circle")
        else:
            yield from _folder(f"{name}/{entry.name}", real, root, (*chain, real))


def _require_regular_file(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise InvalidInput(
            f"{path} is neither a file nor a folder", hint="sockets, pipes, devices are not sent"
        )


def _unreadable(path: Path, trouble: OSError) -> InvalidInput:
    place = trouble.filename or path
    return InvalidInput(f"cannot read the input {place}: {trouble.strerror or trouble}")


def _hashed(name: str, path: Path, status: os.stat_result, digests: dict[Path, str]) -> LocalFile:
    if path not in digests:
        try:
            with path.open("rb") as file:
                digests[path] = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as trouble:
            raise _unreadable(path, trouble) from trouble
    return LocalFile(name, path, status.st_size, digests[path], bool(status.st_mode & stat.S_IXUSR))


def upload(transport: Transport, files: Iterable[LocalFile], progress: Progress | None = None) -> None:
    """Upload the content that the server lacks, each digest once; small files share a request."""
    distinct = list({file.digest: file for file in files}.values())
    total = sum(file.size for file in distinct)
    if progress:
        progress(0, total)
    with ThreadPoolExecutor(max_workers=UPLOAD_THREADS) as threads:
        # At the end of the interpreter no thread can be started; calls of an executor still are.
        pool = threads if threading.main_thread().is_alive() else None
        try:
            asked = _find_missing(transport, [file.digest for file in distinct], pool)
            missing = {digest for part in asked for digest in part.missing}
            lacking = [file for file in distinct if file.digest in missing]
            done = total - sum(file.size for file in lacking)
            together = list(_bundles(lacking))
            send = partial(_upload_bundle, transport, _storage_upload(transport, asked))
            for part, _ in zip(together, (pool.map if pool else map)(send, together), strict=True):
                done += sum(file.size for file in part)
                if progress:
                    progress(done, total)
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            raise
    if progress:
        progress(total, total)


def _storage_upload(transport: Transport, asked: Sequence[MissingUploads]) -> StorageUpload | None:
    """Sends large files to storage; None: they go to the server."""
    from pilotage.client.storage_upload import StorageUpload

    return StorageUpload(transport) if any(part.to_storage for part in asked) else None


def missing_digests(transport: Transport, digests: Sequence[str]) -> list[str]:
    """Which of these files the server does not have."""
    return [digest for part in _find_missing(transport, digests, None) for digest in part.missing]


def _find_missing(
    transport: Transport, digests: Sequence[str], pool: ThreadPoolExecutor | None
) -> list[MissingUploads]:
    def ask(begin: int) -> MissingUploads:
        request = wire.uploads.UploadsRequest(list(digests[begin : begin + wire.uploads.MAX_BUNDLE_FILES]))
        return transport.call(wire.uploads.FIND_MISSING, request)

    return list((pool.map if pool else map)(ask, range(0, len(digests), wire.uploads.MAX_BUNDLE_FILES)))


def _bundles(files: Iterable[LocalFile]) -> Iterator[list[LocalFile]]:
    """Small files in parts that go in one request, large ones alone."""
    part: list[LocalFile] = []
    size = 0
    for file in files:
        if file.size > wire.uploads.SMALL_FILE:
            yield [file]
            continue
        length = file.size + len(wire.uploads.bundle_header(file.digest, file.size))
        if part and (
            len(part) == wire.uploads.MAX_BUNDLE_FILES or size + length > wire.uploads.MAX_BUNDLE_BYTES
        ):
            yield part
            part, size = [], 0
        part.append(file)
        size += length
    if part:
        yield part


def _upload_bundle(transport: Transport, storage: StorageUpload | None, files: Sequence[LocalFile]) -> None:
    if storage is not None and files[0].size > wire.uploads.SMALL_FILE:
        try:
            storage.send(files[0].path, files[0].digest, files[0].size)
        except OSError as trouble:
            raise _unreadable(files[0].path, trouble) from trouble
    elif len(files) == 1:
        _upload_file(transport, files[0])
    else:
        body = b"".join(_with_header(file) for file in files)
        transport.send(wire.uploads.UPLOAD_MANY, body=lambda: body, size=len(body))


def _with_header(file: LocalFile) -> bytes:
    try:
        data = file.path.read_bytes()
    except OSError as trouble:
        raise _unreadable(file.path, trouble) from trouble
    if len(data) != file.size:
        raise InvalidInput(f"{file.path} changed while it was sent", hint="submit again")
    return wire.uploads.bundle_header(file.digest, file.size) + data


def _upload_file(transport: Transport, file: LocalFile) -> None:
    try:
        transport.send(
            wire.uploads.UPLOAD, body=lambda: read_chunks(file.path), size=file.size, digest=file.digest
        )
    except TooLarge as trouble:
        raise TooLarge(f"{file.path}: {trouble.message}", hint=trouble.hint or LARGE_HINT) from trouble
    except OSError as trouble:
        raise _unreadable(file.path, trouble) from trouble


def read_chunks(path: Path) -> Iterator[bytes]:
    """The bytes of a file, so that no more than a piece is in memory."""
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            yield chunk
