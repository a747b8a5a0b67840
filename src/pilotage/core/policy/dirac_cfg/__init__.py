"""A DIRAC configuration as a policy: text in, text out.

What becomes policy: groups and users of the Registry, sites and their CEs of Resources, and ShareCorrections
wherever it stands. Everything else is listed, with line and reason.
"""

from __future__ import annotations

from dataclasses import dataclass

from pilotage.core.errors import InvalidInput
from pilotage.core.policy.dirac_cfg import corrections, registry, resources
from pilotage.core.policy.dirac_cfg.draft import Draft, Left
from pilotage.core.policy.dirac_cfg.tree import read_tree
from pilotage.core.policy.model import ADMINISTRATOR, Policy
from pilotage.core.policy.parser import parse

__all__ = ["Imported", "Left", "policy_of_cfg"]


@dataclass(frozen=True, slots=True)
class Imported:
    text: str
    """A valid policy."""
    policy: Policy
    section: str
    """Where the share corrections stood; "" if there were none."""
    left: tuple[Left, ...]
    notes: tuple[str, ...]


def policy_of_cfg(text: str, *, section: str = "") -> Imported:
    """The policy that a DIRAC configuration says, or `InvalidInput` with the line of the configuration.

    `section` names the ShareCorrections to take, which is needed if there are several that differ.
    """
    root = read_tree(text)
    if not root.sections and not root.options:
        raise InvalidInput("the configuration is empty")
    draft = Draft()
    chosen = corrections.find(root, section, draft)
    sharing = registry.take_groups(root, corrections.named_groups(chosen), draft)
    if not sharing:
        hint = "give a file that has the section Registry, or ShareCorrections with an instance for a Group"
        raise InvalidInput("the configuration names no group", hint=hint)
    registry.take_users(root, draft)
    resources.take_sites(root, draft)
    if chosen is not None:
        corrections.take(chosen, sharing, draft)
    draft.sweep(root)
    made = "\n".join([*_head(), *draft.lines]) + "\n"
    return Imported(
        made, _parsed(made, draft), chosen.path if chosen else "", tuple(draft.left), tuple(draft.notes)
    )


def _head() -> list[str]:
    return [
        "# Made from a DIRAC configuration. Read it before you apply it:",
        f"# no group has {ADMINISTRATOR}. Give it to one that has a user, or nobody can change the policy afterwards.",
    ]


def _parsed(made: str, draft: Draft) -> Policy:
    """The policy; what `parse` refuses is told with the line of the configuration."""
    try:
        return parse(made)
    except InvalidInput as error:
        keys = (error.field or "").split(".")
        places = (".".join(keys[:length]) for length in range(len(keys), 0, -1))
        line = next((draft.places[place] for place in places if place in draft.places), None)
        raise InvalidInput(error.message, hint=error.hint, line=line, field=error.field) from None
