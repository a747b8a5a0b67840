"""The tables: one schema for SQLite and PostgreSQL. Times are seconds since 1970, memory is MB (2^20 bytes).

A new database is made from it. Migrations (store/migrations) lead to it from the schema of every earlier release.
A module of this folder needs no registration.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from pilotage.store.schema.base import metadata

for module in iter_modules(__path__):
    import_module(f"{__name__}.{module.name}")

__all__ = ["metadata"]
