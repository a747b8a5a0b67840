"""A user at the end of the text of a policy."""

from __future__ import annotations

from collections.abc import Sequence

from pilotage.core.policy import toml
from pilotage.core.policy.model import Policy
from pilotage.core.policy.parser import parse


def with_user(text: str, user: str, groups: Sequence[str]) -> tuple[str, Policy]:
    """The text with one user more, and the policy that it describes. Raises InvalidInput if the name cannot be one."""
    changed = f"{text.rstrip()}\n\n{toml.table('users', user)}\ngroups = {toml.texts(groups)}\n"
    return changed, parse(changed)
