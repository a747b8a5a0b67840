"""The adapters of all outside catalogues. A module or folder beside this file is found by itself.

It is the adapter of the `catalogues.*.type` of its name if it has a function `make_catalogue(section)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from pilotage.core.errors import NotFound
from pilotage.core.policy import OutsideCatalogue
from pilotage.outside import catalogue
from pilotage.outside.catalogue.adapter import CatalogueAdapter

CatalogueMaker = Callable[[OutsideCatalogue], CatalogueAdapter]


@cache
def catalogue_makers() -> Mapping[str, CatalogueMaker]:
    """The function that makes an adapter, by type of catalogue."""
    return dict(_find())


def _find() -> Iterator[tuple[str, CatalogueMaker]]:
    for module in iter_modules(catalogue.__path__):
        if module.name != "registry":
            make = getattr(import_module(f"{catalogue.__name__}.{module.name}"), "make_catalogue", None)
            if make is not None:
                yield module.name, make


def make_catalogue_of(section: OutsideCatalogue) -> CatalogueAdapter:
    """The adapter of a catalogue of the policy."""
    makers = catalogue_makers()
    if section.type not in makers:
        known = ", ".join(sorted(makers))
        raise NotFound(f"there is no catalogue of the type {section.type!r}", hint=f"known: {known}")
    return makers[section.type](section)
