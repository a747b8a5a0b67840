"""Plug-ins are found by their place: a module in the folder of a package needs no registration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, TypeVar

Base = TypeVar("Base")


def classes_in(package: str, path: Iterable[str], base: type[Base]) -> Iterator[tuple[str, type[Base]]]:
    """The subclasses of `base` that modules of the package define, each with the name of its module."""
    for module in iter_modules(path):
        name = f"{package}.{module.name}"
        for member in vars(import_module(name)).values():
            if isinstance(member, type) and issubclass(member, base) and member.__module__ == name:
                yield module.name, member


def functions_in(package: str, path: Iterable[str], function: str) -> Iterator[tuple[str, Any]]:
    """The function of this name in each module of the package that has one, with the name of the module."""
    for module in iter_modules(path):
        member = getattr(import_module(f"{package}.{module.name}"), function, None)
        if member is not None:
            yield module.name, member
