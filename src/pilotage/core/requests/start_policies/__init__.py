"""The start policies: how the input of a step becomes elements. A module in this folder is found by itself."""

from __future__ import annotations

from pilotage.core.plug_ins import classes_in
from pilotage.core.requests.start_policy import Reads, StartPolicy

START_POLICIES: dict[str, StartPolicy] = {
    kind.name: kind()
    for _, kind in classes_in(__name__, __path__, StartPolicy)  # type: ignore[type-abstract]
}
"""Each start policy by the name that a step gives."""
GIVEN_BY_USERS: tuple[str, ...] = tuple(
    name for name, policy in START_POLICIES.items() if policy.reads is not Reads.FAILURES
)
"""The start policies that the specification of a request may name."""
