"""The adapters of the outside catalogues of the policy, which routes and duties share."""

from __future__ import annotations

import threading

from pilotage.core.errors import NotFound
from pilotage.core.policy import OutsideCatalogue, Policy
from pilotage.outside.catalogue.adapter import CatalogueAdapter
from pilotage.outside.catalogue.registry import make_catalogue_of


class CatalogueClients:
    """One adapter for each catalogue, made when it is first needed. Several threads may use it."""

    def __init__(self) -> None:
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
            adapter = make_catalogue_of(section)
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
