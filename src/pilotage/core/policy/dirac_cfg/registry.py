"""Converts the groups and users of Registry."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pilotage.core.policy import toml
from pilotage.core.policy.dirac_cfg.draft import Draft
from pilotage.core.policy.dirac_cfg.tree import Section
from pilotage.core.policy.model import DIRAC_PROPERTIES, JOB_SHARING

JOB_SHARE = 1000.0
"""DIRAC's default for a group without JobShare."""

# DIRAC's documentation of priorities writes JOB_SHARING, its configuration JobSharing.
PROPERTIES = {**DIRAC_PROPERTIES, JOB_SHARING: JOB_SHARING}


def add_groups(root: Section, named: Iterable[tuple[str, int]], draft: Draft) -> dict[str, bool]:
    """Add all groups, also groups named only by a corrector; returns name → whether the group has JobSharing."""
    sharing: dict[str, bool] = {}
    groups = root.find("Registry/Groups")
    if groups is not None:
        groups.used = True
        draft.places["groups"] = groups.line
    for name, group in groups.sections.items() if groups else ():
        group.used = True
        properties = _properties(group, draft)
        sharing[name] = JOB_SHARING in properties
        share = group.number("JobShare")
        values = [("share", toml.number(JOB_SHARE if share is None else share))]
        values.append(("properties", toml.texts(properties)))
        if vo := group.text("VO"):
            values.append(("vo", toml.quoted(vo)))
        draft.add_table(("groups", name), group.line, values)
        if (option := group.options.get("JobShare")) is not None:
            draft.places[f"groups.{name}.share"] = option.line
    for name, line in named:
        if name not in sharing:
            sharing[name] = False
            draft.notes.append(
                f"line {line}: group {name} has a correction, but is not in Registry/Groups: it is added with"
                f" DIRAC's default share {JOB_SHARE:g} and without users"
            )
            draft.add_comment("This group is not in Registry/Groups, but has a correction below.")
            draft.add_table(("groups", name), line, [("share", toml.number(JOB_SHARE))])
    return sharing


def _properties(group: Section, draft: Draft) -> list[str]:
    given = group.items("Properties")
    option = group.options.get("Properties")
    for name in given:
        if name not in PROPERTIES and option is not None:
            draft.omit(option, name, "unknown property")
    return list(dict.fromkeys(PROPERTIES[name] for name in given if name in PROPERTIES))


def add_users(root: Section, draft: Draft) -> None:
    """Add the users of the groups. Call `add_groups` before."""
    section, users, registry = (root.find(f"Registry{below}") for below in ("/Groups", "/Users", ""))
    groups = section.sections if section else {}
    defaults = registry.items("DefaultGroup") if registry else []
    members: dict[str, list[str]] = {}
    for name, group in groups.items():
        for member in group.items("Users"):
            members.setdefault(member, []).append(name)
    written = 0
    if users is not None:
        users.used = True
        draft.places["users"] = users.line
    for name, user in users.sections.items() if users else ():
        belongs = members.pop(name, [])
        if belongs:
            written += _add_user(name, user, belongs, defaults, groups, draft)
        else:
            draft.omit_section(user, "this user is in no group")
    for name, belongs in members.items():
        draft.omit(groups[belongs[0]].options["Users"], name, "this user is not in Registry/Users")
    if not written:
        draft.lines += ["", "[users]"]


def _add_user(
    name: str,
    user: Section,
    belongs: list[str],
    defaults: list[str],
    groups: dict[str, Section],
    draft: Draft,
) -> bool:
    """Add one user; False if the user is suspended in all of their groups."""
    user.used = True
    suspended = user.items("Suspended")
    if suspended:
        kept = [group for group in belongs if groups[group].text("VO") not in suspended]
        if not kept:
            draft.omit_section(user, f"this user is suspended in {', '.join(suspended)}")
            return False
        if kept != belongs:
            text = f"is suspended in {', '.join(suspended)}, and becomes a member of {', '.join(kept)} only"
            draft.notes.append(f"line {user.line}: {name} {text}")
        belongs = kept
    # The first group of a user is the default.
    first = next(
        (group for group in [*user.items("DefaultGroup"), *defaults] if group in belongs), belongs[0]
    )
    ordered = [first, *(group for group in belongs if group != first)]
    values = [("groups", toml.texts(ordered))]
    subjects = re.split(r",\s*(?=/)", user.text("DN"))
    if subjects[0].strip():
        values.append(("subject", toml.quoted(subjects[0].strip())))
    for more in subjects[1:]:
        option = user.options["DN"]
        draft.omit(option, more, "a user has only one subject; the first is used")
    draft.add_table(("users", name), user.line, values)
    return True
