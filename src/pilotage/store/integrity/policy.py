"""The policy as far as a check needs it."""

from __future__ import annotations

from pilotage.core.errors import InvalidInput
from pilotage.core.policy import Policy, parse
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import instance


def policy_in_force(connection: Connection) -> Policy | None:
    """The stored policy; None: there is none, or this version of Pilotage refuses it."""
    current = instance.current_policy(connection)
    if current is None:
        return None
    try:
        return parse(current.text)
    except InvalidInput:
        # `up` says why, and how to go on.
        return None
