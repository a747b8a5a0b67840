"""Registry: groups and users."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pilotage.core.policy import toml
from pilotage.core.policy.dirac_cfg.draft import Draft
from pilotage.core.policy.dirac_cfg.tree import Section
from pilotage.core.policy.model import DIRAC_PROPERTIES, JOB_SHARING

JOB_SHARE = 1000.0
"""What DIRAC gives to a group that names no JobShare."""

# The document of the priority schema writes JOB_SHARING where the configuration has JobSharing.
PROPERTIES = {**DIRAC_PROPERTIES, JOB_SHARING: JOB_SHARING}


def take_groups(root: Section, named: Iterable[tuple[str, int]], draft: Draft) -> dict[str, bool]:
    """Write the groups, those too that only an instance of a corrector names; by name: whether it shares its jobs."""
    found: dict[str, bool] = {}
    groups = root.find("Registry/Groups")
    if groups is not None:
        groups.used = True
        draft.places["groups"] = groups.line
    for name, group in groups.sections.items() if groups else ():
        group.used = True
        properties = _properties(group, draft)
        found[name] = JOB_SHARING in properties
        share = group.number("JobShare")
        values = [("share", toml.number(JOB_SHARE if share is None else share))]
        values.append(("properties", toml.texts(properties)))
        if vo := group.text("VO"):
            values.append(("vo", toml.quoted(vo)))
        draft.table(("groups", name), group.line, values)
        if (option := group.options.get("JobShare")) is not None:
            draft.places[f"groups.{name}.share"] = option.line
    for name, line in named:
        if name not in found:
            found[name] = False
            draft.notes.append(
                f"line {line}: group {name} is corrected, but not in Registry/Groups: it is added with DIRAC's"
                f" share {JOB_SHARE:g} and without users"
            )
            draft.remark("Not in Registry/Groups, but corrected below.")
            draft.table(("groups", name), line, [("share", toml.number(JOB_SHARE))])
    return found


def _properties(group: Section, draft: Draft) -> list[str]:
    given = group.items("Properties")
    option = group.options.get("Properties")
    for name in given:
        if name not in PROPERTIES and option is not None:
            draft.leave(option, name, "this property is not known")
    return list(dict.fromkeys(PROPERTIES[name] for name in given if name in PROPERTIES))


def take_users(root: Section, draft: Draft) -> None:
    """Write the users of the groups; the groups must have been taken."""
    section, users, registry = (root.find(f"Registry{below}") for below in ("/Groups", "/Users", ""))
    groups = section.sections if section else {}
    defaults = registry.items("DefaultGroup") if registry else []
    members: dict[str, list[str]] = {}
    for name, group in groups.items():
        for user in group.items("Users"):
            members.setdefault(user, []).append(name)
    written = 0
    if users is not None:
        users.used = True
        draft.places["users"] = users.line
    for name, one in users.sections.items() if users else ():
        belongs = members.pop(name, [])
        if belongs:
            written += _take_user(name, one, belongs, defaults, groups, draft)
        else:
            draft.leave_section(one, "this user is in no group")
    for name, belongs in members.items():
        draft.leave(groups[belongs[0]].options["Users"], name, "this user is not in Registry/Users")
    if not written:
        draft.lines += ["", "[users]"]


def _take_user(
    name: str,
    user: Section,
    belongs: list[str],
    defaults: list[str],
    groups: dict[str, Section],
    draft: Draft,
) -> bool:
    """Write one user; False if it was suspended in all that it is in."""
    user.used = True
    suspended = user.items("Suspended")
    if suspended:
        kept = [one for one in belongs if groups[one].text("VO") not in suspended]
        if not kept:
            draft.leave_section(user, f"this user is suspended in {', '.join(suspended)}")
            return False
        if kept != belongs:
            text = f"is suspended in {', '.join(suspended)}, and taken into {', '.join(kept)} only"
            draft.notes.append(f"line {user.line}: {name} {text}")
        belongs = kept
    # The first group of a user is the default.
    first = next((one for one in [*user.items("DefaultGroup"), *defaults] if one in belongs), belongs[0])
    ordered = [first, *(one for one in belongs if one != first)]
    values = [("groups", toml.texts(ordered))]
    subjects = re.split(r",\s*(?=/)", user.text("DN"))
    if subjects[0].strip():
        values.append(("subject", toml.quoted(subjects[0].strip())))
    for more in subjects[1:]:
        option = user.options["DN"]
        draft.leave(option, more, "a user has one subject; the first is taken")
    draft.table(("users", name), user.line, values)
    return True
