"""The pool in memory: what the writer's thread keeps beside the store, and how it is filled and set right.

Only requests to the writer change it. Whatever a request changes here it takes back if its transaction fails.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from random import Random

from pilotage.core.errors import NotFound
from pilotage.core.ids import JobId, PilotId, QueueId, SubmissionId
from pilotage.core.jobs.json_format import description_from_json
from pilotage.core.policy import Policy
from pilotage.core.queues.identity import QueueIdentity
from pilotage.core.queues.index import QueueIndex
from pilotage.core.queues.indexed_queue import IndexedQueue
from pilotage.core.queues.offer_history import OfferStats
from pilotage.core.shares.correction import Corrections
from pilotage.core.shares.turns import TurnBook
from pilotage.services.pool.limits import RunningLimits, limits_for
from pilotage.services.pool.lru_cache import LruCache
from pilotage.services.pool.offer_cache import OfferCache
from pilotage.services.pool.peers import NoPeers, Peers
from pilotage.services.pool.records import DirectorNote, IndexLoading, RecordedReason, SubmissionFacts
from pilotage.store.cluster.id_allocator import IdAllocator, SequentialIds
from pilotage.store.tables import pilots as pilot_rows
from pilotage.store.tables import submissions as submission_rows
from pilotage.store.tables.events import EventBatch
from pilotage.store.tables.pilots import PilotRow
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.pilot import Input, Node

SUBMISSIONS_KEPT = 4096
PILOTS_KEPT = 16384
"""Rows kept in memory; the least recently used ones are read again when needed."""


@dataclass(slots=True)
class Pool:
    """Everything that the use cases share."""

    policy: Policy
    policy_version: int
    incarnation: int
    events: IdAllocator
    rng: Random
    home_owner: str
    submission_ids: IdAllocator
    job_ids: IdAllocator
    pilot_ids: IdAllocator | None
    """None: the store knows the next one."""
    identities: dict[QueueId, QueueIdentity]
    """Of every queue with a row in the store. Bounded by those rows: empty queues are deleted after a day."""
    index: QueueIndex = field(init=False)
    pilots: LruCache[str, PilotRow] = field(default_factory=lambda: LruCache(PILOTS_KEPT))
    """By hash of their token."""
    seen: dict[PilotId, float] = field(default_factory=dict)
    """When each pilot was last heard of. Not stored: only its lease is."""
    unconfirmed: dict[PilotId, float] = field(default_factory=dict)
    """Pilots that have taken jobs which they may not have confirmed, and since when."""
    stalled: set[PilotId] = field(default_factory=set)
    finished: dict[PilotId, int] = field(default_factory=dict)
    """Jobs finished since the count was last written to the pilot's row."""
    followed: dict[JobId, float] = field(default_factory=dict)
    """Jobs with output that a user watches, and until when. The lease duty drops those that are over."""
    corrections: Corrections = field(default_factory=Corrections)
    """The share corrections in force, and what they were made of."""
    corrected_at: float | None = None
    offer_stats: OfferStats[tuple[PilotRow, Node]] = field(default_factory=OfferStats)
    """The kinds of offer that pilots made lately."""
    ces_changed_at: dict[str, float] = field(default_factory=dict)
    """When the policy last changed each CE: pilots started before it may offer what no new one there will."""
    offer_cache: OfferCache = field(default_factory=OfferCache)
    turns: TurnBook = field(default_factory=TurnBook)
    """Of pilots that serve one owner at a time."""
    local_nodes: dict[str, Node] = field(default_factory=dict)
    """What a pilot of each local CE finds when it has the whole of it."""
    directors: dict[str, DirectorNote] = field(default_factory=dict)
    """By CE."""
    recorded_reasons: dict[QueueId, RecordedReason] | None = None
    """The last reason of each queue in the history; None until it has been read."""
    unwritten: Callable[[], None] | None = None
    """Writes the moves of this transaction that decide which jobs wait; None: there are none."""
    settling: Iterator[None] | None = None
    """Priorities that have been computed and are being taken up by the index, some in each transaction."""
    filling: IndexLoading | None = None
    """Not None while the waiting jobs are being counted."""
    draining: bool = False
    """No new work is given out: the server is about to stop."""
    peers: Peers = field(default_factory=NoPeers)
    limits: RunningLimits = field(init=False)
    _submissions: LruCache[SubmissionId, SubmissionFacts] = field(
        default_factory=lambda: LruCache(SUBMISSIONS_KEPT)
    )

    def __post_init__(self) -> None:
        self.limits = limits_for(self.peers, self.queue_identity)

    def batch(self, now: float, actor: str) -> EventBatch:
        return EventBatch(self.events, now, actor)

    def submission(self, tx: Transaction, id_: SubmissionId) -> SubmissionFacts:
        """A submission with its description read."""
        facts = self._submissions.use(id_)
        if facts is None:
            row = submission_rows.by_id(tx.connection, id_)
            if row is None:
                raise NotFound(f"there is no submission {id_}")
            facts = self._remember_submission(tx, row)
        return facts

    def read_submissions(self, tx: Transaction, ids: Iterable[SubmissionId]) -> None:
        """Have these submissions in memory, with one statement, as far as they exist."""
        missing = {id_ for id_ in ids if id_ not in self._submissions}
        if missing:
            for row in submission_rows.by_ids(tx.connection, sorted(missing)):
                self._remember_submission(tx, row)

    def _remember_submission(self, tx: Transaction, row: submission_rows.SubmissionRow) -> SubmissionFacts:
        inputs = tuple(Input(**plain) for plain in json.loads(row.inputs))
        facts = SubmissionFacts(row, description_from_json(json.loads(row.description)), inputs)
        # If its own transaction fails another submission may be given its id.
        tx.put(self._submissions, row.id, facts)
        return facts

    def pilot_id(self) -> int | None:
        """The id of a new pilot; None: the next one of the store."""
        return None if self.pilot_ids is None else self.pilot_ids.next()

    def take_back_ids(self, tx: Transaction) -> None:
        """Before ids of submissions and jobs are given: if the transaction fails they were not."""
        for numbers in (self.submission_ids, self.job_ids):
            if isinstance(numbers, SequentialIds):
                tx.on_rollback(lambda numbers=numbers, last=numbers.last: numbers.rewind(last))  # type: ignore[misc]

    def queue_identity(self, tx: Transaction, queue: QueueId) -> QueueIdentity:
        identity = self.identities.get(queue)
        if identity is None:
            identity = submission_rows.queue_identity(tx.connection, queue)
            if identity is None:
                raise NotFound(f"there is no task queue {queue}")
            self.identities[queue] = identity
        return identity

    def enter_queue(self, tx: Transaction, queue: QueueId) -> None:
        """Have the index know a queue."""
        if queue not in self.index.entries:
            self.index.add_queue(self.entry(queue, self.queue_identity(tx, queue)))

    def entry(self, queue: QueueId, identity: QueueIdentity) -> IndexedQueue:
        owner, group = identity.owner, identity.group
        return IndexedQueue(
            queue, identity, self.policy.entity(owner, group), self.policy.admits(owner, group)
        )

    def forget_queues(self, tx: Transaction, queues: Iterable[QueueId]) -> None:
        """Their rows have gone. In the transaction that deletes them: their ids may be given again at once.

        Nothing waits in them: if that transaction fails they are read again when something does.
        """
        for queue in queues:
            self._forget_queue(queue)
            if self.recorded_reasons is not None:
                tx.delete(self.recorded_reasons, queue)

    def _forget_queue(self, queue: QueueId) -> None:
        self.identities.pop(queue, None)
        self.index.remove_queue(queue)
        self.peers.forget_queue(queue)

    def counts(self, job: int) -> bool:
        """Whether the index counts this job, if it waits."""
        filling = self.filling
        return filling is None or job <= filling.done_to or job > filling.top

    def jobs_added(
        self, tx: Transaction, queue: QueueId, user_priority: int, first: JobId, count: int
    ) -> None:
        """New jobs with ids from `first` on wait in `queue`; the store has them already."""
        self.touch_queue(tx, queue)
        filling = self.filling
        if filling is not None and first <= filling.top:
            # Promised before the start, made after it: the rest will be found.
            count = min(count, max(0, filling.done_to + 1 - first))
        if count:
            self.index.add_jobs(queue, user_priority, first, count)

    def touched(self, tx: Transaction) -> tuple[dict[QueueId, Transaction], dict[str | None, PilotRow]]:
        """The queues and pilots that are read again if this transaction fails, for a caller who changes many.

        Queues are to be in the index; the values are this transaction and the pilot's row.
        """
        self.peers.publish(tx)
        return tx.touched("queues", self._reload_queues), tx.touched("pilots", self._forget_pilots)

    def touch_queue(self, tx: Transaction, queue: QueueId) -> None:
        """When the index changes for `queue`: have it read again from the store if this transaction fails."""
        self.enter_queue(tx, queue)
        tx.touch("queues", queue, tx, self._reload_queues)
        self.peers.publish(tx)

    def _reload_queues(self, touched: dict[QueueId, Transaction]) -> None:
        for queue, tx in touched.items():
            if submission_rows.queue_identity(tx.connection, queue) is None:
                # It was made in what was taken back: its id may be given to another one.
                self._forget_queue(queue)
            else:
                self.reload_queue(tx, queue)

    def reload_queue(self, tx: Transaction, queue: QueueId) -> None:
        if self.filling is not None:
            self.filling.disturbed.add(queue)
            return
        if queue not in self.index.entries:
            return
        self.index.reset_queue(queue, self.peers.waiting_counts(tx, queue))

    def lost(self, tx: Transaction, queue: QueueId, user_priority: int, job: JobId, pilot: PilotRow) -> None:
        """A job that was to be offered to `pilot` is not there any more."""
        self.limits.left(tx, self.queue_identity(tx, queue), pilot)
        if self.peers.count_lost_race():
            self.index.restore_lost_job(queue, user_priority, job)
        else:
            self.reload_queue(tx, queue)

    def remember_pilot(self, pilot: PilotRow) -> None:
        if pilot.token_hash is not None:
            self.pilots[pilot.token_hash] = pilot

    def read_pilots(self, tx: Transaction, token_hashes: Sequence[str]) -> None:
        """Have these pilots be known as the store has them now: another server may have changed them."""
        self.pilots.clear()
        for pilot in pilot_rows.by_tokens(tx.connection, token_hashes):
            self.remember_pilot(pilot)

    def forget_pilot(self, pilot: PilotRow) -> None:
        """Its row is read again at its next message."""
        if pilot.token_hash is not None:
            self.pilots.pop(pilot.token_hash, None)

    def forget_pilots(self, tx: Transaction) -> None:
        """The rows of all pilots have changed: each is read again at its next message."""
        tx.set(self, "pilots", LruCache(PILOTS_KEPT))

    def takes_before(self, before: float, most: int) -> list[PilotId]:
        """Pilots with takes of before that instant which nobody has looked at since."""
        earlier = (pilot for pilot, at in self.unconfirmed.items() if at < before)
        return list(islice(earlier, most))

    def looked_at_takes(self, tx: Transaction, pilot: PilotId, again: float | None) -> None:
        """What a pilot took before `again` is confirmed or taken back."""
        if again is None:
            tx.delete(self.unconfirmed, pilot)
        else:
            tx.put(self.unconfirmed, pilot, again)

    def touch_pilot(self, tx: Transaction, pilot: PilotRow) -> None:
        """When a pilot's facts change in memory."""
        tx.touch("pilots", pilot.token_hash, pilot, self._forget_pilots)

    def _forget_pilots(self, touched: dict[str | None, PilotRow]) -> None:
        for pilot in touched.values():
            self.forget_pilot(pilot)
