"""What must hold between the tables of a policy."""

from __future__ import annotations

import math
from typing import Any

from pilotage.core.errors import InvalidInput
from pilotage.core.policy.facts import PROPERTIES, Jobs, Policy
from pilotage.core.policy.places import line_of
from pilotage.core.queues.limits import ATTRIBUTES


def check(policy: Policy, text: str) -> None:
    """Raise `InvalidInput` with the line for what cannot be meant."""
    refuse = _Refuser(text)
    _check_people(policy, refuse)
    _check_places(policy, refuse)
    _check_limits(policy, refuse)
    _check_jobs(policy.jobs, refuse)
    for buckets in ("cpu_buckets", "memory_buckets"):
        values = getattr(policy.matching, buckets)
        if not values or list(values) != sorted(set(values)) or values[0] <= 0:
            refuse(f"matching.{buckets} must rise and be positive", "matching", buckets)


class _Refuser:
    """Raises `InvalidInput` with the line where the keys stand."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __call__(self, message: str, *keys: str, hint: str = "") -> None:
        raise InvalidInput(message, hint=hint, line=line_of(self._text, list(keys)), field=".".join(keys))


def _check_people(policy: Policy, refuse: _Refuser) -> None:
    for name, group in policy.groups.items():
        if not 0 <= group.share < float("inf"):
            refuse(f"the share of group {name} must be a number of at least 0", "groups", name, "share")
        for unknown in set(group.properties) - set(PROPERTIES):
            known = f"known: {', '.join(PROPERTIES)}"
            refuse(f"group {name}: unknown property {unknown}", "groups", name, "properties", hint=known)
    for name, user in policy.users.items():
        if not user.groups:
            refuse(f"user {name} is in no group", "users", name, "groups")
        for missing in [group for group in user.groups if group not in policy.groups]:
            refuse(
                f"user {name}: there is no group {missing}",
                "users",
                name,
                "groups",
                hint=_known(policy.groups),
            )


def _check_places(policy: Policy, refuse: _Refuser) -> None:
    for name, ce in policy.ces.items():
        if ce.site not in policy.sites:
            refuse(f"CE {name}: there is no site {ce.site}", "ces", name, "site", hint=_known(policy.sites))
        for key in ("lease", "heartbeat", "cpu_power", "wall"):
            if not 0 < getattr(ce, key) < math.inf:
                refuse(f"CE {name}: {key} must be a number above 0", "ces", name, key)
        if ce.heartbeat * 3 > ce.lease:
            refuse(f"CE {name}: a lease must last at least three heartbeats", "ces", name, "lease")
        for key in ("processors", "memory", "idle"):
            if not 0 <= getattr(ce, key) < math.inf:
                refuse(f"CE {name}: {key} must be a number of at least 0", "ces", name, key)


def _check_limits(policy: Policy, refuse: _Refuser) -> None:
    for place, limit in enumerate(policy.limits):
        here = ("limits", str(place))
        if limit.attribute not in ATTRIBUTES:
            known = f"known: {', '.join(ATTRIBUTES)}"
            refuse(f"limits: unknown attribute {limit.attribute}", *here, "attribute", hint=known)
        running = 0 if limit.running is None else limit.running
        counts = running >= 0 and 0 <= limit.delay < math.inf and limit.burst >= 1
        if not counts or (limit.running is None and not limit.delay):
            refuse("a limit needs running or delay (at least 0), and a burst of at least 1", *here)
        if limit.site and limit.site not in policy.sites:
            refuse(f"limits: there is no site {limit.site}", *here, "site", hint=_known(policy.sites))
        if limit.ce and limit.ce not in policy.ces:
            refuse(f"limits: there is no CE {limit.ce}", *here, "ce", hint=_known(policy.ces))


def _check_jobs(jobs: Jobs, refuse: _Refuser) -> None:
    for key in jobs.__struct_fields__:
        if not 0 <= getattr(jobs, key) < math.inf:
            refuse(f"jobs.{key} must be a number of at least 0", "jobs", key)
    if not jobs.offer_timeout:
        refuse("jobs.offer_timeout must be above 0", "jobs", "offer_timeout")


def _known(names: dict[str, Any]) -> str:
    return f"there are: {', '.join(sorted(names)) or 'none'}"
