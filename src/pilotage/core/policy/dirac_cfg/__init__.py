"""Converts a DIRAC configuration into a policy, both as texts.

The policy gets the groups and users of Registry, the sites and CEs of Resources, and ShareCorrections from any
section. It follows the preset dirac. Everything else is listed as omitted, with line and reason.
"""

from __future__ import annotations

from dataclasses import dataclass

from pilotage.core.errors import InvalidInput
from pilotage.core.policy.dirac_cfg import corrections, registry, resources
from pilotage.core.policy.dirac_cfg.draft import Draft, Omission
from pilotage.core.policy.dirac_cfg.tree import read_tree
from pilotage.core.policy.model import ADMINISTRATOR, Policy
from pilotage.core.policy.parser import parse
from pilotage.core.policy.presets.dirac import PRESET

__all__ = ["ImportedPolicy", "Omission", "import_policy"]


@dataclass(frozen=True, slots=True)
class ImportedPolicy:
    text: str
    """A valid policy."""
    policy: Policy
    section: str
    """The section of the share corrections; "" if there were none."""
    omissions: tuple[Omission, ...]
    notes: tuple[str, ...]


def import_policy(text: str, *, section: str = "") -> ImportedPolicy:
    """The policy of a DIRAC configuration; raises `InvalidInput` with the line of the configuration.

    `section` selects one ShareCorrections section. It is required if several sections differ.
    """
    root = read_tree(text)
    if not root.sections and not root.options:
        raise InvalidInput("the DIRAC configuration is empty")
    draft = Draft()
    chosen = corrections.find_section(root, section, draft)
    sharing = registry.add_groups(root, corrections.named_groups(chosen), draft)
    if not sharing:
        hint = "give a file with the section Registry, or with an instance for a Group in ShareCorrections"
        raise InvalidInput("the DIRAC configuration has no groups", hint=hint)
    registry.add_users(root, draft)
    resources.add_sites(root, draft)
    if chosen is not None:
        corrections.add_corrections(chosen, sharing, draft)
    draft.omit_unused(root)
    text_of_policy = "\n".join([*_head(), *draft.lines, "", PRESET.text])
    return ImportedPolicy(
        text=text_of_policy,
        policy=_parse(text_of_policy, draft),
        section=chosen.path if chosen else "",
        omissions=tuple(draft.omissions),
        notes=tuple(draft.notes),
    )


def _head() -> list[str]:
    return [
        "# Generated from a DIRAC configuration. Review it before you apply it:",
        f"# no group has {ADMINISTRATOR}. Give it to a group with a user; else nobody can change the policy later.",
    ]


def _parse(text: str, draft: Draft) -> Policy:
    """The parsed policy; errors carry the line of the DIRAC configuration."""
    try:
        return parse(text)
    except InvalidInput as error:
        keys = (error.field or "").split(".")
        places = (".".join(keys[:length]) for length in range(len(keys), 0, -1))
        line = next((draft.places[place] for place in places if place in draft.places), None)
        raise InvalidInput(error.message, hint=error.hint, line=line, field=error.field) from None
