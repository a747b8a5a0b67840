"""Whose fault a failure of pilots looks like, from the words of the batch system and the pilot's own output.

It is a guess for a person who looks for the cause: nothing is decided by it.
"""

from __future__ import annotations

import re
from enum import StrEnum


class Blame(StrEnum):
    """Who can most probably repair a failure."""

    SITE = "site"
    """The node or the batch system."""
    POLICY = "policy"
    """The CE's section of the policy asks for something that the batch system does not give."""
    USER = "user"
    """The jobs that ran in the pilot."""
    TRANSIENT = "transient"
    """Nobody: it will pass."""
    PILOTAGE = "pilotage"
    """This program."""
    UNKNOWN = "unknown"


_SIGNS: tuple[tuple[Blame, str], ...] = (
    (Blame.PILOTAGE, r"Traceback \(most recent call last\)|unrecognized option|internal error"),
    (Blame.SITE, r"no Python 3\.9|No space left|Read-only file system|cannot create temp|mktemp:"),
    (Blame.SITE, r"certificate|Connection refused|No route to host|Name or service not known|Network is unreachable"),
    (Blame.POLICY, r"[Ii]nvalid (partition|account|qos|feature|generic resource|reservation|wckey)|InvalidAccount"),
    (Blame.POLICY, r"InvalidQOS|node configuration is not available|PartitionTimeLimit|BadConstraints|TIMEOUT"),
    (Blame.POLICY, r"time limit|more processors requested|PartitionNodeLimit|not permitted|Access/permission denied"),
    (Blame.SITE, r"NODE_FAIL|BOOT_FAIL|PartitionDown|PartitionInactive|not installed|CANCELLED|launch failed"),
    (Blame.POLICY, r"Parse error in expression|Failed to authenticate|Can't find address|cannot be read: No such file"),
    (Blame.TRANSIENT, r"PREEMPTED|Unable to contact|timed out|temporarily|did not answer|does not answer"),
    (Blame.TRANSIENT, r"Max\w*(Limit|Job|Count)|AssocGrp|QOSGrp|started again|submit limit"),
)  # fmt: skip


def blame(*words: str, had_jobs: bool = False) -> Blame:
    """Whose fault it looks like. The first text that says something counts; a pilot's own output should come first."""
    for text in words:
        if "OUT_OF_MEMORY" in text or "oom-kill" in text:
            return Blame.USER if had_jobs else Blame.POLICY
        for culprit, pattern in _SIGNS:
            if re.search(pattern, text):
                return culprit
    return Blame.UNKNOWN
