"""The start policies: how the input of a step becomes elements. A module in this folder is found by itself."""

from __future__ import annotations

from pilotage.core.plug_ins import classes_at
from pilotage.core.requests.start_policy import Reads, StartPolicy

START_POLICIES: dict[str, StartPolicy] = {
    name: kind()
    for name, kind in classes_at(
        "start_policies",
        __name__,
        __path__,
        StartPolicy,  # type: ignore[type-abstract]
        named="name",
        check=lambda kind: kind(),
    ).items()
}
"""Each start policy by the name that a step gives."""
GIVEN_BY_USERS: tuple[str, ...] = tuple(
    name for name, policy in START_POLICIES.items() if policy.reads is not Reads.FAILURES
)
"""The start policies that the specification of a request may name."""
