"""Stores the logs of one attempt at a storage place: standard output and error, and the pilot's record of the job.

They are one compressed tar file. It is written while it is read, so a node needs no room for it.
"""

from __future__ import annotations

import json
import os
import platform
import tarfile
import time
import zlib
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Dict, Iterator, List, Sequence, Tuple

from pilotage.wire.data import DataOrder, StoredFile
from pilotage.wire.pilot import Finish, Payload

from .data_in import FORMAT
from .data_out import OutputStore
from .data_report import OutputFacts
from .place import PIECE, DataAttempt
from .places import OpenPlaces

MAX_STREAM = 100_000_000
"""Bytes of standard output, or of standard error. Of a longer one, the middle is left out."""
RECORD = "record.json"
_GZIP = 31
"""The `wbits` of zlib for a file of gzip."""
_BLOCK = 512

Stream = Tuple[str, int]
"""Name in the archive, and the open file."""


def store_logs(
    order: DataOrder,
    record: Dict[str, Any],
    streams: Sequence[Stream],
    attempt: DataAttempt,
) -> StoredFile:
    """Store the logs at the first place that takes them. Raises DataFailed and DataCancelled."""
    target = replace(order, folder=order.log_folder, places=order.log_places)
    store, key = OutputStore(target, OpenPlaces(target, attempt)), attempt.key
    pieces = partial(archive_pieces, f"{key[0]}-{key[1]}", record, streams, time.time())
    try:
        store.store(order.log_name, order.log_name, pieces, OutputFacts())
    except BaseException:
        store.withdraw()
        raise
    return store.stored[0]


def archive_pieces(
    folder: str, record: Dict[str, Any], streams: Sequence[Stream], now: float
) -> Iterator[bytes]:
    """The bytes of the compressed tar file. Its members are in `folder`, so that many can be unpacked together."""
    packer = zlib.compressobj(6, zlib.DEFLATED, _GZIP)
    text = json.dumps(record, indent=1).encode()
    members: List[Tuple[str, int, Iterator[bytes]]] = [(RECORD, len(text), iter([text]))]
    for name, number in streams:
        note, parts = _parts_of(os.fstat(number).st_size)
        size = len(note) + sum(end - begin for begin, end in parts)
        members.append((name, size, _stream_pieces(number, parts, note)))
    for name, size, pieces in members:
        entry = tarfile.TarInfo(f"{folder}/{name}")
        entry.size, entry.mtime = size, int(now)
        yield packer.compress(entry.tobuf(tarfile.PAX_FORMAT))
        for piece in pieces:
            yield packer.compress(piece)
        yield packer.compress(b"\0" * (-size % _BLOCK))
    yield packer.compress(b"\0" * 2 * _BLOCK)
    yield packer.flush()


def _parts_of(size: int) -> Tuple[bytes, List[Tuple[int, int]]]:
    """The ranges of a stream that are kept, and the line that stands between them."""
    if size <= MAX_STREAM:
        return b"", [(0, size)]
    half = MAX_STREAM // 2
    note = f"\n[the pilot left out {size - 2 * half:,} of {size:,} bytes here]\n"
    return note.encode(), [(0, half), (size - half, size)]


def _stream_pieces(number: int, parts: Sequence[Tuple[int, int]], note: bytes) -> Iterator[bytes]:
    """The kept ranges of an open file. A file that was cut meanwhile is filled with zeros to its size."""
    for place, (begin, end) in enumerate(parts):
        if place:
            yield note
        while begin < end:
            piece = os.pread(number, min(PIECE, end - begin), begin)
            if not piece:
                piece = b"\0" * min(PIECE, end - begin)
            begin += len(piece)
            yield piece


def record_of(order: DataOrder, payload: Payload, finish: Finish) -> Dict[str, Any]:
    """All that the pilot knows of an attempt when it has ended. It has no environment, which may hold secrets."""
    return {
        "format": FORMAT,
        "job": finish.job,
        "epoch": finish.epoch,
        "owner": payload.owner,
        "group": payload.group,
        "request": order.request,
        "request_name": order.request_name,
        "step": order.step,
        "type": order.type,
        "element": order.element,
        "host": platform.node(),
        "ended": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "action": order.action,
        "executable": payload.executable,
        "arguments": payload.arguments,
        "container": payload.container,
        "exit_code": finish.exit_code,
        "signal": finish.signal,
        "failure": finish.failure,
        "message": finish.message,
        "wall": finish.wall,
        "cpu": finish.cpu,
        "max_rss": finish.max_rss,
        "events": order.events,
        "first_event": order.first_event,
        "seed": order.seed,
        "input": [asdict(file) for file in order.files],
        "dataset": order.dataset,
        "output": [asdict(file) for file in finish.files],
        "missing": finish.missing,
        "refused": [asdict(file) for file in finish.refused],
    }
