"""The routes of the command line and the Python client, a module for each noun.

Modules in this folder are found automatically: every `APIRouter` that they define is served.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules

from fastapi import APIRouter


def routers() -> Iterator[APIRouter]:
    """The routers of all modules, ordered by module name."""
    for module in iter_modules(__path__):
        for member in vars(import_module(f"{__name__}.{module.name}")).values():
            if isinstance(member, APIRouter):
                yield member
