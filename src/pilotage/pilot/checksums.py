"""Checksums of files, written as ALGORITHM:HEX."""

from __future__ import annotations

import hashlib
import zlib
from typing import Iterable, Iterator, Optional


class Checksum:
    """Adds up the bytes of one file."""

    def __init__(self, algorithm: str) -> None:
        """Raises ValueError for an unknown algorithm."""
        self.algorithm = algorithm
        self.size = 0
        self._adler = 1
        self._digest = None if algorithm == "adler32" else _new_digest(algorithm)

    def update(self, data: bytes) -> None:
        self.size += len(data)
        if self._digest is None:
            self._adler = zlib.adler32(data, self._adler)
        else:
            self._digest.update(data)

    @property
    def text(self) -> str:
        """ALGORITHM:HEX of the bytes so far."""
        value = f"{self._adler:08x}" if self._digest is None else self._digest.hexdigest()
        return f"{self.algorithm}:{value}"


def _new_digest(algorithm: str) -> "hashlib._Hash":
    if algorithm not in ("sha256", "md5"):
        raise ValueError(f"unknown checksum {algorithm!r}")
    return hashlib.new(algorithm, usedforsecurity=False)


class WrongContent(Exception):
    """A file does not have the size or checksum that the catalogue has."""


def verified(pieces: Iterable[bytes], size: int, expected: str) -> Iterator[bytes]:
    """Pass the pieces on. Raises WrongContent at the end if they are not the expected ones.

    `size`: 0 if it is not known. `expected`: ALGORITHM:HEX; it is not compared if it is empty or of an algorithm that
    the pilot does not have.
    """
    algorithm, _, value = expected.partition(":")
    checksum: Optional[Checksum] = None
    if value:
        try:
            checksum = Checksum(algorithm.lower())
        except ValueError:
            checksum = None
    total = 0
    for piece in pieces:
        total += len(piece)
        if checksum is not None:
            checksum.update(piece)
        yield piece
    if size and total != size:
        raise WrongContent(f"it has {total:,} bytes; the catalogue has {size:,}")
    if checksum is not None and checksum.text.partition(":")[2] != value.lower().zfill(8):
        raise WrongContent(f"its checksum is {checksum.text}; the catalogue has {expected}")
