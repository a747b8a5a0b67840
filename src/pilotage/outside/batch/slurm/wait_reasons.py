"""The class of each reason for which Slurm lets a job wait. `squeue` prints the reason, or a sentence in its place."""

from __future__ import annotations

import re

from pilotage.core.pilots.waits import WaitClass

_C = WaitClass

REASONS = {
    # Its turn has not come.
    "": _C.TRANSIENT,
    "None": _C.TRANSIENT,
    "Priority": _C.TRANSIENT,
    "Resources": _C.TRANSIENT,
    "Dependency": _C.TRANSIENT,
    "BeginTime": _C.TRANSIENT,
    "Licenses": _C.TRANSIENT,
    "SchedDefer": _C.TRANSIENT,
    "Cleaning": _C.TRANSIENT,
    "Prolog": _C.TRANSIENT,
    "JobArrayTaskLimit": _C.TRANSIENT,
    "FedJobLock": _C.TRANSIENT,
    "Reservation": _C.TRANSIENT,
    "WaitingForScheduling": _C.TRANSIENT,
    # Burst buffers.
    "BurstBufferResources": _C.STAGING,
    "BurstBufferStageIn": _C.STAGING,
    "BurstBufferOperation": _C.STAGING,
    # Limits that other jobs use up. Limits of one job alone are below, in `_OF_ONE_JOB`.
    "AssociationJobLimit": _C.POLICY,
    "AssociationResourceLimit": _C.POLICY,
    "AssociationTimeLimit": _C.POLICY,
    "AccountingPolicy": _C.POLICY,
    "QOSUsageThreshold": _C.POLICY,
    "QOSJobLimit": _C.POLICY,
    "QOSResourceLimit": _C.POLICY,
    "QOSTimeLimit": _C.POLICY,
    # The site has closed something.
    "PartitionDown": _C.SITE,
    "PartitionInactive": _C.SITE,
    "ReqNodeNotAvail": _C.SITE,
    "NodeDown": _C.SITE,
    "FrontEndDown": _C.SITE,
    "SystemFailure": _C.SITE,
    # Holds.
    "JobHeldUser": _C.USER,
    "JobHeldAdmin": _C.USER,
    # It was started and came back.
    "JobLaunchFailure": _C.ERROR,
    "JobHoldMaxRequeue": _C.ERROR,
    "MaxRequeueExceeded": _C.ERROR,
    "NonZeroExitCode": _C.ERROR,
    "OutOfMemory": _C.ERROR,
    "RaisedSignal": _C.ERROR,
    "TimeLimit": _C.ERROR,
    "InactiveLimit": _C.ERROR,
    "launch failed requeued held": _C.ERROR,
    "job requeued in held state": _C.ERROR,
    # As it was submitted, no node will ever start it.
    "BadConstraints": _C.IMPOSSIBLE,
    "PartitionNodeLimit": _C.IMPOSSIBLE,
    "PartitionTimeLimit": _C.IMPOSSIBLE,
    "PartitionConfig": _C.IMPOSSIBLE,
    "MaxMemPerLimit": _C.IMPOSSIBLE,
    "InvalidAccount": _C.IMPOSSIBLE,
    "InvalidQOS": _C.IMPOSSIBLE,
    "QOS": _C.IMPOSSIBLE,
    "QOSNotAllowed": _C.IMPOSSIBLE,
    "AccountNotAllowed": _C.IMPOSSIBLE,
    "DependencyNeverSatisfied": _C.IMPOSSIBLE,
    "DeadLine": _C.IMPOSSIBLE,
    "ReservationDeleted": _C.IMPOSSIBLE,
}

_NODES_CLOSED = "Nodes required for job are DOWN"
_LIMIT = re.compile("(QOS|Assoc)[A-Z]")
_OF_ONE_JOB = re.compile("(QOS|Assoc)(Max[A-Za-z]*PerJob|Max[A-Za-z]*PerNode|Min)")


def classify_reason(reason: str) -> WaitClass:
    """The class of a reason as `squeue` prints it for a job that waits."""
    if reason.startswith(_NODES_CLOSED):
        return _C.SITE
    # Details follow, such as the names of nodes or the number of a signal.
    word = re.split("[,:(]", reason, maxsplit=1)[0].strip()
    if (known := REASONS.get(word)) is not None:
        return known
    if _OF_ONE_JOB.match(word):
        return _C.IMPOSSIBLE
    return _C.POLICY if _LIMIT.match(word) else _C.UNKNOWN
