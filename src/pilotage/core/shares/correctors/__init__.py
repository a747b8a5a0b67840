"""The share correctors that a policy can name. A module in this folder is found by itself."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules

from pilotage.core.shares.corrector import CorrectorInstance


def _find() -> Iterator[type[CorrectorInstance]]:
    for module in iter_modules(__path__):
        name = f"{__name__}.{module.name}"
        for member in vars(import_module(name)).values():
            if (
                isinstance(member, type)
                and issubclass(member, CorrectorInstance)
                and member.__module__ == name
            ):
                yield member


CORRECTORS: dict[str, type[CorrectorInstance]] = {
    instance_type.corrector: instance_type for instance_type in _find()
}
"""The class of each corrector, by the name that the policy gives."""
