"""The start policies: how the input of a step becomes elements. A module in this folder is found by itself."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules

from pilotage.core.requests.start_policy import Reads, StartPolicy


def _find() -> Iterator[StartPolicy]:
    for module in iter_modules(__path__):
        name = f"{__name__}.{module.name}"
        for member in vars(import_module(name)).values():
            if isinstance(member, type) and issubclass(member, StartPolicy) and member.__module__ == name:
                yield member()


START_POLICIES: dict[str, StartPolicy] = {policy.name: policy for policy in _find()}
"""Each start policy by the name that a step gives."""
GIVEN_BY_USERS: tuple[str, ...] = tuple(
    name for name, policy in START_POLICIES.items() if policy.reads is not Reads.FAILURES
)
"""The start policies that the specification of a request may name."""
