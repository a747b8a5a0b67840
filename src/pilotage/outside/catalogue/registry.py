"""The adapters of all outside catalogues. A module or folder beside this file is found by itself.

It is the adapter of the `catalogues.*.type` of its name if it has a function `make_catalogue(section)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from pilotage.core.errors import NotFound
from pilotage.core.plug_ins import functions_at, unusable_in
from pilotage.core.policy import OutsideCatalogue
from pilotage.outside import catalogue
from pilotage.outside.catalogue.adapter import CatalogueAdapter

CatalogueMaker = Callable[[OutsideCatalogue], CatalogueAdapter]


@cache
def catalogue_makers() -> Mapping[str, CatalogueMaker]:
    """The function that makes an adapter, by type of catalogue."""
    return functions_at("catalogue_adapters", catalogue.__name__, catalogue.__path__, "make_catalogue")


def make_catalogue_of(section: OutsideCatalogue) -> CatalogueAdapter:
    """The adapter of a catalogue of the policy."""
    makers = catalogue_makers()
    if section.type not in makers:
        hint = unusable_in(section.type) or f"known: {', '.join(sorted(makers))}"
        raise NotFound(f"there is no adapter of catalogues of the type {section.type!r}", hint=hint)
    return makers[section.type](section)
