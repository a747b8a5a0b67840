"""The facts that cross the seam to S3 services."""

from __future__ import annotations

from typing import NamedTuple


class S3Operation(NamedTuple):
    """An operation with an object, or with all objects of a folder."""

    name: str
    """get, put, head, remove or list. begin, part, complete and abort: of an upload in parts."""
    url: str
    """For `list` it is the folder, with a slash at its end."""
    upload: str = ""
    """The number that the service has given to the upload."""
    part: int = 0
    after: str = ""
    """`list` leaves out addresses up to it."""
    most: int = 1000
    """The most objects in the answer to `list`."""
    headers: tuple[tuple[str, str], ...] = ()
    """Headers that the request must have, such as the length and the MD5 sum of its body."""


class SignedRequest(NamedTuple):
    """A request that anybody can send for a while."""

    method: str
    address: str


class ObjectPiece(NamedTuple):
    """A piece of an object whose contents are known by their mark."""

    url: str
    etag: str
    offset: int
    most: int
    """Bytes; at least 1."""


class StoredObject(NamedTuple):
    """An object as the service tells it."""

    size: int = 0
    etag: str = ""
    problem: str = ""
    """Why the service does not tell it; empty: it does."""
    is_unknown: bool = False
    """The service did not answer, so the object may be there."""


class ListedObject(NamedTuple):
    """An object in a list."""

    url: str
    size: int
    modified: float
    """Seconds since 1970, by the clock of the service."""


class ObjectPage(NamedTuple):
    """A page of a list, by rising names."""

    objects: list[ListedObject]
    is_last: bool
