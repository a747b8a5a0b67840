"""The adapters of the outside catalogues of the policy, which routes and duties share."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from pilotage.core.datasets.facts import FileEntry
from pilotage.core.errors import NotFound
from pilotage.core.policy import OutsideCatalogue, Policy
from pilotage.outside.catalogue.adapter import BlockPlaces, CatalogueAdapter, CatalogueContents, OutgoingBlock
from pilotage.outside.catalogue.registry import make_catalogue_of
from pilotage.server.outside_calls import OutsideCalls
from pilotage.services.catalogue.following import CatalogueChange

log = logging.getLogger(__name__)

Value = TypeVar("Value")


def log_change(change: CatalogueChange | None) -> None:
    """Log that a catalogue serves, or has another problem than before. None: nothing has changed."""
    if change is not None and change.problem:
        log.warning("catalogue %s: %s", change.name, change.problem)
    elif change is not None:
        log.info("catalogue %s serves again", change.name)


class CatalogueClients:
    """One adapter for each catalogue, made when it is first needed. Several threads may use it."""

    def __init__(self, outside: OutsideCalls) -> None:
        """`outside`: makes the calls of the adapters."""
        self._outside = outside
        self._lock = threading.Lock()
        self._made: dict[str, tuple[OutsideCatalogue, CatalogueAdapter]] = {}

    def adapter(self, policy: Policy, name: str) -> CatalogueAdapter:
        """The adapter by the present section of the policy."""
        section = policy.catalogues.get(name)
        if section is None:
            known = ", ".join(sorted(policy.catalogues)) or "none"
            raise NotFound(f"the policy has no catalogue {name}", hint=f"there are: {known}")
        with self._lock:
            made = self._made.get(name)
            if made is not None and made[0] == section:
                return made[1]
            adapter = OutsideCatalogueCalls(self._outside, name, make_catalogue_of(section))
            self._made[name] = (section, adapter)
        if made is not None:
            made[1].close()
        return adapter

    def close(self) -> None:
        """End all connections. Calls under way fail."""
        with self._lock:
            made, self._made = self._made, {}
        for _, adapter in made.values():
            adapter.close()


class OutsideCatalogueCalls:
    """An adapter whose calls are made, or answered from a record, as all calls that leave the process."""

    def __init__(self, outside: OutsideCalls, name: str, catalogue: CatalogueAdapter) -> None:
        self._outside = outside
        self._name = name
        self._catalogue = catalogue

    def greet(self) -> str:
        return self._ask("greet", str, self._catalogue.greet)

    def check(self, name: str) -> None:
        return self._ask("check", None, lambda: self._catalogue.check(name))

    def contents(self, name: str) -> CatalogueContents:
        return self._ask("contents", CatalogueContents, lambda: self._catalogue.contents(name))

    def files(self, block: str) -> Sequence[FileEntry]:
        return self._ask("files", list[FileEntry], lambda: self._catalogue.files(block))

    def places(self, blocks: Sequence[str]) -> Mapping[str, BlockPlaces]:
        return self._ask("places", dict[str, BlockPlaces], lambda: self._catalogue.places(blocks))

    def register(self, block: OutgoingBlock) -> None:
        return self._ask("register", None, lambda: self._catalogue.register(block))

    def finish(self, collection: str) -> None:
        return self._ask("finish", None, lambda: self._catalogue.finish(collection))

    def close(self) -> None:
        self._catalogue.close()

    def _ask(self, call: str, kind: Any, make: Callable[[], Value]) -> Value:
        return self._outside.ask(f"catalogue {self._name}: {call}", kind, make)
