"""Reads containers, data sets, files and places from Rucio."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence

from pilotage.core.datasets.facts import FileEntry, Replica
from pilotage.core.errors import InvalidInput, NotFound
from pilotage.core.policy.catalogue_model import CataloguePlace
from pilotage.core.policy.catalogue_types.rucio import RucioOptions
from pilotage.outside.catalogue.adapter import BlockPlaces, CatalogueBlock, CatalogueContents, OutgoingBlock
from pilotage.outside.catalogue.rucio.answers import DatasetLock, DatasetReplica, Did, Rse
from pilotage.outside.catalogue.rucio.listing import CONTAINER, DATASET, list_datasets, list_files, parts_of
from pilotage.outside.catalogue.rucio.paths import folder_of, reason_against, relative_path
from pilotage.outside.catalogue.rucio.registration import CLOSED, RucioRegistration
from pilotage.outside.catalogue.rucio.session import RucioFault, RucioSession, did_path


class RucioCatalogue:
    """One Rucio server."""

    def __init__(
        self, session: RucioSession, options: RucioOptions, places: Mapping[str, CataloguePlace]
    ) -> None:
        """`places`: the sites of RSEs."""
        self._session = session
        self._options = options
        self._places = places
        self._lock = threading.Lock()
        self._rses: dict[str, Rse] = {}

    def greet(self) -> str:
        version = self._session.version()
        # A call that needs a valid token, and no right.
        self._session.do("GET", "/auth/validate")
        account = self._options.account
        return f"Rucio {version}" + (f", account {account}" if account else "") + self._unknown_places()

    def _unknown_places(self) -> str:
        """The RSEs of the policy that Rucio does not have, as the end of a sentence; empty: it has all."""
        known = {rse.rse for rse in self._session.rows(Rse, "/rses/")} if self._places else set()
        # The list may have been shortened.
        unknown = [name for name in sorted(self._places.keys() - known) if self._found_rse(name) is None]
        if not unknown:
            return ""
        return f"; it has no RSE {', '.join(unknown[:5])}: correct `places` of the catalogue in the policy"

    def check(self, name: str) -> None:
        self._did(name)

    def _did(self, name: str, query: str = "") -> Did:
        """The data set or container of this name."""
        scope, plain = split_did(name)
        did = self._session.row(Did, f"/dids/{did_path(scope, plain)}{query}")
        if did.type not in (DATASET, CONTAINER):
            raise InvalidInput(f"{name} is a file: name a data set or a container")
        return did

    def contents(self, name: str) -> CatalogueContents:
        with self._lock:
            # One reading of a data set asks for each RSE once.
            self._rses.clear()
        did = self._did(name, "?dynamic_depth=DATASET")
        blocks = [
            CatalogueBlock(f"{meta.scope}:{meta.name}", meta.is_open is not False, meta.length)
            for meta in list_datasets(self._session, did)
        ]
        return CatalogueContents(did.open is not False, tuple(blocks))

    def files(self, block: str) -> Sequence[FileEntry]:
        algorithm = self._options.paths
        return [
            FileEntry(
                relative_path(algorithm, file.scope, file.name),
                file.bytes or 0,
                file.events or 0,
                f"adler32:{file.adler32.lower():0>8}" if file.adler32 else "",
            )
            for file in list_files(self._session, *split_did(block))
        ]

    # --- places

    def places(self, blocks: Sequence[str]) -> Mapping[str, BlockPlaces]:
        locked = self._locked(blocks) if self._options.locked else None
        return {
            block: self._places_of(block, None if locked is None else locked.get(block, set()))
            for block in blocks
        }

    def _locked(self, blocks: Sequence[str]) -> dict[str, set[str]]:
        """The RSEs where rules keep all files of each data set."""
        locked: dict[str, set[str]] = defaultdict(set)
        for part in parts_of([split_did(block) for block in blocks]):
            body = {"dids": [{"scope": scope, "name": name, "type": "dataset"} for scope, name in part]}
            for lock in self._session.rows(DatasetLock, "/locks/bulk_locks_for_dids", body):
                if lock.state == "OK":
                    locked[f"{lock.scope}:{lock.name}"].add(lock.rse)
        return locked

    def _places_of(self, block: str, locked: set[str] | None) -> BlockPlaces:
        """`locked`: the RSEs that count; None: all."""
        if locked is not None and not locked:
            return BlockPlaces(())
        scope, name = split_did(block)
        path = f"/replicas/{did_path(scope, name)}/datasets?deep=True"
        replicas: dict[str, Replica] = {}
        unused = []
        for row in self._session.rows(DatasetReplica, path):
            is_complete = row.length is not None and (row.available_length or 0) >= row.length
            if not is_complete or (locked is not None and row.rse not in locked):
                continue
            replica, reason = self._replica(row.rse)
            if replica is None:
                unused.append(f"{row.rse}: {reason}")
            else:
                replicas.setdefault(replica.site, replica)
        return BlockPlaces(tuple(sorted(replicas.values())), tuple(sorted(unused)))

    def _replica(self, name: str) -> tuple[Replica | None, str]:
        """Where a site finds the files of an RSE; or None, and the reason."""
        place = self._places.get(name)
        if place is None:
            return None, "the policy names no site for it"
        rse = self._rse(name)
        if rse is None:
            return None, "Rucio does not know it any more"
        if reason := reason_against(rse, self._options.paths):
            return None, reason
        prefix = place.prefix or folder_of(rse, self._options.schemes)
        if not prefix:
            return None, "it has no protocol that can be used"
        return Replica(place.site, prefix.rstrip("/")), ""

    def _rse(self, name: str) -> Rse | None:
        with self._lock:
            if name in self._rses:
                return self._rses[name]
        rse = self._found_rse(name)
        if rse is not None:
            with self._lock:
                self._rses[name] = rse
        return rse

    def _found_rse(self, name: str) -> Rse | None:
        try:
            return self._session.row(Rse, f"/rses/{name}")
        except NotFound:
            return None

    # --- outputs

    def register(self, block: OutgoingBlock) -> None:
        RucioRegistration(self._session, self._options, self._places, block).run()

    def finish(self, collection: str) -> None:
        scope, name = split_did(collection)
        try:
            self._session.do("PUT", f"/dids/{did_path(scope, name)}/status", {"open": False})
        except RucioFault as fault:
            if fault.exception != CLOSED:
                raise

    def close(self) -> None:
        self._session.close()


def split_did(name: str) -> tuple[str, str]:
    """Scope and name of a DID. Raises `InvalidInput`."""
    scope, _, plain = name.partition(":")
    if not scope or not plain:
        raise InvalidInput(f"{name!r} is no name of Rucio", hint="SCOPE:NAME, such as data26:run.2026.AOD")
    return scope, plain
