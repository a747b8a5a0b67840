"""Resources/Sites: the sites, and those of their computing elements that this program can use.

A CE of the policy starts pilots on the server's own machine; only DIRAC's type Local with the batch system Host
does the same. All others stay in the document as comments.
"""

from __future__ import annotations

import math

from pilotage.core.errors import InvalidInput
from pilotage.core.policy import toml
from pilotage.core.policy.dirac_cfg.draft import Draft, described
from pilotage.core.policy.dirac_cfg.tree import Section

SI00_OF_A_REFERENCE_CORE = 250.0

NUMBERS = {
    "NumberOfProcessors": ("processors", 1.0),
    "MaxRAM": ("memory", 1.0),
    "maxCPUTime": ("wall", 60.0),
    "SI00": ("cpu_power", 1 / SI00_OF_A_REFERENCE_CORE),
}
"""Option of a CE or queue, key of the policy, and what one of the former is of the latter."""
LISTS = {"Tag": "tags", "RequiredTag": "required_tags"}


def take_sites(root: Section, draft: Draft) -> None:
    """Write all sites, and the CEs that can be used."""
    sites = root.find("Resources/Sites")
    if sites is None:
        return
    sites.used = True
    for grid in sites.sections.values():
        grid.used = True
        for name, site in grid.sections.items():
            if ("sites", name) in draft.tables:
                draft.leave_section(site, f"there is a site {name} already")
                continue
            site.used = True
            draft.table(("sites", name), site.line)
            _take_ces(name, site, draft)


def _take_ces(site: str, section: Section, draft: Draft) -> None:
    ces = section.sections.get("CEs")
    if ces is not None:
        ces.used = True
    known = ces.sections if ces else {}
    option = section.options.get("CE")
    for name in section.items("CE"):
        if name not in known and option is not None:
            draft.remark(f"Not taken: CE {name} of {site}, of which nothing more is said.")
            reason = "this CE is named, but not described under CEs"
            draft.leave(option, name, reason)
    for name, ce in known.items():
        if reason := _unusable(ce):
            draft.remark(f"Not taken: CE {name} of {site}: {reason}.", *described(ce))
            draft.leave_section(ce, reason)
        else:
            _take_ce(site, name, ce, draft)


def _unusable(ce: Section) -> str:
    kind, batch = ce.text("CEType"), ce.text("BatchSystem") or "Host"
    if not kind:
        return "it has no CEType"
    if kind != "Local":
        return f"type {kind} is not supported yet"
    return "" if batch == "Host" else f"batch system {batch} is not supported yet"


def _take_ce(site: str, name: str, ce: Section, draft: Draft) -> None:
    """Write one CE for each queue: that is what a CE of the policy is."""
    queues = ce.sections.get("Queues")
    if queues is not None:
        queues.used = True
    found = queues.sections if queues else {}
    for queue_name, queue in list(found.items()) or [("", Section("", ce.line))]:
        full = name if len(found) < 2 else f"{name}-{queue_name}"
        queue.used = True
        if ("ces", full) in draft.tables:
            draft.leave_section(queue if queue.path else ce, f"there is a CE {full} already")
            continue
        values = {"site": toml.quoted(site), "type": '"local"'}
        draft.table(("ces", full), queue.line)
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
