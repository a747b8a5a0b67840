"""The base of the tables `[ces.NAME.TYPE]`, one for each type of batch system."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import msgspec


class BatchOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The options of the CEs of one batch system. Subclasses add fields; each field is a key of the policy."""

    meaning: ClassVar[str]
    """A few words for the reference of the policy."""
    own_endpoints: ClassVar[str] = "its adapter has a single way to the batch system"
    """Why a pool's `endpoints` cannot be used: part of the hint of the policy check."""

    def mistakes(self) -> Iterator[tuple[str, str]]:
        """Keys with values that no batch system of the type could use, each with the reason."""
        yield from ()
