"""The base of the tables `[catalogues.NAME.TYPE]`, one for each type of outside catalogue."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import msgspec


class CatalogueOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The options of the catalogues of one type. Subclasses add fields; each field is a key of the policy."""

    meaning: ClassVar[str]
    """A few words for the reference of the policy."""

    def mistakes(self) -> Iterator[tuple[str, str]]:
        """Keys with values that no catalogue of the type could use, each with the reason."""
        yield from ()
