"""Answers of Rucio, with the fields that are used. Fields that are not named here are ignored."""

from __future__ import annotations

import msgspec


class Did(msgspec.Struct):
    """A name in Rucio: a file, a data set or a container."""

    scope: str
    name: str
    type: str
    open: bool | None = None
    length: int | None = None
    bytes: int | None = None

    @property
    def did(self) -> str:
        return f"{self.scope}:{self.name}"


class DidMeta(msgspec.Struct):
    """Facts of a data set."""

    scope: str
    name: str
    is_open: bool | None = None
    length: int | None = None


class DidFile(msgspec.Struct):
    """A file of a data set."""

    scope: str
    name: str
    bytes: int | None = None
    adler32: str | None = None
    events: int | None = None


class DatasetLock(msgspec.Struct):
    """A rule keeps a data set at an RSE; OK: all of its files are there."""

    rse: str
    scope: str
    name: str
    state: str


class DatasetReplica(msgspec.Struct):
    """The files of a data set at an RSE."""

    rse: str
    available_length: int | None = None
    length: int | None = None


class ReadRank(msgspec.Struct):
    """The rank of a protocol for reading, 1 the best; 0 or nothing: not for reading."""

    read: int | None = None


class RseProtocol(msgspec.Struct):
    """A way to read files of an RSE."""

    scheme: str
    hostname: str = ""
    port: int | None = None
    prefix: str = ""
    domains: dict[str, ReadRank] = msgspec.field(default_factory=dict)
    extended_attributes: dict[str, object] | str | None = None


class Rse(msgspec.Struct):
    """Storage that Rucio knows."""

    rse: str
    deterministic: bool = True
    availability_read: bool = True
    lfn2pfn_algorithm: str | None = None
    protocols: list[RseProtocol] = msgspec.field(default_factory=list)
