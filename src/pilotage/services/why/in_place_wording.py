"""The sentences of `why` about jobs in place, which need nodes that share their folders."""

from __future__ import annotations

from collections.abc import Mapping

from pilotage.core.policy import Policy
from pilotage.core.queues.fit import Condition, shares_all
from pilotage.core.queues.identity import QueueIdentity
from pilotage.services.why.needs_wording import listed

IN_PLACE: Mapping[str, str] = {
    Condition.FOLDER: "an administrator can add the folder to ces.NAME.shared_folders of CEs whose nodes have it"
    " (`pilotage policy apply`); or submit without --here, so that the files are copied",
    Condition.ACCOUNT: "submit without --here, so that the files are copied",
    Condition.NODE_FOLDER: "`pilotage status JOB` names the nodes: mount the folder there, or remove it from"
    " ces.NAME.shared_folders; a node is tried again after an hour",
}
"""Advice for jobs in place."""


def unshared(queue: QueueIdentity, policy: Policy) -> str:
    """The folders of a job in place, and the CEs that share them."""
    ces = [name for name, ce in policy.ces.items() if shares_all(ce.shared_folders, queue.folders)]
    folders = listed(queue.folders)
    return f"only CE {listed(frozenset(ces))} shares {folders}" if ces else f"no CE shares {folders}"
