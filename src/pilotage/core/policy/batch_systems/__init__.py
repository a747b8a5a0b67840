"""The batch systems that a policy can name as `ces.*.type`. A module in this folder is found by itself.

The name of the module is the type. Its adapter is the module of the same name in outside/batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules

from pilotage.core.policy.batch_options import BatchOptions


def _find() -> Iterator[tuple[str, type[BatchOptions]]]:
    for module in iter_modules(__path__):
        name = f"{__name__}.{module.name}"
        for member in vars(import_module(name)).values():
            if isinstance(member, type) and issubclass(member, BatchOptions) and member.__module__ == name:
                yield module.name, member


BATCH_SYSTEMS: dict[str, type[BatchOptions]] = dict(_find())
"""The class of each batch system's options, by type."""
