"""Submissions of pilots that a director orders, and the calls that follow from a listing."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pilotage.core.ids import PilotId
from pilotage.core.pilots.handover import SubmissionPhase
from pilotage.core.policy import Ce
from pilotage.core.provisioning.batch import BatchOrder
from pilotage.outside.batch.submission import STAMP_PREFIX
from pilotage.services.director.forwarding import HookCall
from pilotage.services.pilots.enrolment import secret_hash
from pilotage.services.pool.state import Pool
from pilotage.store.tables import pilot_submissions, pilots
from pilotage.store.tables.pilots import NewPilot
from pilotage.store.writer.transaction import Transaction


@dataclass(frozen=True, slots=True)
class SubmissionIntent:
    """A submission whose rows are stored and that the batch system has not been given yet."""

    stamp: str
    secret: str
    pilots: int
    processors: int
    memory: int
    """MB of each pilot; 0: the batch system's default."""
    wall: float
    properties: Mapping[str, str] = field(default_factory=dict)
    """Facts for the administrators of the site: the owner, group and task queue that the pilots are for."""
    pool: str = ""
    """The submit pool that submits it."""
    flags: tuple[str, ...] = ()
    """Native arguments for the requirements of its queue."""
    hook: HookCall | None = None
    """The run of the site's hook that adds further arguments; None: there is none."""


@dataclass(frozen=True, slots=True)
class BatchSteps:
    """The calls to the batch system that follow from one listing."""

    release: tuple[str, ...] = ()
    """Stamps of submissions to release."""
    cancel: tuple[str, ...] = ()
    """Stamps of submissions to cancel as a whole."""
    cancel_tasks: tuple[str, ...] = ()
    """Batch ids to cancel: doubles, and pilots that were ordered to be killed."""

    def with_cancelled(self, stamps: Sequence[str]) -> BatchSteps:
        """Also cancel these submissions."""
        return replace(self, cancel=(*self.cancel, *stamps))

    def __add__(self, later: BatchSteps) -> BatchSteps:
        return BatchSteps(
            self.release + later.release, self.cancel + later.cancel, self.cancel_tasks + later.cancel_tasks
        )


def properties_of(order: BatchOrder) -> dict[str, str]:
    """The identity under which pilots are submitted, and the task queue that they are for."""
    named = {"queue": str(order.queue), "owner": order.owner, "group": order.group}
    return {name: value for name, value in named.items() if value}


def store_submission(
    pool: Pool,
    tx: Transaction,
    name: str,
    ce: Ce,
    count: int,
    owner: str | None,
    now: float,
    *,
    properties: Mapping[str, str],
    pilot_type: str = "generic",
    order: BatchOrder | None = None,
) -> tuple[SubmissionIntent, list[PilotId]]:
    """Store the intent of `count` equal pilots of CE `name`; also their ids.

    `owner`: the owner that they are bound to; None: they serve everybody. `order`: None for a probe.
    """
    stamp, secret = STAMP_PREFIX + secrets.token_hex(8), secrets.token_urlsafe(32)
    # The call follows at once: a director that ends before it cannot be told from one that ends in it.
    pilot_submissions.insert(
        tx.connection, stamp=stamp, ce=name, phase=SubmissionPhase.PREPARING, pilots=count, now=now
    )
    members = [
        pilots.insert(
            tx.connection,
            NewPilot(
                stamp=f"{stamp}/{index}",
                secret_hash=secret_hash(secret),
                idx=index,
                site=ce.site,
                ce=name,
                only_owner=owner,
                pilot_type=pilot_type,
                processors=ce.pilot_processors,
                memory=ce.pilot_memory,
                submitted=now,
                id=pool.ids.next_pilot(),
                owner="" if order is None else order.owner,
                group="" if order is None else order.group,
                queue=None if order is None else order.queue,
                wall=ce.wall,
            ),
        )
        for index in range(count)
    ]
    size = ce.pilot_processors, ce.pilot_memory, ce.wall
    submit_pool = ce.submit_pool if order is None else order.pool
    return SubmissionIntent(stamp, secret, count, *size, properties, submit_pool), members
