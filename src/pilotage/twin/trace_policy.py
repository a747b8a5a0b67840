"""The policy of a trace that comes without one: its groups with their shares, its owners, the CEs of the twin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from pilotage.core.errors import InvalidInput
from pilotage.core.policy import toml
from pilotage.core.policy.default_policy import CORRECTION
from pilotage.core.policy.model import ADMINISTRATOR, NORMAL_USER
from pilotage.twin.ces import TwinCe
from pilotage.twin.workload import TraceJobs

SHARE: Final = 1000.0
SITE: Final = "twin"
IDLE: Final = 300.0
HEARTBEAT: Final = 300.0
"""Seconds. Pilots of a trace stay between two jobs, and send heartbeats seldom: each costs time of the run."""
SUBMIT_RATE: Final = 100.0


def policy_of_trace(jobs: TraceJobs, ces: Sequence[TwinCe], shares: Mapping[str, float]) -> str:
    """A policy that admits all jobs. Groups without an entry in `shares` have equal ones.

    Past use corrects the shares of groups, and of the owners in each group.
    """
    members: dict[str, list[str]] = {}
    groups_of: dict[str, list[str]] = {}
    for owner, group in jobs.memberships():
        members.setdefault(group, []).append(owner)
        groups_of.setdefault(owner, []).append(group)
    for unknown in shares:
        if unknown not in members:
            hint = f"its groups: {', '.join(sorted(members)[:20])}"
            raise InvalidInput(f"the trace has no group {unknown}", hint=hint)
    largest = int(jobs.rows["processors"].max()) if len(jobs) else 1
    lines = [
        "# The policy of a trace: change it, and give it to `pilotage twin run --policy`.",
        "",
        *_groups(members, shares),
        *(line for owner, groups in groups_of.items() for line in _user(owner, groups)),
        toml.table("sites", SITE),
        "",
        *(line for ce in ces for line in _ce(ce, largest)),
        CORRECTION,
        *(line for group, owners in sorted(members.items()) if len(owners) > 1 for line in _owners_of(group)),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _groups(members: Mapping[str, Sequence[str]], shares: Mapping[str, float]) -> Iterator[str]:
    for place, group in enumerate(sorted(members)):
        properties = [NORMAL_USER, ADMINISTRATOR] if place == 0 else [NORMAL_USER]
        yield toml.table("groups", group)
        yield f"share = {toml.number(shares.get(group, SHARE))}"
        yield f"properties = {toml.texts(properties)}"
        yield ""


def _user(owner: str, groups: Sequence[str]) -> Iterator[str]:
    yield toml.table("users", owner)
    yield f"groups = {toml.texts(groups)}"
    yield ""


def _ce(ce: TwinCe, largest: int) -> Iterator[str]:
    processors, memory = _pilot_size(ce, largest)
    pilots = max(1, sum(kind.count * (kind.processors // processors) for kind in ce.nodes))
    yield toml.table("ces", ce.name)
    yield f"site = {toml.quoted(SITE)}"
    yield 'type = "slurm"    # a batch system that holds and lists batch jobs, as the CEs of the twin do'
    yield 'owners = "any"'
    yield 'isolation = "userns"'
    yield f"pilot_processors = {processors}"
    yield f"pilot_memory = {memory}"
    yield f"wall = {toml.number(ce.wall)}"
    yield f"idle = {toml.number(IDLE)}"
    yield f"heartbeat = {toml.number(HEARTBEAT)}"
    yield f"max_waiting = {pilots}"
    yield f"max_running = {pilots}"
    yield f"submit_rate = {toml.number(SUBMIT_RATE)}"
    yield ""


def _pilot_size(ce: TwinCe, largest: int) -> tuple[int, int]:
    """Cores and MB of a pilot: a whole node of the smallest kind that has room for the largest job."""
    kinds = sorted(ce.nodes, key=lambda kind: kind.processors)
    kind = next((kind for kind in kinds if kind.processors >= largest), kinds[-1])
    return kind.processors, kind.memory


def _owners_of(group: str) -> Iterator[str]:
    yield f"[correction.WMSHistory.{toml.quoted(f'owners of {group}')}]"
    yield f"group = {toml.quoted(group)}"
    yield 'form = "integral"'
    yield "slices.day = { time_span = 86400, max_correction = 5 }"
    yield ""
