"""Upload of many small input files in one request (a bundle).

A bundle has for each file its SHA-256, a space, its size, a line feed, and its bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Dict, List, Tuple

from pilotage.wire.call import DATA, PERSON, ApiCall, NoRequest, Nothing
from pilotage.wire.limits import Bounds, Digest

MAX_BUNDLE_FILES = 500
MAX_BUNDLE_BYTES = 4 * 1024 * 1024
"""Bytes of many small files that are uploaded in one request."""


@dataclass
class UploadsRequest:
    digests: Annotated[List[Digest], Bounds(shortest=1, longest=MAX_BUNDLE_FILES)]


@dataclass
class MissingUploads:
    """The requested digests that this owner has not uploaded."""

    missing: List[str]


def bundle_header(digest: str, size: int) -> bytes:
    """The header before the bytes of a file in a bundle."""
    return f"{digest} {size}\n".encode()


def split_bundle(body: bytes) -> List[Tuple[str, bytes]]:
    """(digest, bytes) of each file in a bundle. Raises ValueError for a malformed bundle."""
    files: List[Tuple[str, bytes]] = []
    place = 0
    while place < len(body):
        end = body.find(b"\n", place, place + 100)
        digest, _, size = body[place:end].partition(b" ") if end > 0 else (b"", b"", b"")
        if len(digest) != 64 or not size.isdigit():
            raise ValueError(f"no digest and size at byte {place}")
        begin, place = end + 1, end + 1 + int(size)
        if place > len(body):
            raise ValueError(f"it ends within a file of {int(size)} bytes")
        files.append((digest.decode("latin-1"), body[begin:place]))
    return files


FIND_MISSING = ApiCall("POST", "/v1/uploads", UploadsRequest, MissingUploads, DATA, repeatable=True)
UPLOAD_MANY = ApiCall("PUT", "/v1/uploads", NoRequest, Dict[str, int], DATA, status=201)
FIND_UPLOAD = ApiCall("HEAD", "/v1/uploads/{digest}", NoRequest, Nothing, PERSON, status=204)
UPLOAD = ApiCall("PUT", "/v1/uploads/{digest}", NoRequest, Dict[str, Any], DATA, status=201)
