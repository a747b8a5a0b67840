"""The state of tokens in memory: keys in force and revocations, so that a request with a token reads no row."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from pilotage.store.engine.connection import Connection
from pilotage.store.tables import tokens

LONGEST_LIFETIME = 30 * 86400.0
"""Seconds. No token lives longer, so older revocations and keys have no effect."""


@dataclass(frozen=True, slots=True)
class TokenKey:
    salt: str
    """Empty: the key in the home's secrets itself."""
    accepted_until: float


@dataclass(frozen=True, slots=True)
class TokenState:
    """The keys and revocations of a pool. It is replaced as a whole."""

    keys: Mapping[int, TokenKey] = field(default_factory=lambda: {0: TokenKey("", math.inf)})
    """The keys by their numbers."""
    current: int = 0
    """The number of the key that signs new tokens."""
    revoked: frozenset[int] = frozenset()
    """The ids of revoked tokens."""
    cutoffs: Mapping[str, float] = field(default_factory=dict)
    """All tokens of these users that were issued up to these instants are revoked."""

    def is_revoked(self, token: int | None, user: str, issued: float) -> bool:
        """Whether a token is revoked. `token`: its id; None: it has none."""
        return token in self.revoked or issued <= self.cutoffs.get(user, -math.inf)


def read_token_state(connection: Connection, now: float) -> TokenState:
    """Read the state of tokens from the store."""
    revoked = tokens.revoked_since(connection, now - LONGEST_LIFETIME)
    cutoffs = tokens.cutoffs(connection)
    rows = tokens.signing_keys(connection)
    if not rows:
        return TokenState(revoked=revoked, cutoffs=cutoffs)
    keys = {
        row.number: TokenKey(row.salt, math.inf if row.accepted_until is None else row.accepted_until)
        for row in rows
    }
    return TokenState(keys, max(keys), revoked, cutoffs)
