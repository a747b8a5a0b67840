"""Converts Resources/Sites: the sites, and their usable computing elements.

A CE of the policy starts pilots on the server's own machine, like DIRAC's type Local with the batch system Host. All
other CEs become comments in the policy.
"""

from __future__ import annotations

import math

from pilotage.core.errors import InvalidInput
from pilotage.core.policy import toml
from pilotage.core.policy.dirac_cfg.draft import Draft, option_lines
from pilotage.core.policy.dirac_cfg.tree import Section

SI00_OF_A_REFERENCE_CORE = 250.0

NUMBERS = {
    "NumberOfProcessors": ("processors", 1.0),
    "MaxRAM": ("memory", 1.0),
    "maxCPUTime": ("wall", 60.0),
    "SI00": ("cpu_power", 1 / SI00_OF_A_REFERENCE_CORE),
}
"""Option of a CE or queue → (key of the policy, conversion factor)."""
LISTS = {"Tag": "tags", "RequiredTag": "required_tags"}


def add_sites(root: Section, draft: Draft) -> None:
    """Add all sites, and the usable CEs."""
    sites = root.find("Resources/Sites")
    if sites is None:
        return
    sites.used = True
    for grid in sites.sections.values():
        grid.used = True
        for name, site in grid.sections.items():
            if ("sites", name) in draft.tables:
                draft.omit_section(site, f"the site {name} exists already")
                continue
            site.used = True
            draft.add_table(("sites", name), site.line)
            _add_ces(name, site, draft)


def _add_ces(site: str, section: Section, draft: Draft) -> None:
    ces = section.sections.get("CEs")
    if ces is not None:
        ces.used = True
    known = ces.sections if ces else {}
    option = section.options.get("CE")
    for name in section.items("CE"):
        if name not in known and option is not None:
            draft.add_comment(f"Not taken: CE {name} of {site}, which has no section under CEs.")
            reason = "this CE has no section under CEs"
            draft.omit(option, name, reason)
    for name, ce in known.items():
        if reason := _unusable(ce):
            draft.add_comment(f"Not taken: CE {name} of {site}: {reason}.", *option_lines(ce))
            draft.omit_section(ce, reason)
        else:
            _add_ce(site, name, ce, draft)


def _unusable(ce: Section) -> str:
    kind, batch = ce.text("CEType"), ce.text("BatchSystem") or "Host"
    if not kind:
        return "CEType is missing"
    if kind != "Local":
        return f"the CE type {kind} is not supported yet"
    return "" if batch == "Host" else f"the batch system {batch} is not supported yet"


def _add_ce(site: str, name: str, ce: Section, draft: Draft) -> None:
    """Add one CE per queue: a CE of the policy corresponds to a queue."""
    queues = ce.sections.get("Queues")
    if queues is not None:
        queues.used = True
    sections = queues.sections if queues else {}
    for queue_name, queue in list(sections.items()) or [("", Section("", ce.line))]:
        full = name if len(sections) < 2 else f"{name}-{queue_name}"
        queue.used = True
        if ("ces", full) in draft.tables:
            draft.omit_section(queue if queue.path else ce, f"the CE {full} exists already")
            continue
        values = {"site": toml.quoted(site), "type": '"local"'}
        draft.add_table(("ces", full), queue.line)
        draft.notes.append(f"line {queue.line}: CE {full} will start pilots on the server's own machine")
        for part in (ce, queue):
            values |= _values(part, full, draft)
        draft.lines += [f"{key} = {value}" for key, value in values.items()]


def _values(part: Section, ce: str, draft: Draft) -> dict[str, str]:
    values: dict[str, str] = {}
    for option, (key, factor) in NUMBERS.items():
        given = part.number(option)
        if given is None:
            continue
        line = part.options[option].line
        if not math.isfinite(given):
            raise InvalidInput(f"{part.path}/{option} must be a number", line=line)
        values[key] = toml.number(given * factor)
        draft.places[f"ces.{ce}.{key}"] = line
    for option, key in LISTS.items():
        if option in part.options:
            values[key] = toml.texts(part.items(option))
    return values
