"""The splitting algorithms that a request can name. A module in this folder is found by itself."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules

from pilotage.core.splitting.algorithm import Algorithm


def _find() -> Iterator[type[Algorithm]]:
    for module in iter_modules(__path__):
        name = f"{__name__}.{module.name}"
        for member in vars(import_module(name)).values():
            if isinstance(member, type) and issubclass(member, Algorithm) and member.__module__ == name:
                yield member


ALGORITHMS: dict[str, type[Algorithm]] = {kind.algorithm: kind for kind in _find()}
"""The class of each algorithm, by the name that a request gives."""
