"""ShareCorrections, wherever it stands: at the root, or under Operations with or without VO and setup."""

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


def find(root: Section, wanted: str, draft: Draft) -> Section | None:
    """The one that is meant; `InvalidInput` if several differ and none of them was named."""
    found = [section for section in root.walk() if section.path.rpartition("/")[2] == NAME]
    if wanted:
        named = "/".join(filter(None, wanted.split("/")))
        chosen = next((one for one in found if one.path in (named, f"{named}/{NAME}")), None)
        if chosen is None:
            hint = f"there are: {', '.join(one.path for one in found) or 'none'}"
            raise InvalidInput(f"there is no section {named} with share corrections", hint=hint)
    elif found:
        chosen = found[0]
        if any(one.content() != chosen.content() for one in found):
            places = ", ".join(f"{one.path} (line {one.line})" for one in found)
            hint = f"name one with --section; there are: {places}"
            raise InvalidInput(
                "there are several ShareCorrections that differ", hint=hint, line=found[1].line
            )
    else:
        return None
    for one in found:
        if one is not chosen:
            same = one.content() == chosen.content()
            draft.leave_section(one, f"{'the same as' if same else 'not chosen, but'} {chosen.path}")
    return chosen


def named_groups(section: Section | None) -> list[tuple[str, int]]:
    """The groups between whose owners an instance corrects, with the line."""
    corrector = section.sections.get(CORRECTOR) if section and _started(section) else None
    instances = corrector.sections.values() if corrector else ()
    return [(group, one.options["Group"].line) for one in instances for group in one.items("Group")]


def _started(section: Section) -> bool:
    return CORRECTOR in section.items(TO_START) and CORRECTOR in section.sections


def take(section: Section, sharing: dict[str, bool], draft: Draft) -> None:
    """Write the correction of one section; `sharing` tells of each group whether it shares its jobs."""
    section.used = True
    draft.places["correction"] = section.line
    option = section.take(TO_START)
    wanted = section.items(TO_START)
    for name in wanted:
        if name != CORRECTOR and option is not None:
            draft.leave(option, name, _not_taken(name))
    corrector = section.sections.get(CORRECTOR)
    if corrector is None or CORRECTOR not in wanted:
        if corrector is not None:
            draft.leave_section(corrector, f"{TO_START} does not name it")
        elif CORRECTOR in wanted and option is not None:
            draft.leave(option, CORRECTOR, "it has no section, so nothing would be corrected")
        return
    corrector.used = True
    kept = [
        (_name_of(name, group, one, corrector), group, one)
        for name, one in corrector.sections.items()
        for group in one.items("Group") or [""]
        if _makes_sense(name, group, one, sharing, draft)
    ]
    if not kept:
        draft.notes.append(
            f"line {corrector.line}: no instance of {CORRECTOR} was taken: nothing is corrected"
        )
        return
    draft.table(("correction",), section.line, [("correctors", toml.texts([CORRECTOR]))])
    longest = max((_take_instance(name, group, one, draft) for name, group, one in kept), default=0.0)
    if longest > Accounting().history:
        draft.notes.append(f"accounting.history is raised to {longest:g} s, the longest TimeSpan")
        draft.table(("accounting",), corrector.line, [("history", toml.number(longest))])


def _not_taken(corrector: str) -> str:
    if corrector in CORRECTORS:
        return "DIRAC has no such corrector; write its instances in the policy"
    return "there is no such corrector"


def _name_of(name: str, group: str, instance: Section, corrector: Section) -> str:
    """The name of the instance for one of its groups: with a list of groups each gets an instance of its own."""
    if len(instance.items("Group")) < 2:
        return name
    name = f"{name}_{group}"
    while name in corrector.sections:
        name += "_"
    return name


def _makes_sense(name: str, group: str, instance: Section, sharing: dict[str, bool], draft: Draft) -> bool:
    if not sharing.get(group):
        return True
    reason = f"{group} has JobSharing, so its owners have no shares"
    draft.remark(f"Not taken: {name}: {reason}.")
    if len(instance.items("Group")) > 1:
        draft.leave(instance.options["Group"], group, reason)
    else:
        draft.leave_section(instance, reason)
    return False


def _take_instance(name: str, group: str, instance: Section, draft: Draft) -> float:
    """Write one instance, between the groups or between the owners of `group`; its longest time span."""
    instance.used = True
    path = ("correction", CORRECTOR, name)
    values = []
    if group:
        values.append(("group", toml.quoted(group)))
        draft.places[".".join((*path, "group"))] = instance.options["Group"].line
    factor = _factor(name, instance, draft)
    if factor is not None:
        values.append(("max_global_correction_factor", toml.number(factor)))
    draft.table(path, instance.line, values)
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
        draft.table(here, part.line, values)
    return longest


def _factor(name: str, instance: Section, draft: Draft) -> float | None:
    """Under the document's key, or under the one that DIRAC reads."""
    documents, diracs = (instance.number(key) for key in FACTORS)
    given = [key for key in FACTORS if key in instance.options]
    for key in given:
        place = ".".join(("correction", CORRECTOR, name, "max_global_correction_factor"))
        draft.places[place] = instance.options[key].line
    if len(given) > 1 and documents != diracs:
        message = f"{instance.path} has both {FACTORS[0]} and {FACTORS[1]}, and they differ"
        raise InvalidInput(message, hint="keep one of them", line=instance.options[FACTORS[1]].line)
    if documents is not None and diracs is None:
        usual = HistoryInstance().max_global_correction_factor
        if documents != usual:
            draft.notes.append(
                f"line {instance.options[FACTORS[0]].line}: {FACTORS[0]} = {documents:g} is taken; DIRAC itself reads"
                f" {FACTORS[1]}, and has worked with {usual:g}"
            )
    return documents if documents is not None else diracs
