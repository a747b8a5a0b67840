"""Messages about storage that is no folder of the nodes, of pilots and of people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Optional

from .call import ADMINISTRATORS, PERSON, PILOT, ApiCall, NoRequest, Nothing
from .data import Path
from .limits import FileName, FileSize, Int32, Message, Name


@dataclass
class AddressRequest:
    """Ask for an address that allows one request to an S3 service, just before it is used.

    `operation`: get, put, remove or list, and begin, part, complete or abort of an upload in parts.
    """

    operation: Name
    url: Path
    """s3://HOST/BUCKET/KEY of a file of the job. For `list` it is a folder, with a slash at its end."""
    upload: Message = ""
    """The number that the service has given to an upload in parts."""
    part: Int32 = 0
    """The number of a part; the first one is 1."""
    after: Path = ""
    """`list` leaves out files up to this address."""


@dataclass
class SignedAddress:
    """An address that needs no key, for one kind of request. It is a secret as long as it can be used."""

    method: str
    address: str


@dataclass
class SentOutput:
    """An output file of a job that the pilot has written to its sandbox in an S3 service."""

    name: FileName
    size: FileSize
    etag: Name
    """The mark of its contents that the service has given."""


@dataclass
class InputAddress:
    """Where an input file of a job lies."""

    url: str = ""
    """s3://HOST/BUCKET/KEY; empty: with the server."""
    patience: float = 0.0
    """Seconds for which a pilot tries again while the service does not answer."""


@dataclass
class StorageSummary:
    """A table `storage.NAME` of the policy."""

    name: str
    type: str
    address: str
    """The beginning of the addresses of its files."""
    problem: str = ""
    """Why it does not serve; empty: it does, or nobody has asked it. Programs of nodes are not asked by the server."""
    since: Optional[float] = None
    """Since when it serves, or has this problem; None: nobody has asked it."""


@dataclass
class UnclaimedQuery:
    """A page of the unclaimed objects of a place."""

    after: Path = ""
    """`next` of the page before."""


@dataclass
class UnclaimedObject:
    """An output that a refused attempt has stored, and that no data set names."""

    url: str
    size: int
    job: int
    epoch: int
    modified: float


@dataclass
class UnclaimedPage:
    """It may be empty, and others follow."""

    objects: List[UnclaimedObject]
    next: str = ""
    """Give it as `after` for the next page; empty: this was the last."""


GIVE_ADDRESS = ApiCall(
    "POST", "/v1/pilot/jobs/{job}/{epoch}/addresses", AddressRequest, SignedAddress, PILOT, repeatable=True
)
FIND_INPUT = ApiCall("GET", "/v1/pilot/jobs/{job}/inputs/{digest}/address", NoRequest, InputAddress, PILOT)
RECORD_OUTPUT = ApiCall(
    "POST", "/v1/pilot/jobs/{job}/{epoch}/outputs", SentOutput, Nothing, PILOT, status=201, repeatable=True
)
LIST_STORAGE = ApiCall("GET", "/v1/storage", NoRequest, List[StorageSummary], PERSON)
TEST_STORAGE = ApiCall(
    "POST", "/v1/storage/{storage}/test", NoRequest, StorageSummary, PERSON, repeatable=True
)
LIST_UNCLAIMED = ApiCall(
    "GET", "/v1/storage/{storage}/unclaimed", UnclaimedQuery, UnclaimedPage, ADMINISTRATORS
)
REMOVE_UNCLAIMED = ApiCall(
    "POST",
    "/v1/storage/{storage}/unclaimed/remove",
    UnclaimedQuery,
    UnclaimedPage,
    ADMINISTRATORS,
    repeatable=True,
)
