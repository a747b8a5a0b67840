"""The facts of this server, and the state that all servers of a pool learn from the store."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from pilotage.services.pool.token_state import TokenState


@dataclass(slots=True)
class ServerState:
    """The incarnation, the home, the version of the policy, and the keys of tokens."""

    incarnation: int
    policy_version: int
    """The version of the policy in force here."""
    home_owner: str
    home_storage: str = ""
    """The storage place of sites with a local CE whose policy names none; empty: there is none."""
    instance: str = ""
    """The identifier of the instance, the same for all servers of a pool."""
    token_state: TokenState = field(default_factory=TokenState)
    """The keys that sign tokens, and the revoked tokens."""
    alive_at: float = -inf
    """The last heartbeat of this server, by the clock of that moment."""
    draining: bool = False
    """The server is about to stop: pilots get no new jobs."""

    def attempt_instant(self, now: float) -> float:
        """When an attempt begins or ends: after a step back of the clock not before use that may be charged."""
        return max(now, self.alive_at)
