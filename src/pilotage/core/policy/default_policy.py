"""Policies to start with: the policy of a new home, and a commented policy to edit."""

from __future__ import annotations

from pilotage.core.policy.model import ADMINISTRATOR, NORMAL_USER
from pilotage.core.policy.toml import quoted

CORRECTION = """\
[correction]
correctors = ["WMSHistory"]

[correction.WMSHistory.groups]
form = "integral"
slices.day = { time_span = 86400, max_correction = 5 }
"""
"""The share corrections of a new home."""

_RULES = f"""\
# --- Matching: the choice among the waiting jobs that fit a node.

#[matching]
#rule = "proportional"    # docs/explanation/matching.md; `pilotage policy preset dirac` prints the rules of DIRAC
#cpu_buckets = [500, 5000, 50000, 300000]    # seconds of a reference core

#[jobs]
#max_reschedules = 3    # further attempts after failures that the job did not cause
#retry_delay = 10       # seconds before such an attempt

# --- Retention: how long records are kept, in seconds. Deleting a job deletes its outputs too.

#[retention]
#jobs = 31536000       # after the end of the job
#outputs = 15768000    # files, standard output and error
#events = 31536000

# --- Limits: a maximum number of running jobs, or a minimum delay between two starts.

#[[limits]]
#attribute = "job_type"
#value = "Merge"
#running = 200

# --- Corrections: past use changes the priorities. Groups and owners above their share get a lower priority.
# This instance corrects between the groups until their use over a day equals their shares, for any lengths of jobs.

{CORRECTION}
# A further instance corrects between the owners of a group without JOB_SHARING.

#[correction.WMSHistory.analysts]
#group = "analysis"
#form = "integral"
#slices.day = {{ time_span = 86400, max_correction = 5 }}
"""
"""The part of the annotated policy without names of users, groups and sites."""


def initial(owner: str, site: str) -> str:
    """The policy of a new home: its owner, one group, and one site with the local CE."""
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
shared_folders = ["/"]    # its owner's jobs may run in place, in any folder of this machine

# Groups that used more than their shares over the last day get lower priorities: docs/explanation/fair-shares.md.
{CORRECTION}"""


def annotated(owner: str, site: str) -> str:
    """A policy to edit, with optional settings as comments. Lines with # and no space are valid without the #."""
    second = "ada" if owner != "ada" else "bob"
    return f"""\
# A policy of Pilotage: one document, applied whole.
#
#   pilotage policy check FILE     errors, warnings, and jobs that could no longer start
#   pilotage policy diff FILE      differences from the policy in force
#   pilotage policy apply FILE --reason "why"
#
# Every key, its unit and default: docs/reference/policy.md. Lines that begin with # and no space are optional
# settings: remove the # to activate them.

# --- Groups and their shares of the resources. Only the ratios of the shares count.

[groups.home]
share = 1000
properties = ["{NORMAL_USER}", "{ADMINISTRATOR}"]    # somebody must be able to change the policy

# The members of a JOB_SHARING group use its share together, and may change each other's jobs.
#[groups.production]
#share = 3000
#properties = ["NORMAL_USER", "JOB_SHARING"]

# The members of this group compete: members with waiting jobs get equal parts of its share.
#[groups.analysis]
#share = 2000

# --- Users. The first group is the default.

[users.{quoted(owner)}]
groups = ["home"]

#[users.{second}]
#groups = ["analysis", "production"]

{_commented_places(site)}
{_RULES}"""


def _commented_places(site: str) -> str:
    return f"""\
# --- Sites, and the CEs where pilots start.

[sites.{quoted(site)}]
#banned = true                  # no job starts there
#job_types = ["User", "Merge"]  # other types do not start there

[ces.local]
site = {quoted(site)}
type = "local"
owners = "home"    # "any" lets all users run programs under the account of the server
#processors = 4     # cores that pilots may use; 0: all
#memory = 16384     # MB (2^20 bytes) that pilots may use
#idle = 60          # seconds that a pilot waits for another job
"""
