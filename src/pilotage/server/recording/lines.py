"""The lines of a record, in the order of the decisions. Each has a checksum and a JSON document.

A replay takes the inputs and outcomes from the lines, and must produce the other lines itself, in the same order.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from pilotage.core.errors import InvalidInput

FORMAT = 1
"""Raised when a record of before cannot be replayed any more."""
MADE_AGAIN = "make it again with this version: `pilotage up --record FILE`"


class ServerAt(msgspec.Struct, frozen=True):
    """The facts about a server that its decisions and answers contain."""

    url: str
    hostname: str
    owner: str
    storage: str
    """The folder of output files."""
    node: dict[str, Any]
    pilot_server: str
    policy: str
    """The text of the policy that was given at the start; empty: that of the store."""
    least_free: int
    dialect: str
    """"sqlite" or "postgresql"."""


class RecordBegin(msgspec.Struct, frozen=True, tag="begin"):
    """The first line."""

    format: int
    version: str
    """The version of Pilotage."""
    begin: float
    """The instant of the start, in seconds since 1970."""
    seed: str
    """The seed of the draws. Real tokens are not drawn with it."""
    server: ServerAt
    store: str
    """The name of the file with the store at the start, beside the record; empty: the store was empty."""


class ReceivedMessage(msgspec.Struct, frozen=True, tag="message"):
    """A request of a person or pilot, as it came to the server."""

    number: int
    method: str
    path: str
    raw_path: bytes
    query: bytes
    headers: list[tuple[bytes, bytes]]
    client: tuple[str, int] | None
    body: bytes


class KnownSecret(msgspec.Struct, frozen=True, tag="known secret"):
    """A secret that the store had at the start. It has another one in this record."""

    at: float
    digest: str
    """Its digest in the store."""
    shown: str


class ReceivedSignal(msgspec.Struct, frozen=True, tag="signal"):
    """A signal of the operating system to the server."""

    number: int


class ListeningEnded(msgspec.Struct, frozen=True, tag="listening ended"):
    """The last connection was closed."""


class CallOutcome(msgspec.Struct, frozen=True, tag="outcome"):
    """The result of a call that leaves the process, such as to a batch system.

    It is an input if other decisions were made meanwhile. Else it is a line, if it differs from the last one.
    """

    at: float
    call: str
    number: int
    """Counts the calls of this name."""
    value: msgspec.Raw
    error: str = ""
    """The class of the error that was raised; `value` then has its arguments."""
    repeated: bool = False
    """It is that of the last call of this name; `value` is null."""


Input = ReceivedMessage | ReceivedSignal | ListeningEnded | CallOutcome


class Inputs(msgspec.Struct, frozen=True, tag="inputs"):
    """Inputs that were handed in together, at an instant when the server had nothing left to do."""

    at: float
    changes: int
    """Rows that the server had changed since its start."""
    inputs: list[Input]


class Answered(msgspec.Struct, frozen=True, tag="answer"):
    """The answer to a message."""

    at: float
    number: int
    status: int
    size: int
    digest: str
    begin: str
    """The first characters of the body, for people."""


class Ended(msgspec.Struct, frozen=True, tag="end"):
    """The last line of a server that has stopped by itself."""

    at: float
    changes: int
    tables: dict[str, str]
    """A digest of the rows of each table."""
    reason: str = ""
    """Why the recording ended before the server; empty: it did not."""


LaterLine = KnownSecret | Inputs | CallOutcome | Answered | Ended
Line = RecordBegin | LaterLine

_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(Line)


def line_of(line: Line) -> bytes:
    """The text of a line, with its end."""
    document = _encode(line)
    return b"%08x %b\n" % (zlib.crc32(document), document)


def read_record(path: Path) -> tuple[RecordBegin, Iterator[LaterLine]]:
    """The header of a record, and its other lines, which are read one by one. Raises `InvalidInput`.

    A last line that was cut, as by the death of the server, is dropped.
    """
    lines = _lines_of(path)
    first = next(lines, None)
    if not isinstance(first, RecordBegin):
        raise InvalidInput(f"{path} is no record of a server", hint="`pilotage up --record FILE` makes one")
    return first, _later(path, lines)


def _later(path: Path, lines: Iterator[Line]) -> Iterator[LaterLine]:
    for line in lines:
        if isinstance(line, RecordBegin):
            raise InvalidInput(f"{path} is damaged: it has a second beginning")
        yield line


def _lines_of(path: Path) -> Iterator[Line]:
    try:
        with path.open("rb") as file:
            for number, text in enumerate(file, 1):
                if not text.endswith(b"\n"):
                    return
                yield _line(path, number, text)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from None


def _line(path: Path, number: int, text: bytes) -> Line:
    checksum, _, document = text[:-1].partition(b" ")
    if number == 1:
        _check_format(path, document)
    if checksum != b"%08x" % zlib.crc32(document):
        raise InvalidInput(f"{path} is damaged: line {number} is not as it was written")
    try:
        line: Line = _decoder.decode(document)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} is damaged: line {number}: {error}") from None
    return line


class _AnyRecordBegin(msgspec.Struct):
    type: str
    format: int = 0
    version: str = ""


def _check_format(path: Path, document: bytes) -> None:
    try:
        header = msgspec.json.decode(document, type=_AnyRecordBegin)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        header = _AnyRecordBegin("")
    if header.type != "begin":
        raise InvalidInput(f"{path} is no record of a server", hint="`pilotage up --record FILE` makes one")
    if header.format != FORMAT:
        raise InvalidInput(
            f"{path} is a record of format {header.format}, of Pilotage {header.version}; this version reads"
            f" format {FORMAT}",
            hint=MADE_AGAIN,
        )
