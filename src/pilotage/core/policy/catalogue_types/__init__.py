"""The outside catalogues that a policy can name as `catalogues.*.type`. A module in this folder is found by itself.

The name of the module is the type. Its adapter is the module or folder of the same name in outside/catalogue.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules

from pilotage.core.policy.catalogue_options import CatalogueOptions


def _find() -> Iterator[tuple[str, type[CatalogueOptions]]]:
    for module in iter_modules(__path__):
        name = f"{__name__}.{module.name}"
        for member in vars(import_module(name)).values():
            if (
                isinstance(member, type)
                and issubclass(member, CatalogueOptions)
                and member.__module__ == name
            ):
                yield module.name, member


CATALOGUE_TYPES: dict[str, type[CatalogueOptions]] = dict(_find())
"""The class of each type's options, by type."""
