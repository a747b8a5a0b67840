"""A new CE for a policy: its section with polite defaults, and its place in the text of the policy."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

import msgspec

from pilotage.core.errors import Conflict, InvalidInput
from pilotage.core.key_lines import statement_lines
from pilotage.core.plurals import plural
from pilotage.core.policy import toml
from pilotage.core.policy.batch_systems import BATCH_SYSTEMS
from pilotage.core.policy.ce_names import PLAIN_CHARACTERS, is_plain, mistake_in_name
from pilotage.core.policy.differences import changes
from pilotage.core.policy.model import Policy

LARGEST_PILOT = 4
"""Cores of a pilot at most, unless a person says otherwise."""

MOST_KINDS = 4
"""Kinds of nodes that are described."""

NEARLY = 1.05
"""Nodes of one purchase differ by some memory: firmware keeps a part of it."""

LONGEST_WALL = 86400.0
"""Seconds of a pilot at most, unless a person says otherwise."""

POLITE = {
    "idle": 30,
    "heartbeat": 60,
    "max_waiting": 5,
    "max_running": 20,
    "listing_period": 60,
    "submit_rate": 1,
}
"""Values for a batch system that other people use too.

A pilot holds all of its cores while it is idle. So an idle time longer than short jobs would double their cost.
"""

Value = str | int | float | tuple[str, ...]


class NodeSize(NamedTuple):
    """The nodes of one size."""

    nodes: int
    processors: int
    memory: int
    """MB; at most 1: the batch system does not know it. 0: it takes pilots of any memory."""

    @property
    def shown(self) -> str:
        cores = plural(self.processors, "core")
        return f"{cores} and {self.memory} MB" if self.memory else cores


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """A partition as the batch system describes it."""

    name: str
    default: bool
    up: bool
    wall: float | None
    """Seconds; None: no limit."""
    kinds: tuple[NodeSize, ...]
    """The sizes of its nodes; several may be equal."""

    @property
    def nodes(self) -> int:
        return sum(kind.nodes for kind in self.kinds)

    def common_kinds(self) -> list[NodeSize]:
        """The kinds of its nodes, the commonest first; of several as common ones the smallest.

        Nodes with as many cores and nearly as much memory are one kind, with the least memory of them.
        """
        merged: list[NodeSize] = []
        for kind in sorted(self.kinds, key=lambda kind: kind[1:]):
            last = merged[-1] if merged else None
            if last and last.processors == kind.processors and kind.memory <= last.memory * NEARLY:
                merged[-1] = last._replace(nodes=last.nodes + kind.nodes)
            else:
                merged.append(kind)
        return sorted(merged, key=lambda kind: -kind.nodes)


@dataclass(frozen=True, slots=True)
class NewCe:
    """A CE to add. `None` leaves the choice to the proposal; an empty text is left out."""

    name: str
    site: str
    owners: str = "home"
    processors: int | None = None
    memory: int | None = None
    wall: float | None = None
    max_waiting: int | None = None
    max_running: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    """Keys of the batch system's own table, such as account."""
    reach: str = ""
    """`ces.NAME.reach`; empty: the batch system's commands run on the server's machine."""
    relay: str = ""


def option_names(kind: str) -> tuple[str, ...]:
    """The keys of `[ces.NAME.TYPE]` for a type of batch system; none for local."""
    system = BATCH_SYSTEMS.get(kind)
    return () if system is None else system.__struct_fields__


def partition_key(kind: str) -> str:
    """The key that names the partition or queue of a CE of this type; empty: the type has none."""
    system = BATCH_SYSTEMS.get(kind)
    return system.partition_key if system is not None and system.partition_key in option_names(kind) else ""


def split_words(text: str) -> tuple[str, ...]:
    """The words of a list on a command line, with commas between them."""
    return tuple(word for part in text.split(",") if (word := part.strip()))


def _typed(kind: str, name: str, text: str) -> Value:
    """The value of an option from a command line. One that is no number stays a text, which the policy refuses."""
    default = getattr(BATCH_SYSTEMS[kind](), name, "")
    if isinstance(default, tuple):
        return split_words(text)
    return int(text) if isinstance(default, int) and re.fullmatch("[0-9]{1,15}", text) else text


def choose_site(policy: Policy, site: str) -> str:
    """The site of a new CE. Without a name, the policy must have exactly one site."""
    known = ", ".join(policy.sites) or "none"
    if site and site not in policy.sites:
        hint = f"sites: {known}; or add [sites.NAME] to the policy and apply it"
        raise InvalidInput(f"the policy has no site {site}", hint=hint)
    if not site and len(policy.sites) != 1:
        raise InvalidInput(
            f"the policy has {plural(len(policy.sites), 'site')}: {known}", hint="choose one with --site"
        )
    return site or next(iter(policy.sites))


def require_free_name(policy: Policy, name: str) -> None:
    """Raise `InvalidInput` for a name that a shell would not take as it is, `Conflict` if the policy has the CE."""
    reason = mistake_in_name(name) or ("" if is_plain(name) else "would need quotes in commands")
    if reason:
        raise InvalidInput(
            f"--name: the name {name[:80]!r} {reason}", hint=f"use {PLAIN_CHARACTERS}", field="name"
        )
    if name in policy.ces:
        hint = (
            "choose another with --name, or edit the policy: `pilotage policy show`, `pilotage policy apply`"
        )
        raise Conflict(f"the policy has a CE {name} already", hint=hint)


def choose_partition(partitions: Sequence[PartitionFacts], name: str) -> PartitionFacts:
    """The named partition, else the cluster's default one, else the first that is up."""
    if not partitions:
        raise InvalidInput(
            "the batch system has no partition or queue",
            hint="`sinfo` or `qconf -sql` on the server's machine lists them",
        )
    known = ", ".join(partition.name for partition in partitions)
    if name:
        for partition in partitions:
            if partition.name == name:
                return partition
        raise InvalidInput(f"the batch system has no partition {name}", hint=f"partitions: {known}")
    usable = [partition for partition in partitions if partition.up] or list(partitions)
    return next((partition for partition in usable if partition.default), usable[0])


def batch_section(ce: NewCe, kind: str, partition: PartitionFacts) -> str:
    """The section of a CE on a partition of a batch system of this type."""
    processors, memory = _pilot_size(ce, partition, _most_cores(kind, ce.options))
    numbers: dict[str, Value | None] = {
        "pilot_processors": processors,
        "pilot_memory": memory,
        "wall": _wall(ce, partition),
        **POLITE,
    }
    numbers |= {
        key: value for key in ("max_waiting", "max_running") if (value := getattr(ce, key)) is not None
    }
    named = {key: partition.name} if (key := partition_key(kind)) else {}
    options = {**named, **{name: _typed(kind, name, text) for name, text in ce.options.items()}}
    return (
        toml.comment(_describe(partition)) + "\n"
        + _table(
            ("ces", ce.name),
            {"site": ce.site, "type": kind, "owners": ce.owners, "reach": ce.reach, "relay": ce.relay, **numbers},
        )
        + "\n"
        + _table(("ces", ce.name, kind), options)
    )  # fmt: skip


def local_section(ce: NewCe) -> str:
    """The section of a CE whose pilots are processes of the server's machine."""
    values = {"processors": ce.processors, "memory": ce.memory, "wall": ce.wall}
    return _table(("ces", ce.name), {"site": ce.site, "type": "local", "owners": ce.owners, **values})


def _most_cores(kind: str, options: Mapping[str, str]) -> int:
    """The cores of a proposed pilot at most. Options that are wrong are refused later."""
    try:
        typed = {name: _typed(kind, name, text) for name, text in options.items()}
        limit = msgspec.convert(typed, BATCH_SYSTEMS[kind], strict=False).largest_pilot
    except msgspec.ValidationError:
        limit = None
    return LARGEST_PILOT if limit is None else min(LARGEST_PILOT, limit[0])


def _pilot_size(ce: NewCe, partition: PartitionFacts, most: int) -> tuple[int, int]:
    """Cores and MB of a pilot: a whole part of a node of the commonest kind, with its part of the memory.

    A size that a person gives chooses among the kinds of nodes that have as much.
    """
    fitting = [
        kind
        for kind in partition.common_kinds()
        if kind.processors >= (ce.processors or 0) and (not kind.memory or kind.memory >= (ce.memory or 0))
    ]
    if not fitting:
        wanted = [plural(ce.processors, "core")] if ce.processors else []
        wanted += [f"{ce.memory} MB"] if ce.memory else []
        raise InvalidInput(
            f"no node of partition {partition.name} has {' and '.join(wanted)}",
            hint=f"its nodes: {_kinds(partition)}",
        )
    _, cores, whole = fitting[0]
    processors = ce.processors or max(size for size in range(1, most + 1) if cores % size == 0)
    # A node whose memory is not configured says 1 MB: the batch system's default is better then.
    memory = whole * processors // max(1, cores) if whole >= 100 * cores else 0
    return processors, memory if ce.memory is None else ce.memory


def _wall(ce: NewCe, partition: PartitionFacts) -> float:
    limit = inf if partition.wall is None else partition.wall
    if ce.wall is None:
        return min(limit, LONGEST_WALL)
    if ce.wall > limit:
        raise InvalidInput(
            f"partition {partition.name} allows {limit:g} s, not {ce.wall:g}: such pilots would wait for ever",
            hint=f"choose --wall up to {limit:g}, or another partition",
        )
    return ce.wall


def _describe(partition: PartitionFacts) -> str:
    limit = "no time limit" if partition.wall is None else f"time limit {partition.wall:g} s"
    choice = " The pilots fit the first." if len(partition.common_kinds()) > 1 else ""
    return f"Partition {partition.name}: {_kinds(partition)}; {limit}.{choice}"


def _kinds(partition: PartitionFacts) -> str:
    """The kinds of nodes, the commonest first, such as `8 nodes with 4 cores and 8000 MB`."""
    kinds = partition.common_kinds()
    shown = [f"{kind.nodes} node{'' if kind.nodes == 1 else 's'} with {kind.shown}" for kind in kinds]
    if len(kinds) > MOST_KINDS:
        shown[MOST_KINDS:] = [f"and {len(kinds) - MOST_KINDS} other kinds"]
    return ", ".join(shown)


def _table(path: Sequence[str], values: Mapping[str, Value | None]) -> str:
    lines = [toml.table(*path)]
    for key, value in values.items():
        if value is None or value == "":
            continue
        if isinstance(value, tuple):
            lines.append(f"{key} = {toml.texts(value)}")
        else:
            lines.append(
                f"{key} = {toml.quoted(value) if isinstance(value, str) else toml.number(float(value))}"
            )
    return "\n".join(lines) + "\n"


def insert_section(text: str, name: str, section: str) -> str:
    """The policy with a new section after its last CE. Comments, order and all other keys stay."""
    lines = text.splitlines(keepends=True)
    place = _place_after_ces(text, [line.strip() for line in lines])
    if place is not None:
        before, after = "".join(lines[:place]).rstrip("\n"), "".join(lines[place:]).lstrip("\n")
        changed = f"{before}\n\n{section}\n{after}" if after else f"{before}\n\n{section}"
        if _adds_only(text, changed, name):
            return changed
    changed = f"{text.rstrip()}\n\n{section}".lstrip("\n")
    if not _adds_only(text, changed, name):
        raise Conflict(
            "the section of the CE cannot be added to this text", hint="add it by hand:\n" + section
        )
    return changed


def _place_after_ces(text: str, lines: Sequence[str]) -> int | None:
    """The index of the line before which a further CE belongs; None: the policy has no CE."""
    statements = list(statement_lines(text))
    last = max((place for place, (path, _) in enumerate(statements) if path[0] == "ces"), default=None)
    if last is None:
        return None
    following = statements[last + 1][1] - 1 if last + 1 < len(statements) else None
    place = end = len(lines) if following is None else following
    while place and (not lines[place - 1] or lines[place - 1].startswith("#")):
        place -= 1
    # Comments right below the last key belong to the CE before, unless they stand right above the next table.
    below = place
    while below < end and lines[below].startswith("#"):
        below += 1
    return place if below == following else below


def _adds_only(before: str, after: str, name: str) -> bool:
    """Whether the change adds the CE `name` and nothing else."""
    prefix = f"ces.{toml.key(name)}."
    try:
        differences = changes(before, after)
    except InvalidInput:
        return False
    return bool(differences) and all(
        change.change == "added" and change.key.startswith(prefix) for change in differences
    )
