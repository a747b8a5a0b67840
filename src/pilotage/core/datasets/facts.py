"""The facts of a data set: blocks of files, and the sites with replicas. Checks of names and numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from pilotage.core.errors import InvalidInput

MAX_NAME: Final = 255
"""Characters of the name of a data set, or of a site."""
MAX_FILE_NAME: Final = 1000
"""Characters of the name of a block or file, or of a prefix."""
MAX_EVENTS: Final = 10**12
"""Events of one file."""
MAX_SIZE: Final = 2**50
"""Bytes of one file."""
MAX_LUMI: Final = 2**32 - 1
"""The largest number of a run or lumi."""
MAX_LUMIS: Final = 10_000
"""Records of one file."""
ANYWHERE: Final = "*"
ELSEWHERE: Final = "://"
"""In a location: the data has an address that can be read from other sites. It is the name of no site."""
"""The site of a replica that every site can read, such as a web server."""

CHECKSUMS: Final = {"adler32": 8, "crc32": 8, "md5": 32, "sha1": 40, "sha256": 64, "sha512": 128}
"""Known algorithms, and the hexadecimal digits of their checksums."""

_DATA_SET: Final = re.compile(r"[A-Za-z0-9/][A-Za-z0-9/._+:@~-]*+\Z")

_HEX: Final = frozenset("0123456789abcdef")

Lumi = tuple[int, int, int]
"""(run, first, last): numbered pieces of a run, the last one included."""


class Replica(NamedTuple):
    """The files of a block at a site: the path of a file there is the prefix, a slash and its name."""

    site: str
    """`ANYWHERE`: every site can read it."""
    prefix: str


class FileEntry(NamedTuple):
    """One file of a block."""

    name: str
    size: int = 0
    events: int = 0
    """0: not known, or none."""
    checksum: str = ""
    """ALGORITHM:HEX; empty: not known."""
    lumis: tuple[Lumi, ...] = ()
    """Empty: none are known."""


class BlockEntry(NamedTuple):
    """Files that belong together: they lie at the same sites and are processed as one piece of work."""

    name: str
    files: tuple[FileEntry, ...]
    replicas: tuple[Replica, ...] = ()
    """Empty: the replicas of the data set."""


def check_data_set_name(name: object) -> str:
    """The name of a data set. Raises `InvalidInput`."""
    if not isinstance(name, str):
        raise InvalidInput("the name of a data set must be a text", field="name")
    if not name or len(name) > MAX_NAME:
        raise InvalidInput(f"the name of a data set has 1 to {MAX_NAME} characters", field="name")
    if not _DATA_SET.match(name):
        raise InvalidInput(
            f"{_shown(name)} cannot be the name of a data set",
            hint="use letters, digits and / . _ - + : @ ~; begin with a letter, a digit or /",
            field="name",
        )
    return name


def check_entry_name(name: object, field: str) -> str:
    """The name of a block or file, relative to the prefix of a replica. Raises `InvalidInput`."""
    if not isinstance(name, str):
        raise InvalidInput(f"{field} must be a text", field=field)
    if not 0 < len(name) <= MAX_FILE_NAME:
        raise InvalidInput(f"{field} must have 1 to {MAX_FILE_NAME} characters", field=field)
    if not name.isprintable():
        raise InvalidInput(f"{field} {_shown(name)} contains characters that cannot be printed", field=field)
    if name.startswith("/") or (".." in name and ".." in name.split("/")):
        raise InvalidInput(
            f"{field} {_shown(name)} must be relative, without ..",
            hint="the prefix of a replica has the folder",
            field=field,
        )
    return name


def check_replica(site: object, prefix: object, field: str = "replicas") -> Replica:
    """A replica, without slashes at the end of its prefix. Raises `InvalidInput`."""
    if not isinstance(site, str) or not 0 < len(site) <= MAX_NAME or not site.isprintable():
        raise InvalidInput(f"{field}: a site is a name of 1 to {MAX_NAME} characters", field=field)
    if not isinstance(prefix, str) or not 0 < len(prefix) <= MAX_FILE_NAME or not prefix.isprintable():
        raise InvalidInput(
            f"{field}: the prefix at {_shown(site)} must be a folder or URL of 1 to {MAX_FILE_NAME} characters",
            field=field,
        )
    if not prefix.startswith("/") and "://" not in prefix:
        raise InvalidInput(
            f"{field}: the prefix {_shown(prefix)} is neither an absolute path nor a URL", field=field
        )
    return Replica(site, prefix.rstrip("/"))


def check_number(value: object, field: str, most: int) -> int:
    """A whole number from 0 to `most`. Raises `InvalidInput`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInput(f"{field} must be a whole number", field=field)
    if not 0 <= value <= most:
        problem = "must not be negative" if value < 0 else f"must not be greater than {most:,}"
        raise InvalidInput(f"{field} {problem}", field=field)
    return value


def check_checksum(value: object, field: str = "checksum") -> str:
    """A checksum in lower case, or an empty text. Raises `InvalidInput`."""
    if value == "":
        return ""
    text = value.lower() if isinstance(value, str) else ""
    algorithm, _, digits = text.partition(":")
    length = CHECKSUMS.get(algorithm)
    if length is None or len(digits) != length or not _HEX.issuperset(digits):
        raise InvalidInput(
            f"{field} must be ALGORITHM:HEX",
            hint="such as adler32:0a1b2c3d; known: "
            + ", ".join(f"{name} ({digits} digits)" for name, digits in CHECKSUMS.items()),
            field=field,
        )
    return text


def check_lumis(value: object, field: str = "lumis") -> tuple[Lumi, ...]:
    """The records of a file, sorted. Raises `InvalidInput` for ranges that overlap."""
    if not isinstance(value, list | tuple):
        raise InvalidInput(f"{field} must be a list of [run, first, last]", field=field)
    if len(value) > MAX_LUMIS:
        raise InvalidInput(f"{field}: more than {MAX_LUMIS:,} records", field=field)
    lumis = sorted(_lumi(record, field) for record in value)
    for before, after in pairwise(lumis):
        if before[0] == after[0] and after[1] <= before[2]:
            raise InvalidInput(f"{field}: {list(before)} and {list(after)} overlap", field=field)
    return tuple(lumis)


def _lumi(record: object, field: str) -> Lumi:
    if not isinstance(record, list | tuple) or len(record) != 3:
        raise InvalidInput(f"{field}: a record is [run, first, last]", field=field)
    run, first, last = record
    if (
        type(run) is type(first) is type(last) is int
        and 0 <= run <= MAX_LUMI
        and 0 <= first <= last <= MAX_LUMI
    ):
        return run, first, last
    run, first, last = (check_number(number, field, MAX_LUMI) for number in record)
    if last < first:
        raise InvalidInput(f"{field}: [{run}, {first}, {last}] ends before it begins", field=field)
    return run, first, last


def sorted_sites(replicas: Iterable[Replica]) -> tuple[str, ...]:
    """The sites that can read a block with these replicas. `ELSEWHERE` is one if any of them has an address."""
    places = list(replicas)
    sites = {replica.site for replica in places}
    if ANYWHERE in sites:
        return (ANYWHERE,)
    if any(is_address(replica.prefix) for replica in places):
        sites.add(ELSEWHERE)
    return tuple(sorted(sites))


def is_address(prefix: str) -> bool:
    """Whether files below this prefix can be read from other sites: a URL, and no path."""
    return "://" in prefix


def common_sites(sets: Sequence[tuple[str, ...] | None]) -> tuple[str, ...] | None:
    """The sites that can read all of several blocks. None: not known, since it is not known for one of them."""
    common: set[str] | None = None
    for sites in sets:
        if sites is None:
            return None
        if sites != (ANYWHERE,):
            common = set(sites) if common is None else common & set(sites)
    if common is None:
        return (ANYWHERE,) if sets else None
    return tuple(sorted(common))


def _shown(text: str) -> str:
    return repr(text) if len(text) <= 80 else f"{text[:77]!r}…"
