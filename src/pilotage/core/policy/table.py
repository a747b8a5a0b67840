"""The base of all tables of the policy."""

from __future__ import annotations

import msgspec


class PolicyTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One table of the document."""
