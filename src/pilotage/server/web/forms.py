"""Forms that browsers send, as fields and files."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote

from starlette.requests import Request

from pilotage.core.errors import InvalidInput
from pilotage.server.http.connection_limits import LARGEST_FORM

MOST_FIELDS = 200
SMALL_FORM = 100_000
"""Bytes of a form that is read at once."""
LONGEST_BOUNDARY = 200
_BOUNDARY = re.compile(r'multipart/form-data\s*;\s*boundary=(?:"([^"]+)"|([^\s;"]+))\s*', re.IGNORECASE)
_PARAMETER = re.compile(r';\s*(name|filename)="([^"]*)"', re.IGNORECASE)
_DISPOSITION = re.compile(rb"^content-disposition:([^\r\n]*)", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class SentFile:
    """A file that a person has chosen for a field of a form."""

    field: str
    name: str
    """Without folders."""
    data: bytes


@dataclass(frozen=True, slots=True)
class SentForm:
    """One form."""

    fields: Mapping[str, str] = field(default_factory=dict)
    files: Sequence[SentFile] = ()


async def read_form(request: Request) -> SentForm:
    """The form of a request. A large one, such as a policy, is read in a thread."""
    if request.method != "POST":
        return SentForm()
    body, kind = await request.body(), request.headers.get("content-type", "")
    if len(body) > LARGEST_FORM:
        raise InvalidInput("this form is too large", hint=f"{LARGEST_FORM:,} bytes at most")
    try:
        return _form(kind, body) if len(body) < SMALL_FORM else await asyncio.to_thread(_form, kind, body)
    except ValueError as error:
        raise InvalidInput("this form cannot be read") from error


def _form(kind: str, body: bytes) -> SentForm:
    """Raises ValueError."""
    if not kind.lower().startswith("multipart/"):
        return SentForm(
            dict(parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=MOST_FIELDS))
        )
    match = _BOUNDARY.fullmatch(kind)
    if match is None or len(kind) > LONGEST_BOUNDARY:
        raise ValueError("no boundary")
    return _parts((match[1] or match[2]).encode("latin-1"), body)


def _parts(boundary: bytes, body: bytes) -> SentForm:
    """The parts of a body that is whole, to its last boundary. Raises ValueError."""
    mark = b"\r\n--" + boundary
    before, *pieces = (b"\r\n" + body).split(mark, MOST_FIELDS + 2)
    if before or not pieces or pieces[-1].strip() != b"--":
        raise ValueError("its end is missing, or it has too many parts")
    fields, files = dict[str, str](), list[SentFile]()
    for piece in pieces[:-1]:
        head, blank, data = piece.partition(b"\r\n\r\n")
        disposition = _DISPOSITION.search(head)
        if not blank or disposition is None or not head.startswith(b"\r\n"):
            raise ValueError("a part without a name")
        given = {name.lower(): text for name, text in _PARAMETER.findall(disposition[1].decode("utf-8"))}
        if "filename" not in given:
            fields[given.get("name", "")] = data.decode("utf-8")
        elif given["filename"]:
            # Browsers escape quotes and line ends only.
            name = unquote(given["filename"]).replace("\\", "/").rsplit("/", 1)[-1]
            files.append(SentFile(given.get("name", ""), name, data))
    return SentForm(fields, files)
