"""Records of input files that lie in an S3 service: one for each digest and owner.

Each address that a client is given begins an object of its own, with a record of its own. So the removal of an old
object never touches a new one. The records that count have no time in their names.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from pilotage.outside.sandbox.object_records import ObjectRecord, ObjectRecords

_INPUTS, _BEGUN, _DISCARDED = Path("inputs"), Path("begun-inputs"), Path("discarded-inputs")


def _mark(owner: str) -> str:
    """A name for an owner that paths and addresses can have."""
    return hashlib.sha256(owner.encode()).hexdigest()[:16]


def _path(owner: str, digest: str) -> Path:
    return _INPUTS / digest[:2] / digest / _mark(owner)


def _name_of(record: ObjectRecord) -> str:
    """The digest, the owner and the time in the address of an object."""
    return "-".join(record.url.split("/")[-2:])


class InputObjects:
    """The input files of one folder of sandboxes that an S3 service has."""

    def __init__(self, records: ObjectRecords) -> None:
        self._records = records

    def begin(self, owner: str, digest: str, folder: str, now: float) -> str:
        """A new address below `folder` that the owner may write the file to."""
        record = ObjectRecord(f"{folder}/inputs/{digest}/{_mark(owner)}-{int(now * 1000)}")
        self._records.begin(_BEGUN / _name_of(record), record.url)
        return record.url

    def is_begun(self, owner: str, digest: str, url: str) -> bool:
        """Whether the owner was given this address for the file, and has not completed it."""
        _, own, time = url.rpartition(f"/inputs/{digest}/{_mark(owner)}-")
        if not own or not (time.isascii() and time.isdecimal()):
            return False
        record = self._records.begun(_BEGUN / _name_of(ObjectRecord(url)))
        return record is not None and record.url == url

    def complete(self, owner: str, digest: str, record: ObjectRecord) -> None:
        """Let the object of a begun upload be the owner's file. An earlier object is discarded."""
        begun, path = _BEGUN / _name_of(record), _path(owner, digest)
        self._records.complete(begun, record.size, record.etag)
        earlier = self._records.begun(path)
        self._records.move(begun, path)
        if earlier is not None:
            self._records.begin(_DISCARDED / _name_of(earlier), earlier.url)

    def find(self, owner: str, digest: str) -> ObjectRecord | None:
        """The owner's file with this digest."""
        return self._records.find(_path(owner, digest))

    def discard(self, digest: str) -> None:
        """Forget the files with this digest, of all owners."""
        folder = _path("", digest).parent
        for path, _ in list(self._records.below(folder)):
            self._discard(folder / path)

    def discard_begun(self, before: float) -> None:
        """Forget uploads that were begun before this time and never completed."""
        for path, record in list(self._records.below(_BEGUN)):
            if int(record.url.rpartition("-")[2]) < before * 1000:
                self._discard(_BEGUN / path)

    def discarded(self) -> list[ObjectRecord]:
        """The objects that must be removed."""
        return [record for _, record in self._records.below(_DISCARDED)]

    def forget(self, record: ObjectRecord) -> None:
        """Delete the record of a discarded object that was removed."""
        self._records.delete(_DISCARDED / _name_of(record))

    def _discard(self, path: Path) -> None:
        record = self._records.begun(path)
        if record is not None:
            self._records.move(path, _DISCARDED / _name_of(record))
