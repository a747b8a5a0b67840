"""Registers output blocks in Rucio: data set, replicas, attachment, end, rule. Each step may be repeated.

Rucio leaves a file as it is that exists already, also if other facts are sent. So the data set is read back, and closed
only if it has the files of the block and no others.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence

from pilotage.core.datasets.facts import FileEntry
from pilotage.core.errors import Conflict
from pilotage.core.policy.catalogue_model import CataloguePlace
from pilotage.core.policy.catalogue_types.rucio import RucioOptions
from pilotage.outside.catalogue.adapter import OutgoingBlock
from pilotage.outside.catalogue.rucio.answers import Did, Rse
from pilotage.outside.catalogue.rucio.listing import list_files
from pilotage.outside.catalogue.rucio.paths import url_of
from pilotage.outside.catalogue.rucio.session import RucioFault, RucioSession, did_path

FILES_AT_ONCE = 500
"""Files in one call."""
EXISTS = ("DataIdentifierAlreadyExists", "DuplicateRule", "DuplicateContent")
CLOSED = "UnsupportedOperation"
"""Rucio's answer for a data set that is closed already."""

LONGEST_NAME = 250
"""Characters of a name in Rucio."""

_ATTEMPT = re.compile(r"[0-9]+/[0-9]+-[0-9]+(-[0-9]+)?/")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]")


class RucioRegistration:
    """The registration of one block."""

    def __init__(
        self,
        session: RucioSession,
        options: RucioOptions,
        places: Mapping[str, CataloguePlace],
        block: OutgoingBlock,
    ) -> None:
        self._session = session
        self._options = options
        self._scope, _, self._container = block.collection.partition(":")
        self._dataset = name_below(self._container, block.name.replace("#", "."))
        self._block = block
        self._rse, self._below = _storage(block, places)

    def run(self) -> None:
        """All steps, in an order in which nobody finds a part of the block in the container."""
        self._make("CONTAINER", self._container)
        self._make("DATASET", self._dataset)
        rse = self._session.row(Rse, f"/rses/{self._rse}")
        if rse.deterministic:
            raise Conflict(
                f"RSE {self._rse} is deterministic: it refuses the paths of outputs",
                hint="outputs need an RSE that is not deterministic",
            )
        folder = url_of(rse, self._options.schemes)
        for part in self._parts():
            self._add_replicas(part, folder)
            self._attach(part)
        self._check()
        self._repeatable(
            "PUT", f"/dids/{did_path(self._scope, self._dataset)}/status", {"open": False}, CLOSED
        )
        self._add_rule()
        attachment = {"scope": self._scope, "name": self._container, "dids": [self._did(self._dataset)]}
        body = {"attachments": [attachment], "ignore_duplicate": True}
        self._session.do("POST", "/dids/attachments", body)

    def _did(self, name: str) -> dict[str, object]:
        return {"scope": self._scope, "name": name}

    def _parts(self) -> Iterator[Sequence[FileEntry]]:
        for first in range(0, len(self._block.files), FILES_AT_ONCE):
            yield self._block.files[first : first + FILES_AT_ONCE]

    def _file_name(self, file: FileEntry) -> str:
        return name_below(self._container, file.name)

    def _make(self, kind: str, name: str) -> None:
        path = f"/dids/{did_path(self._scope, name)}"
        try:
            self._session.do("POST", path, {"type": kind})
        except RucioFault as fault:
            if fault.exception not in EXISTS:
                raise
            known = self._session.row(Did, path)
            if known.type != kind:
                raise Conflict(f"{self._scope}:{name} is a {known.type.lower()} in Rucio already") from None

    def _add_replicas(self, files: Sequence[FileEntry], folder: str) -> None:
        below = f"{folder.rstrip('/')}{self._below}"
        rows = [
            {
                **self._did(self._file_name(file)),
                "bytes": file.size,
                "adler32": _adler32(file),
                "pfn": f"{below}/{file.name}",
                "meta": {"events": file.events},
            }
            for file in files
        ]
        self._session.do("POST", "/replicas", {"rse": self._rse, "files": rows, "ignore_availability": True})

    def _attach(self, files: Sequence[FileEntry]) -> None:
        rows = [
            {**self._did(self._file_name(file)), "bytes": file.size, "adler32": _adler32(file)}
            for file in files
        ]
        attachment = {**self._did(self._dataset), "dids": rows}
        body = {"attachments": [attachment], "ignore_duplicate": True}
        self._repeatable("POST", "/dids/attachments", body, CLOSED)

    def _check(self) -> None:
        """Raise `Conflict` unless Rucio has the files of the block, and no others."""
        there = {
            (row.name, row.bytes or 0, (row.adler32 or "").lower().zfill(8))
            for row in list_files(self._session, self._scope, self._dataset)
        }
        ours = {(self._file_name(file), file.size, _adler32(file)) for file in self._block.files}
        if there != ours:
            name = min(there ^ ours)[0]
            raise Conflict(
                f"{self._scope}:{self._dataset} has other files in Rucio than here, such as {self._scope}:{name}",
                hint="somebody else has registered these names: choose another data set for the output",
            )

    def _add_rule(self) -> None:
        options = self._options
        rule = {
            "dids": [self._did(self._dataset)],
            "copies": options.rule_copies,
            "rse_expression": options.rule or self._rse,
            "account": options.account or None,
            "grouping": "DATASET",
            "lifetime": int(options.rule_lifetime) or None,
            "locked": False,
            "weight": None,
        }
        self._repeatable("POST", "/rules/", rule, *EXISTS)

    def _repeatable(self, method: str, path: str, body: object, *done: str) -> None:
        """A call that Rucio refuses with one of these exceptions if it was made before."""
        try:
            self._session.do(method, path, body)
        except RucioFault as fault:
            if fault.exception not in done:
                raise


def name_below(container: str, text: str) -> str:
    """The name of a file or block of a container, with the characters and the length that Rucio allows.

    Text that is changed gets a mark of its own, so two files never have one name. A folder of an attempt,
    ELEMENT/JOB-EPOCH, needs none.
    """
    folder = _ATTEMPT.match(text)
    start = folder.end() if folder else 0
    plain = text[:start].replace("/", ".") + _NOT_IN_NAMES.sub("_", text[start:].replace("/", "."))
    name = f"{container}.{plain}"
    if plain[start:] == text[start:] and len(name) <= LONGEST_NAME:
        return name
    mark = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{name[: LONGEST_NAME - 1 - len(mark)]}-{mark}"


def _adler32(file: FileEntry) -> str:
    algorithm, _, digits = file.checksum.partition(":")
    if algorithm != "adler32":
        raise Conflict(f"{file.name} has no adler32 checksum, which Rucio needs")
    return digits


def _storage(block: OutgoingBlock, places: Mapping[str, CataloguePlace]) -> tuple[str, str]:
    """The RSE of a block, and the folder of the block below the RSE's."""
    for replica in block.replicas:
        for rse, place in sorted(places.items()):
            prefix = place.prefix.rstrip("/")
            if place.site == replica.site and prefix and f"{replica.prefix}/".startswith(f"{prefix}/"):
                return rse, replica.prefix[len(prefix) :]
    where = ", ".join(f"{replica.prefix} of {replica.site}" for replica in block.replicas) or "no place"
    raise Conflict(
        f"no RSE has {where}",
        hint="give a place of the catalogue in the policy this site, and a prefix above the storage place",
    )
