"""The policy of the histories: two CEs with short leases, three owners in two groups, and limits."""

from __future__ import annotations

from typing import NamedTuple

LEASE = 120.0
MAX_RESCHEDULES = 3
OFFER_TIMEOUT = 20.0
RUNNING_MERGES = 4
"""Jobs of type Merge that may run at the same time."""
RUNNING_AT_SOUTH = 9
"""Jobs of the group beta that may run at the site South at the same time."""

TEAM = "away"
AGENTS = ("first", "second")
"""Agents of this team."""
AGENT_LEASE = 45.0

_CE = """\
[ces.{name}]
site = "{site}"
type = "slurm"
owners = "any"
isolation = "userns"
pilot_processors = {processors}
wall = {wall}
idle = 20
lease = 120
heartbeat = 15
max_waiting = 6
max_running = {most}
listing_period = 20
settle = 45
submit_rate = 1
max_failures = 0
information_period = 300
budget = "{budget}"
"""

_HEAD = """\
[groups.alpha]
share = 1000
properties = ["NORMAL_USER", "ADMINISTRATOR", "PRODUCTION_MANAGEMENT", "AGENT"]
[groups.beta]
share = {share}
[users.anna]
groups = ["alpha"]
[users.bert]
groups = ["beta"]
[users.cora]
groups = ["beta", "alpha"]
[sites.North]
storage = ["/store/North"]
[sites.South]
storage = ["/store/South"]
[requests]
agent_team = ""
agent_lease = {agent_lease:g}
agent_period = 5
cooloff_payload = 15
cooloff_data = 15
cooloff_place = 10
cooloff_growth = "linear"
output_block_files = 6
output_block_age = 60
[matching]
cpu_buckets = [50, 200]
[jobs]
retry_delay = 10
offer_timeout = 20
max_reschedules = 3
[[limits]]
attribute = "job_type"
value = "Merge"
running = {merges}
[[limits]]
attribute = "group"
value = "beta"
site = "South"
running = {south}
[correction]
correctors = ["WMSHistory"]
period = 60
[correction.WMSHistory.groups]
form = "integral"
slices.day = {{ time_span = 86400, max_correction = 5 }}
"""


SOUTH_BUDGET = 1.5
"""Core hours of pilots of the CE south. No job needs it, so that work goes on when they are used up."""


SOUTH_AT_ONCE = 10
"""Cores of the pilots that this budget lets run at once, at most: five, each counted with nine minutes of two cores."""


class Owner(NamedTuple):
    name: str
    group: str


OWNERS = (Owner("anna", "alpha"), Owner("bert", "beta"), Owner("cora", "beta"))


class CeFacts(NamedTuple):
    name: str
    site: str
    pilot_processors: int
    nodes: int
    node_processors: int
    wall: float
    most: int
    """Pilots."""
    budget: str


CES = (
    CeFacts("north", "North", 4, 4, 4, 350.0, 5, ""),
    CeFacts("south", "South", 2, 3, 8, 500.0, 10, f"{SOUTH_BUDGET} core-h / 1 d"),
)


def has_budget(seed: int) -> bool:
    """Whether the CE south has a budget. Then requests use the site North alone, so that they can end."""
    return seed % 2 == 1


def policy_text(version: int, *, budget: bool) -> str:
    """The policy in force at the begin, 0, and its later versions."""
    head = _HEAD.format(
        share=500 + 250 * version,
        merges=RUNNING_MERGES - version % 2,
        south=RUNNING_AT_SOUTH,
        agent_lease=AGENT_LEASE,
    )
    ces = [
        _CE.format(
            name=ce.name,
            site=ce.site,
            processors=ce.pilot_processors,
            wall=ce.wall,
            most=ce.most - version % 2,
            budget=ce.budget if budget else "",
        )
        for ce in CES
    ]
    return "\n".join([head, *ces])
