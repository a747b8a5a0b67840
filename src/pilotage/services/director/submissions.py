"""Submissions of pilots: their orders, their rows, and the calls that follow from a listing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace

from pilotage.core.ids import PilotId, QueueId
from pilotage.core.pilots.handover import SubmissionPhase
from pilotage.core.policy import Ce
from pilotage.core.shares.turns import Turn
from pilotage.outside.batch.adapter import Shape
from pilotage.outside.batch.submission import STAMP_PREFIX
from pilotage.services.director.forwarding import HookCall
from pilotage.services.pilots.enrolment import secret_hash
from pilotage.services.pilots.lifecycle import PilotEnd, end_silent_pilot
from pilotage.services.pool.state import Pool
from pilotage.store.tables import pilot_submissions, pilots
from pilotage.store.tables.pilot_submissions import PilotSubmissionRow
from pilotage.store.tables.pilots import NewPilot, PilotRow
from pilotage.store.writer.transaction import Transaction


@dataclass(frozen=True, slots=True)
class SubmissionOrder:
    """Equal pilots that a CE gets in one submission."""

    pilots: int
    shape: Shape
    pilot_type: str
    pool: str
    """The submit pool that submits them."""
    _: KW_ONLY
    queue: QueueId | None = None
    """The queue that they are for; None: it is a probe."""
    only_owner: str | None = None
    """The owner that they are bound to; None: they serve everybody."""
    owner: str = ""
    """With `group` the identity under which they are submitted."""
    group: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Facts for the administrators of the site: the owner, group and task queue that the pilots are for."""
    flags: tuple[str, ...] = ()
    """Native arguments for the requirements of its queue."""
    hook: HookCall | None = None
    """The run of the site's hook that adds further arguments; None: there is none."""
    turn: Turn | None = None
    """The owner's turn that its only pilot begins."""
    neighbours: tuple[str, ...] = ()
    """Batch ids of the CE's other pilots, for `BatchSubmission`."""
    lease: float | None = None
    """Seconds after which pilots end of which nobody knows whether they were started; None: listings tell it."""


@dataclass(frozen=True, slots=True)
class SubmissionIntent:
    """A submission whose rows are stored and that the batch system has not been given yet."""

    stamp: str
    secret: str
    members: tuple[PilotId, ...]
    order: SubmissionOrder


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


def store_submission(
    pool: Pool, tx: Transaction, name: str, ce: Ce, order: SubmissionOrder, now: float, place: str
) -> SubmissionIntent:
    """Store the intent of a submission to CE `name`. `place`: the part of its batch ids that is known already."""
    stamp, secret = STAMP_PREFIX + pool.secrets.token_hex(8), pool.secrets.token_urlsafe(32)
    # The call follows at once: a director that ends before it cannot be told from one that ends in it.
    pilot_submissions.insert(
        tx.connection, stamp=stamp, ce=name, phase=SubmissionPhase.PREPARING, pilots=order.pilots, now=now
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
                only_owner=order.only_owner,
                pilot_type=order.pilot_type,
                processors=order.shape.processors,
                memory=order.shape.memory,
                submitted=now,
                id=pool.ids.next_pilot(),
                batch_id=place,
                lease_until=None if order.lease is None else now + order.lease,
                owner=order.owner,
                group=order.group,
                queue=order.queue,
                wall=ce.wall,
            ),
        )
        for index in range(order.pilots)
    ]
    return SubmissionIntent(stamp, secret, tuple(members), order)


def give_up(
    pool: Pool, tx: Transaction, row: PilotSubmissionRow, end: PilotEnd, reason: str, now: float
) -> None:
    """End a submission, and its pilots that have not ended."""
    for pilot in pilots_of(tx, row):
        end_silent_pilot(pool, tx, pilot, end, reason, now)
    pilot_submissions.update(tx.connection, row.id, ended=now, reason=reason)


def pilots_of(tx: Transaction, row: PilotSubmissionRow) -> list[PilotRow]:
    """The pilots of a submission that have not ended."""
    return pilots.of_submission(tx.connection, [f"{row.stamp}/{index}" for index in range(row.pilots)])


def set_batch_ids(pool: Pool, tx: Transaction, members: Sequence[PilotRow], ids: Mapping[int, str]) -> None:
    """Store the batch ids of pilots. `ids`: by index within the submission."""
    for pilot in members:
        if pilot.idx in ids:
            pilot.batch_id = ids[pilot.idx]
            pool.pilots.rows.forget(pilot)
            pilots.update(tx.connection, pilot.id, batch_id=pilot.batch_id)
