"""Finds a section of the policy by the name that a user gave."""

from __future__ import annotations

from pilotage.core.errors import NotFound
from pilotage.core.policy.ce_model import Ce
from pilotage.core.policy.model import Policy


def ce_by_name(policy: Policy, name: str) -> Ce:
    """The CE of this name. Raises NotFound with the names that there are."""
    if (ce := policy.ces.get(name)) is None:
        known = ", ".join(policy.ces) or "none"
        raise NotFound(f"the policy has no CE {name}", hint=f"CEs: {known}")
    return ce
