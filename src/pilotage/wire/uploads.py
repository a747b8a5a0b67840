"""Upload of input files: many small ones in one request (a bundle), large ones by themselves.

A bundle has for each file its SHA-256, a space, its size, a line feed, and its bytes. Large files go to the server, or
to an S3 service by an address that the server signs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Dict, List, Tuple

from pilotage.wire.call import DATA, PERSON, ApiCall, NoRequest, Nothing
from pilotage.wire.data import Path
from pilotage.wire.limits import Bounds, Digest, FileSize, Name

MAX_BUNDLE_FILES = 500
MAX_BUNDLE_BYTES = 4 * 1024 * 1024
"""Bytes of many small files that are uploaded in one request."""
SMALL_FILE = 256 * 1024
"""Bytes of a file up to which it goes to the server, together with others."""


@dataclass
class UploadsRequest:
    digests: Annotated[List[Digest], Bounds(shortest=1, longest=MAX_BUNDLE_FILES)]


@dataclass
class MissingUploads:
    """The requested digests that this owner has not uploaded."""

    missing: List[str]
    to_storage: bool = False
    """Files of more than SMALL_FILE bytes are sent to storage, by an address for each of them."""


@dataclass
class UploadedBytes:
    """The contents of an input file, as the S3 service compares them."""

    size: FileSize
    md5: Name
    """In base64, as the header Content-MD5 has it."""


@dataclass
class SignedUpload:
    """An address that takes one file by PUT for a while. It needs no key, so it is a secret."""

    url: str
    """s3://HOST/BUCKET/KEY"""
    address: str
    headers: Dict[str, str]
    """The headers that are sent with it."""


@dataclass
class SentInput:
    """An input file that the client has written to an S3 service."""

    url: Path
    size: FileSize
    etag: Name
    """The mark of its contents that the service has given."""


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
GIVE_UPLOAD_ADDRESS = ApiCall(
    "POST", "/v1/uploads/{digest}/address", UploadedBytes, SignedUpload, DATA, repeatable=True
)
RECORD_UPLOAD = ApiCall(
    "POST", "/v1/uploads/{digest}/object", SentInput, Nothing, DATA, status=201, repeatable=True
)
