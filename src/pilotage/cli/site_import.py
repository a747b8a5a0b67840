"""`pilotage site import`: sites and downtimes from documents of GOCDB and CRIC."""

from __future__ import annotations

import difflib
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pilotage.cli.parser import CommandArgument, CommandOption
from pilotage.cli.policy.versions import ReasonOption
from pilotage.cli.session import Session, YesOption, connected
from pilotage.core.errors import InvalidInput
from pilotage.core.plurals import plural

if TYPE_CHECKING:
    from pilotage.client import Client
    from pilotage.core.topology import Downtime, ListedCe, Topology
    from pilotage.wire.policy import PolicyDocument
    from pilotage.wire.sites import SiteSummary

LARGEST = 64 << 20
"""Bytes of a document."""
SHOWN = 20
"""Sentences about left-out records to print; --json has all."""
BY_IMPORT = "downtime: "
"""Begins the reason of each state that an import sets. An import changes no state with another reason."""


@dataclass
class SiteImport:
    """The JSON of `site import`: the changes, made or only planned."""

    sites: list[str] = field(default_factory=list)
    """Sites that are new in the policy."""
    ces: list[str] = field(default_factory=list)
    """Commands that add CEs of these documents."""
    down: dict[str, float] = field(default_factory=dict)
    """The end of its downtime, in seconds since 1970, by site."""
    later: list[str] = field(default_factory=list)
    """Downtimes that have not begun."""
    left_out: list[str] = field(default_factory=list)


@connected
def import_sites(
    session: Session,
    files: Annotated[
        list[str], CommandArgument("Answers of GOCDB (XML) or CRIC (JSON); - for standard input", "FILE")
    ],
    only: Annotated[
        list[str] | None,
        CommandOption("Only this site, or a pattern such as 'UKI-*'; may be repeated", "NAME"),
    ] = None,
    dry_run: Annotated[bool, CommandOption("Print the changes, and make none")] = False,
    yes: YesOption = False,
    reason: ReasonOption = "",
) -> None:
    """Add sites of GOCDB or CRIC to the policy, and take sites down for their downtimes.

    Sites that the policy has stay as they are. CEs are not added, as a document tells neither credential nor owners:
    the command that adds each is printed. A downtime is applied once it has begun: import downtimes regularly.
    """
    from pilotage.core.policy.toml_edit import with_tables
    from pilotage.core.topology import read_documents

    topology = read_documents({name: _text(name) for name in files})
    _narrow(topology, only or [])
    with session.client() as client:
        current = client.policy()
        states = {site.name: site for site in client.sites()}
        plan, downtimes = _plan(topology, current.text, states)
        text = current.text
        if plan.sites:
            text = with_tables(current.text, [("sites", name) for name in plan.sites])
            client.apply_policy(text, dry_run=True, expect=current.version)
        _show(session, plan, current, text)
        if not dry_run and (plan.sites or plan.down):
            _require_consent(session, plan, yes)
            if plan.sites:
                why = reason or f"site import {' '.join(files)}"
                client.apply_policy(text, reason=why[:1000], expect=current.version)
            _take_down(client, downtimes)
            session.screen.line("done")
    session.screen.json(plan)


def _text(name: str) -> str:
    from pilotage.client.text_files import read_text

    if name == "-":
        return sys.stdin.read(LARGEST)
    return read_text(Path(name), "a document of sites", LARGEST)


def _narrow(topology: Topology, only: list[str]) -> None:
    """Leave out the sites that match none of these patterns."""
    if not only:
        return
    kept = {name for name in topology.sites for pattern in only if fnmatchcase(name, pattern)}
    if not kept:
        names = sorted(topology.sites)
        listed = ", ".join(names[:5]) + (" ..." if len(names) > 5 else "")
        raise InvalidInput(
            f"no site of the documents matches {', '.join(only)}",
            hint=f"they have {plural(len(names), 'site')}: {listed}",
        )
    topology.sites = {name: site for name, site in topology.sites.items() if name in kept}
    topology.ces = {key: ce for key, ce in topology.ces.items() if ce.site in kept}
    topology.downtimes = [down for down in topology.downtimes if down.site in kept]


def _plan(
    topology: Topology, text: str, states: Mapping[str, SiteSummary]
) -> tuple[SiteImport, dict[str, Downtime]]:
    """The changes of the policy in `text`, and the downtime to apply by site."""
    from pilotage.core.policy import parse

    policy, configured = parse(text), text.lower()
    now, plan = time.time(), SiteImport(left_out=list(topology.left_out))
    for name, site in topology.sites.items():
        if site.unusable and name not in policy.sites:
            plan.left_out.append(f"site {name}: {site.unusable}")
        elif name not in policy.sites:
            plan.sites.append(name)
    usable = {*policy.sites, *plan.sites}
    plan.ces = [
        _ce_command(ce)
        for ce in topology.ces.values()
        if ce.site in usable and ce.type and ce.host.lower() not in configured
    ]
    plan.left_out += [
        f"{ce.host} of {ce.site}: no CE of a policy is a {ce.flavour}"
        for ce in topology.ces.values()
        if ce.site in usable and not ce.type
    ]
    downtimes: dict[str, Downtime] = {}
    for name in sorted(usable & {down.site for down in topology.downtimes}):
        plan.later += [
            _describe(down) for down in topology.downtimes if down.site == name and down.start > now
        ]
        outage = topology.outage(name, now)
        if outage is None:
            plan.left_out += [
                f"{_describe(down)}: other CEs of the site are up" for down in topology.outages(name, now)
            ]
        elif reason := _kept_state(states.get(name), outage):
            plan.left_out.append(f"{_describe(outage)}: {reason}")
        else:
            downtimes[name] = outage
            plan.down[name] = outage.end
    return plan, downtimes


def _kept_state(site: SiteSummary | None, outage: Downtime) -> str:
    """Why the state of a site stays as it is; empty: the downtime is applied."""
    if site is None or site.state == "normal":
        return ""
    if not site.reason.startswith(BY_IMPORT):
        return f"the site is {site.state} already, by {site.changed_by or 'the policy'}"
    return "it is applied already" if site.until == outage.end else ""


def _describe(down: Downtime) -> str:
    from pilotage.cli.time_format import format_instant

    begin, end = (format_instant(at, 0.0, exact=True) for at in (down.start, down.end))
    of = f" of {', '.join(sorted(down.hosts)[:3])}" if down.hosts else ""
    return f"downtime of {down.site}{of}, {begin} to {end}"


def _ce_command(ce: ListedCe) -> str:
    import shlex

    address = ce.address or ce.host
    return (
        f"pilotage ce add {ce.type} --name {shlex.quote(ce.host)} --site {shlex.quote(ce.site)}  # {address}"
    )


def _show(session: Session, plan: SiteImport, current: PolicyDocument, text: str) -> None:
    screen = session.screen
    for line in _difference(current, text):
        screen.line(line)
    for name in plan.down:
        screen.line(f"site {name} is taken down until {screen.instant(plan.down[name])}")
    if not plan.sites and not plan.down:
        screen.line("nothing to change")
    if plan.ces:
        screen.line(f"{plural(len(plan.ces), 'CE')} can be added; complete these commands:")
        for command in plan.ces:
            screen.line(f"  {command}")
    notes = [f"not yet: {text}" for text in plan.later] + [f"left out: {text}" for text in plan.left_out]
    for note in notes[:SHOWN]:
        screen.note(note)
    if len(notes) > SHOWN:
        screen.note(f"... and {len(notes) - SHOWN:,} more; --json lists all")


def _difference(current: PolicyDocument, text: str) -> Iterator[str]:
    labels = (f"version {current.version} (in force)", "with the new sites")
    return difflib.unified_diff(current.text.splitlines(), text.splitlines(), *labels, lineterm="")


def _require_consent(session: Session, plan: SiteImport, yes: bool) -> None:
    question = f"add {plural(len(plan.sites), 'site')} and take {len(plan.down):,} down?"
    if not yes and not session.screen.ask(question):
        raise InvalidInput(f"nothing done: {question}", hint="use -y to skip the confirmation")


def _take_down(client: Client, downtimes: Mapping[str, Downtime]) -> None:
    for name, outage in downtimes.items():
        why = BY_IMPORT + " ".join(outage.reason.split())
        client.set_site_state(name, "down", until=outage.end, reason=why[:200].strip())
