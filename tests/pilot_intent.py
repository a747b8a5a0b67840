"""Intents of pilots for tests of the store and of the services."""

from __future__ import annotations

from typing import Any

from pilotage.services.pilots.enrolment import secret_hash
from pilotage.store.tables.pilots import NewPilot


def pilot_intent(stamp: str, **facts: Any) -> NewPilot:
    """The intent of a pilot of one core at the CE `local`, whose secret is the stamp. `facts` replace its fields."""
    plain = NewPilot(None, stamp, secret_hash(stamp), 0, "here", "local", None, "generic", 1, 0, 1.0)
    return plain._replace(**facts)
