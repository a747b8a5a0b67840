"""The policies that one begins with."""

from __future__ import annotations

from pilotage.core.policy.model import ADMINISTRATOR, NORMAL_USER
from pilotage.core.policy.toml import quoted

_RULES = """\
# --- Matching: which of the waiting jobs that fit a node is next.

[matching]
rule = "document"    # "proportional" follows the shares more closely: see docs/explanation/matching.md
#cpu_buckets = [500, 5000, 50000, 300000]    # seconds of a reference core

#[jobs]
#max_reschedules = 3    # tries again after failures that are not the job's own
#retry_delay = 10       # seconds

# --- Retention: how long things are kept, seconds. A job that goes takes its outputs along.

#[retention]
#jobs = 31536000       # after their end
#outputs = 15768000    # files, standard output and error
#events = 31536000

# --- Limits: at most so many running, or a delay between two starts.

#[[limits]]
#attribute = "job_type"
#value = "Merge"
#running = 200

# --- Corrections: shares that follow what was used before. Who used more than the share gets a lower priority.
# Two instances, one between the groups, one between the owners of a group that is not JOB_SHARING. Each looks back
# over a week, which counts 80 %, and an hour, which counts 20 %; no priority changes by more than a factor of 3.

#[correction]
#correctors = ["WMSHistory"]

#[correction.WMSHistory.groups]
#max_global_correction_factor = 3
#[correction.WMSHistory.groups.slices]
#week = { time_span = 604800, weight = 80, max_correction = 2 }
#hour = { time_span = 3600, weight = 20, max_correction = 5 }

#[correction.WMSHistory.analysts]
#group = "analysis"
#max_global_correction_factor = 3
#[correction.WMSHistory.analysts.slices]
#week = { time_span = 604800, weight = 80, max_correction = 2 }
#hour = { time_span = 3600, weight = 20, max_correction = 5 }
"""
"""The part of the annotated policy that names nobody."""


def initial(owner: str, site: str) -> str:
    """The policy of a fresh home: its owner, one group, one site with the local CE."""
    return f"""\
# The policy of this Pilotage instance: one document, applied whole with `pilotage policy apply FILE`.
# Every key, its unit and default: docs/reference/policy.md.

[groups.home]
share = 1000
properties = ["{NORMAL_USER}", "{ADMINISTRATOR}"]

[users.{quoted(owner)}]
groups = ["home"]

[sites.{quoted(site)}]

[ces.local]
site = {quoted(site)}
type = "local"
owners = "home"
"""


def annotated(owner: str, site: str) -> str:
    """A policy to edit, with what else may be said. Lines that begin with # and no space are valid without the #."""
    second = "ada" if owner != "ada" else "bob"
    return f"""\
# A policy of Pilotage: one document, applied whole.
#
#   pilotage policy check FILE     what is wrong with it, and whom it would leave without work
#   pilotage policy diff FILE      what it would change
#   pilotage policy apply FILE --reason "why"
#
# Every key, its unit and default: docs/reference/policy.md. Lines that begin with # and no space are settings that
# are off: take the # away.

# --- Groups: who is entitled to what part of the whole. Shares count relative to each other.

[groups.home]
share = 1000
properties = ["{NORMAL_USER}", "{ADMINISTRATOR}"]    # someone must be able to change the policy again

# The members of a JOB_SHARING group draw on its share together, and may change each other's jobs.
#[groups.production]
#share = 3000
#properties = ["NORMAL_USER", "JOB_SHARING"]

# The members of this one compete: each gets an equal part of the share while they have jobs waiting.
#[groups.analysis]
#share = 2000

# --- Users. The first group is the default.

[users.{quoted(owner)}]
groups = ["home"]

#[users.{second}]
#groups = ["analysis", "production"]

# --- Sites, and the CEs where pilots are started.

[sites.{quoted(site)}]
#banned = true                  # nothing new starts there
#job_types = ["User", "Merge"]  # it takes these only

[ces.local]
site = {quoted(site)}
type = "local"
owners = "home"    # "any" lets all users run programs under the account of the server
#processors = 4     # leave the rest of the machine alone; 0: all
#memory = 16384     # MB of 2^20 bytes
#idle = 60          # seconds that a pilot waits for more work

{_RULES}"""
