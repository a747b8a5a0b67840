"""The pool in memory: what the writer's thread keeps beside the store, and how it is filled and set right.

Only requests to the writer change it. Whatever a request changes here it takes back if its transaction fails.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from pilotage.core.classads import Expression
from pilotage.core.errors import NotFound
from pilotage.core.ids import JobId, PilotId, QueueId, SubmissionId
from pilotage.core.jobs.description import JobDescription
from pilotage.core.jobs.stored import description_from_json
from pilotage.core.policy import Policy
from pilotage.core.queues.entry import Entry, Head
from pilotage.core.queues.fit import Offer
from pilotage.core.queues.identity import QueueIdentity
from pilotage.core.queues.index import QueueIndex
from pilotage.core.queues.kinds import KindBook
from pilotage.core.queues.limits import Limiter
from pilotage.core.shares.correction import Corrections
from pilotage.core.shares.priorities import Priorities
from pilotage.services.asking import AskingPilots
from pilotage.store import jobs as job_rows
from pilotage.store import pilots as pilot_rows
from pilotage.store import submissions as submission_rows
from pilotage.store.events import EventBatch, EventIds
from pilotage.store.pilots import PilotRow
from pilotage.store.writer import Transaction
from pilotage.wire.pilot import Input, Node, Payload

SLICE = 10_000
"""So many ids of jobs are looked at in one transaction."""

REMEMBERED = 4096
"""So many submissions and pilots are kept in memory; the ones unused for longest are read again when needed."""


@dataclass(frozen=True, slots=True)
class SubmissionFacts:
    """What a payload is made of."""

    row: submission_rows.Submission
    description: JobDescription
    inputs: tuple[Input, ...]
    common: dict[str, Payload] = field(default_factory=dict)
    """The payload of every job, under "", where no job has one of its own."""


@dataclass(frozen=True, slots=True)
class DirectorNote:
    """What the director of a CE did in its last cycle."""

    at: float
    ordered: int
    """Pilots asked for in that cycle."""
    pilots: int
    """Live ones before it."""
    cores: int
    used: int
    """Cores that they have, of all of the CE."""
    not_before: float
    """It holds back until then: pilots never called home. 0: it does not."""


@dataclass(frozen=True, slots=True)
class Waited:
    """What a queue waits for since when, as the history has it; "" when nothing waits in it."""

    reason: str
    detail: str
    began: float
    """When its wait began, whatever it waited for then."""


@dataclass(slots=True)
class Filling:
    """How far the waiting jobs have been counted, by rising ids. What came since the start is counted as it comes."""

    top: int
    """The last id that was there at the start."""
    done_to: int = 0
    disturbed: set[QueueId] = field(default_factory=set)
    """Queues to be counted again at the end: a transaction that had changed them failed meanwhile."""


@dataclass(slots=True)
class Pool:
    """Everything that the use cases share."""

    policy: Policy
    policy_version: int
    incarnation: int
    limiter: Limiter
    events: EventIds
    rng: Random
    home_owner: str
    last_submission: int
    last_job: int
    identities: dict[QueueId, QueueIdentity]
    index: QueueIndex = field(init=False)
    pilots: OrderedDict[str, PilotRow] = field(default_factory=OrderedDict)
    """By hash of their token."""
    seen: dict[PilotId, float] = field(default_factory=dict)
    """When each pilot was last heard of. Not stored: only its lease is."""
    unconfirmed: dict[PilotId, float] = field(default_factory=dict)
    """Pilots that have taken jobs which they may not have confirmed, and since when; the earliest first."""
    stalled: set[PilotId] = field(default_factory=set)
    finished: dict[PilotId, int] = field(default_factory=dict)
    """Jobs finished since the count was last written to the pilot's row."""
    followed: dict[JobId, float] = field(default_factory=dict)
    """Jobs whose output somebody watches, until when."""
    requirements: dict[str, Expression] = field(default_factory=dict)
    corrections: Corrections = field(default_factory=Corrections)
    """The share corrections in force, and what they were made of."""
    corrected_at: float | None = None
    kinds: KindBook[tuple[PilotRow, Node]] = field(default_factory=KindBook)
    """The kinds of offer that pilots made lately."""
    asking: AskingPilots = field(default_factory=AskingPilots)
    local_nodes: dict[str, Node] = field(default_factory=dict)
    """What a pilot of each local CE finds when it has the whole of it."""
    directors: dict[str, DirectorNote] = field(default_factory=dict)
    """By CE."""
    waited: dict[QueueId, Waited] | None = None
    """The last reason of each queue in the history; None until it has been read."""
    settling: Iterator[None] | None = None
    """Priorities that have been computed and are being taken up by the index, some in each transaction."""
    filling: Filling | None = None
    """Not None while the waiting jobs are being counted."""
    draining: bool = False
    """No new work is given out: the server is about to stop."""
    _submissions: OrderedDict[SubmissionId, SubmissionFacts] = field(default_factory=OrderedDict)

    def batch(self, now: float, actor: str) -> EventBatch:
        return EventBatch(self.events, now, actor)

    def submission(self, tx: Transaction, id_: SubmissionId) -> SubmissionFacts:
        """A submission with its description read."""
        facts = self._submissions.get(id_)
        if facts is None:
            row = submission_rows.by_id(tx.connection, id_)
            if row is None:
                raise NotFound(f"there is no submission {id_}")
            inputs = tuple(Input(**plain) for plain in json.loads(row.inputs))
            facts = SubmissionFacts(row, description_from_json(json.loads(row.description)), inputs)
            self._submissions[id_] = facts
            if len(self._submissions) > REMEMBERED:
                self._submissions.popitem(last=False)
        return facts

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
            self.index.add(self.entry(queue, self.queue_identity(tx, queue)))

    def entry(self, queue: QueueId, identity: QueueIdentity) -> Entry:
        owner, group = identity.owner, identity.group
        return Entry(queue, identity, self.policy.entity(owner, group), self.policy.admits(owner, group))

    def forget_queues(self, queues: Iterable[QueueId]) -> None:
        """Their rows have gone."""
        for queue in queues:
            self.identities.pop(queue, None)
            self.index.remove(queue)
            if self.waited is not None:
                self.waited.pop(queue, None)

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
            self.index.jobs_added(queue, user_priority, first, count)

    def touch_queue(self, tx: Transaction, queue: QueueId) -> None:
        """When the index changes for `queue`: have it read again from the store if this transaction fails."""
        self.enter_queue(tx, queue)
        tx.touch("queues", queue, tx, self._reload_queues)

    def _reload_queues(self, touched: dict[QueueId, Transaction]) -> None:
        for queue, tx in touched.items():
            if submission_rows.queue_identity(tx.connection, queue) is None:
                # It was made in what was taken back: its id may be given to another one.
                self.forget_queues([queue])
            else:
                self.reload_queue(tx, queue)

    def reload_queue(self, tx: Transaction, queue: QueueId) -> None:
        if self.filling is not None:
            self.filling.disturbed.add(queue)
        elif queue in self.index.entries:
            self.index.reset(queue, job_rows.waiting_counts_of(tx.connection, queue))

    def started(self, tx: Transaction, queue: QueueIdentity, place: PilotRow, now: float) -> None:
        """A job of `queue` is offered there: the running limits count it."""
        if self.limiter.limits:
            self._touch_limits(tx)
            self.limiter.started(queue, place.site, place.ce, now)

    def left(self, tx: Transaction, queue: QueueIdentity, place: PilotRow) -> None:
        """A job of `queue` is there no longer."""
        if self.limiter.limits:
            self._touch_limits(tx)
            self.limiter.ended(queue, place.site, place.ce)

    def _touch_limits(self, tx: Transaction) -> None:
        tx.touch("limits", "", tx, lambda _: self.recount_limits(tx))

    def recount_limits(self, tx: Transaction) -> None:
        held = job_rows.held_counts(tx.connection)
        self.limiter.recount(
            (self.queue_identity(tx, queue), site, ce, count) for queue, site, ce, count in held
        )

    def took_back(self, touched: dict[object, tuple[Offer, bool]]) -> None:
        """Takes that were noted did not happen."""
        for key, given in touched.values():
            self.kinds.take_back(key, given)

    def remember_pilot(self, pilot: PilotRow) -> None:
        if pilot.token_hash is not None:
            self.pilots[pilot.token_hash] = pilot
            if len(self.pilots) > REMEMBERED * 4:
                self.pilots.popitem(last=False)

    def forget_pilot(self, pilot: PilotRow) -> None:
        """Its row is read again at its next message."""
        if pilot.token_hash is not None:
            self.pilots.pop(pilot.token_hash, None)

    def pilot_ended(self, tx: Transaction, pilot: PilotId) -> None:
        """Write down what memory alone knew of a pilot, and forget it."""
        finished, seen = self.finished.pop(pilot, 0), self.seen.pop(pilot, None)
        stalled = pilot in self.stalled
        self.stalled.discard(pilot)

        def undo() -> None:
            self.finished[pilot] = finished
            if seen is not None:
                self.seen[pilot] = seen
            if stalled:
                self.stalled.add(pilot)

        tx.on_rollback(undo)
        pilot_rows.count_finished(tx.connection, pilot, finished)

    def takes_before(self, before: float, most: int) -> list[PilotId]:
        """Pilots with takes of before that instant which nobody has looked at since."""
        found: list[PilotId] = []
        for pilot, at in self.unconfirmed.items():
            if at >= before or len(found) == most:
                break
            found.append(pilot)
        return found

    def looked_at_takes(self, tx: Transaction, pilot: PilotId, again: float | None) -> None:
        """What a pilot took before `again` is confirmed or taken back."""
        at = self.unconfirmed.pop(pilot)
        if again is not None:
            self.unconfirmed[pilot] = again
        tx.on_rollback(lambda: self.unconfirmed.update({pilot: at}))

    def touch_pilot(self, tx: Transaction, pilot: PilotRow) -> None:
        """When a pilot's facts change in memory."""
        tx.touch("pilots", pilot.token_hash, pilot, self._forget_pilots)

    def _forget_pilots(self, touched: dict[str | None, PilotRow]) -> None:
        for pilot in touched.values():
            self.forget_pilot(pilot)


def open_pool(
    tx: Transaction,
    policy: Policy,
    *,
    version: int,
    incarnation: int,
    rng: Random,
    home_owner: str,
    id_floor: int = 0,
    filled: bool = True,
) -> Pool:
    """The pool of a store, with everything read that it keeps in memory. No id up to `id_floor` is given again.

    If it is not to be `filled` the waiting jobs are counted later, by `fill_some`.
    """
    last_submission, last_job = submission_rows.last_ids(tx.connection)
    pool = Pool(
        policy=policy,
        policy_version=version,
        incarnation=incarnation,
        limiter=Limiter(),
        events=EventIds(tx.connection, id_floor),
        rng=rng,
        home_owner=home_owner,
        last_submission=max(last_submission, id_floor),
        last_job=max(last_job, id_floor),
        identities={},
    )
    pool.index = new_index(pool, policy, tx, rng)
    begin_filling(pool, tx)
    while filled and not fill_some(pool, tx):
        pass
    return pool


def begin_filling(pool: Pool, tx: Transaction) -> None:
    """Read the task queues and what pilots have; the waiting jobs follow (`fill_some`)."""
    pool.identities = dict(submission_rows.all_queues(tx.connection))
    pool.index.clear()
    pool.limiter.adopt(pool.policy.limit_list())
    pool.recount_limits(tx)
    pool.stalled = set(job_rows.stalled_pilots(tx.connection))
    pool.unconfirmed = dict(pilot_rows.last_takes(tx.connection))
    pool.filling = Filling(top=job_rows.last_id(tx.connection))


def fill_some(pool: Pool, tx: Transaction) -> bool:
    """Count the waiting jobs of some ids; whether all are counted. Between two of these others have their turn."""
    filling = pool.filling
    if filling is None:
        return True
    until = min(filling.top, filling.done_to + SLICE)
    for queue, weight, count, first in job_rows.waiting_between(tx.connection, filling.done_to, until):
        pool.enter_queue(tx, queue)
        pool.index.jobs_found(queue, weight, JobId(first), count)
    filling.done_to = until
    if until < filling.top:
        return False
    pool.filling = None
    for queue in filling.disturbed:
        pool.reload_queue(tx, queue)
    return True


def fill(pool: Pool, tx: Transaction) -> None:
    """Read everything at once."""
    begin_filling(pool, tx)
    while not fill_some(pool, tx):
        pass


def match_anew(pool: Pool, tx: Transaction) -> None:
    """A new policy is in force: its index of the same waiting jobs, none of which is read again."""
    old = pool.index
    pool.index, pool.settling = new_index(pool, pool.policy, tx, pool.rng), None
    for queue, before in old.entries.items():
        entry = pool.entry(queue, before.identity)
        pool.index.add(entry)
        pool.index.take_over(entry, before)
    pool.limiter.adopt(pool.policy.limit_list())
    pool.recount_limits(tx)


def new_index(pool: Pool, policy: Policy, tx: Transaction, rng: Random) -> QueueIndex:
    """An empty index that reads its heads through the writer's connection: each a `store.jobs.Waiting`."""

    def heads(queue: QueueId, weight: int, after: int, most: int) -> Sequence[Head]:
        found = job_rows.heads(tx.connection, queue, weight, after, most)
        # What is not counted yet is not given out yet.
        return found if pool.filling is None else [head for head in found if pool.counts(head[0])]

    matching = policy.matching
    sharing = frozenset(group for group in policy.groups if policy.sharing(group))
    return QueueIndex(
        heads,
        rule=matching.rule,
        cpu_buckets=matching.cpu_buckets,
        memory_buckets=matching.memory_buckets,
        priorities=Priorities(policy.shares(), sharing),
        rng=rng,
    )
