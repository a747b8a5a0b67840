"""Converts ShareCorrections, which may be at the root, or under Operations with or without VO and setup."""

from __future__ import annotations

from pilotage.core.errors import InvalidInput
from pilotage.core.policy import toml
from pilotage.core.policy.dirac_cfg.draft import Draft
from pilotage.core.policy.dirac_cfg.tree import Section
from pilotage.core.policy.model import Accounting
from pilotage.core.shares.correctors import CORRECTORS
from pilotage.core.shares.correctors.wms_history import HistoryInstance

NAME, CORRECTOR, TO_START = "ShareCorrections", "WMSHistory", "ShareCorrectorsToStart"
FACTORS = ("MaxGlobalCorrectionFactor", "MaxGlobalCorrection")
SLICE = {"TimeSpan": "time_span", "Weight": "weight", "MaxCorrection": "max_correction"}


def find_section(root: Section, wanted: str, draft: Draft) -> Section | None:
    """The selected section; raises `InvalidInput` if several sections differ and none is selected."""
    sections = [section for section in root.walk() if section.path.rpartition("/")[2] == NAME]
    if wanted:
        named = "/".join(filter(None, wanted.split("/")))
        chosen = next((section for section in sections if section.path in (named, f"{named}/{NAME}")), None)
        if chosen is None:
            hint = f"there are: {', '.join(section.path for section in sections) or 'none'}"
            raise InvalidInput(f"there is no section {named} with share corrections", hint=hint)
    elif sections:
        chosen = sections[0]
        if any(section.content() != chosen.content() for section in sections):
            places = ", ".join(f"{section.path} (line {section.line})" for section in sections)
            hint = f"choose a section with --section: {places}"
            raise InvalidInput(
                "there are several different ShareCorrections sections", hint=hint, line=sections[1].line
            )
    else:
        return None
    for section in sections:
        if section is not chosen:
            same = section.content() == chosen.content()
            draft.omit_section(
                section, f"{'identical to' if same else 'not selected; selected is'} {chosen.path}"
            )
    return chosen


def named_groups(section: Section | None) -> list[tuple[str, int]]:
    """(group, line) for each instance that corrects between the owners of a group."""
    corrector = section.sections.get(CORRECTOR) if section and _started(section) else None
    instances = corrector.sections.values() if corrector else ()
    return [
        (group, instance.options["Group"].line) for instance in instances for group in instance.items("Group")
    ]


def _started(section: Section) -> bool:
    return CORRECTOR in section.items(TO_START) and CORRECTOR in section.sections


def add_corrections(section: Section, sharing: dict[str, bool], draft: Draft) -> None:
    """Add the corrections of a section; `sharing` maps each group to whether it has JobSharing."""
    section.used = True
    draft.places["correction"] = section.line
    option = section.take(TO_START)
    wanted = section.items(TO_START)
    for name in wanted:
        if name != CORRECTOR and option is not None:
            draft.omit(option, name, _unknown_corrector(name))
    corrector = section.sections.get(CORRECTOR)
    if corrector is None or CORRECTOR not in wanted:
        if corrector is not None:
            draft.omit_section(corrector, f"{TO_START} does not name it")
        elif CORRECTOR in wanted and option is not None:
            draft.omit(option, CORRECTOR, "the corrector has no section")
        return
    corrector.used = True
    kept = [
        (_name_of(name, group, instance, corrector), group, instance)
        for name, instance in corrector.sections.items()
        for group in instance.items("Group") or [""]
        if _is_applicable(name, group, instance, sharing, draft)
    ]
    if not kept:
        draft.notes.append(
            f"line {corrector.line}: no instance of {CORRECTOR} was taken, so shares are not corrected"
        )
        return
    draft.add_table(("correction",), section.line, [("correctors", toml.texts([CORRECTOR]))])
    longest = max(
        (_add_instance(name, group, instance, draft) for name, group, instance in kept), default=0.0
    )
    if longest > Accounting().history:
        draft.notes.append(f"accounting.history is raised to {longest:g} s, the longest TimeSpan")
        draft.add_table(("accounting",), corrector.line, [("history", toml.number(longest))])


def _unknown_corrector(corrector: str) -> str:
    if corrector in CORRECTORS:
        return "DIRAC has no such corrector; add its instances to the policy by hand"
    return "there is no such corrector"


def _name_of(name: str, group: str, instance: Section, corrector: Section) -> str:
    """The name of the instance for one group. A list of groups becomes one instance per group."""
    if len(instance.items("Group")) < 2:
        return name
    name = f"{name}_{group}"
    while name in corrector.sections:
        name += "_"
    return name


def _is_applicable(name: str, group: str, instance: Section, sharing: dict[str, bool], draft: Draft) -> bool:
    if not sharing.get(group):
        return True
    reason = f"{group} has JobSharing, so its owners have no shares of their own"
    draft.add_comment(f"Not taken: {name}: {reason}.")
    if len(instance.items("Group")) > 1:
        draft.omit(instance.options["Group"], group, reason)
    else:
        draft.omit_section(instance, reason)
    return False


def _add_instance(name: str, group: str, instance: Section, draft: Draft) -> float:
    """Add an instance, between the groups or between the owners of `group`; returns its longest time span."""
    instance.used = True
    path = ("correction", CORRECTOR, name)
    values = []
    if group:
        values.append(("group", toml.quoted(group)))
        draft.places[".".join((*path, "group"))] = instance.options["Group"].line
    factor = _factor(name, instance, draft)
    if factor is not None:
        values.append(("max_global_correction_factor", toml.number(factor)))
    draft.add_table(path, instance.line, values)
    longest = 0.0
    for label, part in instance.sections.items():
        part.used = True
        here = (*path, "slices", label)
        values = []
        for option, key in SLICE.items():
            given = part.number(option)
            if given is not None:
                values.append((key, toml.number(given)))
                draft.places[".".join((*here, key))] = part.options[option].line
                longest = max(longest, given if key == "time_span" else 0.0)
        draft.add_table(here, part.line, values)
    return longest


def _factor(name: str, instance: Section, draft: Draft) -> float | None:
    """The factor from the documented option, or from the option that DIRAC reads."""
    documented, effective = (instance.number(key) for key in FACTORS)
    given = [key for key in FACTORS if key in instance.options]
    for key in given:
        place = ".".join(("correction", CORRECTOR, name, "max_global_correction_factor"))
        draft.places[place] = instance.options[key].line
    if len(given) > 1 and documented != effective:
        message = f"{instance.path} has both {FACTORS[0]} and {FACTORS[1]}, with values that differ"
        raise InvalidInput(message, hint="keep one of them", line=instance.options[FACTORS[1]].line)
    if documented is not None and effective is None:
        usual = HistoryInstance().max_global_correction_factor
        if documented != usual:
            draft.notes.append(
                f"line {instance.options[FACTORS[0]].line}: {FACTORS[0]} = {documented:g} is taken; DIRAC itself reads"
                f" {FACTORS[1]}, so it used the default {usual:g}"
            )
    return documented if documented is not None else effective
