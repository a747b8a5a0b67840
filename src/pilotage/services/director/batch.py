"""The director of one CE that is a batch system: submissions of pilots, their hand-over, and their ends.

A submission is an array of equal pilots with one stamp, which is their name in the batch system. Its intent is stored
before the batch system is called. The table of core/pilots/handover.py decides on the next step after each listing.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace

from pilotage.core.pilots.backoff import BackOff
from pilotage.core.pilots.handover import Action, SubmissionPhase
from pilotage.core.pilots.states import PilotState
from pilotage.core.policy import Ce
from pilotage.core.provisioning.batch import BatchOrder, room_for_pilots
from pilotage.core.provisioning.pilot_types import PRIVATE
from pilotage.core.sites import SiteState
from pilotage.outside.batch.adapter import Receipt
from pilotage.outside.batch.submission import BatchListing, ListedTask, cluster_of
from pilotage.services.director import listed_tasks
from pilotage.services.director.budgets import exhausted, orders_within, status_of
from pilotage.services.director.ce_record import CALLED_HOME, CeMemory
from pilotage.services.director.forwarding import (
    ForwardedOrder,
    forwarded_orders,
    forwarding_properties,
    hook_call,
)
from pilotage.services.director.hand_over import give_up, pilots_of, take_step
from pilotage.services.director.listing_comparison import (
    ListingComparison,
    Observation,
    UnchangedSubmission,
    stamps_of,
)
from pilotage.services.director.look_back import is_unfit, note_cycle, observe_pilots
from pilotage.services.director.probes import is_wanted, mark_submitted
from pilotage.services.director.released import Listed, watch_released
from pilotage.services.director.submissions import (
    BatchSteps,
    SubmissionIntent,
    properties_of,
    store_submission,
)
from pilotage.services.pilots.enrolment import PROBE
from pilotage.services.pilots.lifecycle import PilotEnd
from pilotage.services.pool.state import Pool
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import ces, pilot_submissions, pilots
from pilotage.store.tables.ces import CeSwitch, LiveTotals
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.pilot import Node

DEFAULT_SETTLE = 120.0
"""Seconds of `ces.NAME.settle` for a CE that the policy has no more."""


@dataclass(slots=True)
class BatchDirector:
    """The director of one batch CE. Its `memory` is stored; the rest may be forgotten."""

    ce: str
    platform: str
    """The platform that its nodes are expected to have."""
    back_off: BackOff = field(default_factory=BackOff)
    memory: CeMemory = field(init=False)
    unchanged: dict[str, UnchangedSubmission] = field(default_factory=dict)
    """By stamp: submissions that the last listing would not have changed."""
    largest: int | None = None
    """Pilots of one submission at most, after the batch system had no room for more; None: no limit is known."""
    _orphaned: dict[str, int] = field(default_factory=dict)
    """By stamp."""
    _ce: Ce | None = None

    def __post_init__(self) -> None:
        self.memory = CeMemory(self.ce)

    def order(
        self, pool: Pool, tx: Transaction, now: float, live: LiveTotals | None = None
    ) -> list[SubmissionIntent]:
        """Store the intents of the submissions that the last iteration has ordered, within the room of the CE.

        `live`: the totals of its pilots, not older than its last intent; None: they are read here.
        """
        ce = pool.policy.ces.get(self.ce)
        if ce is None:
            return []
        node = Node(platform=self.platform, processors=ce.pilot_processors, memory=ce.pilot_memory)
        tx.put(pool.ces.local_nodes, self.ce, node)
        live = ces.live_totals(tx.connection, self.ce) if live is None else live
        row = self.memory.restore(tx)
        self._look_back(pool, tx, ce, now, row.switched)
        orders = _orders_with_jobs(pool, self.ce)
        tx.delete(pool.provisioning.orders, self.ce)
        open_ = ces.by_name(tx.connection, self.ce).switch is CeSwitch.ON  # it may have stopped just now
        # Orders that are not carried out now are decided again in the next iteration.
        orders = self._within_room(ce, live, orders) if open_ and not self._holds_back(pool, ce, now) else ()
        budget = status_of(tx.connection, self.ce, ce, now)
        orders = orders_within(budget, orders)
        ordered = sum(order.pilots for order in orders)
        cores, room = ce.max_running * ce.pilot_processors, None if budget is None else budget.room - ordered
        note = note_cycle(
            now, ordered, live, cores, self.back_off, self.memory.not_before, exhausted(budget), room
        )
        tx.put(pool.provisioning.directors, self.ce, note)
        self.memory.store(tx)
        forwarded = forwarded_orders(pool, tx, self.ce, orders, now)
        intents = [self._store_intent(pool, tx, ce, order, now) for order in forwarded]
        has_room = budget is None or ordered < budget.room
        if has_room and not pool.server.draining and is_wanted(tx, self.ce, now):
            probe, (pilot,) = store_submission(
                pool, tx, self.ce, ce, 1, None, now, properties={}, pilot_type=PROBE
            )
            mark_submitted(tx, self.ce, pilot)
            intents.append(probe)
        return intents

    def _store_intent(
        self, pool: Pool, tx: Transaction, ce: Ce, forwarded: ForwardedOrder, now: float
    ) -> SubmissionIntent:
        order = forwarded.order
        properties = properties_of(order) | forwarding_properties(forwarded)
        # Where a pilot isolates payloads, a private pilot may serve all owners of a group with JOB_SHARING.
        owner = order.owner if order.pilot_type == PRIVATE and ce.isolation != "require" else None
        intent, members = store_submission(
            *(pool, tx, self.ce, ce, order.pilots, owner, now),
            properties=properties,
            pilot_type=order.pilot_type,
            order=order,
        )
        self.back_off.started_for.update(dict.fromkeys(members, order.queue))
        made = forwarded.forwarding
        call = hook_call(pool.policy, ce, self.ce, forwarded.identity, made)
        return replace(intent, flags=made.flags, hook=call)

    def _holds_back(self, pool: Pool, ce: Ce, now: float) -> bool:
        paused = self.memory.is_paused(now)
        down = pool.site_state(ce.site) is SiteState.DOWN
        return pool.server.draining or down or paused or self.back_off.pauses_for_all(now)

    def _within_room(self, ce: Ce, live: LiveTotals, orders: Sequence[BatchOrder]) -> tuple[BatchOrder, ...]:
        """The orders as far as the caps of the CE allow now."""
        running = live.pilots - live.waiting + self.orphaned
        room = room_for_pilots(live.waiting, running, ce.max_waiting, ce.max_running)
        allowed = []
        for order in orders:
            if room > 0:
                largest = order.pilots if self.largest is None else self.largest
                allowed.append(replace(order, pilots=min(room, order.pilots, largest)))
                room -= allowed[-1].pilots
        return tuple(allowed)

    def _look_back(self, pool: Pool, tx: Transaction, ce: Ce, now: float, switched: float | None) -> None:
        """Learn which of the pilots that were submitted here had a job."""
        back_off = deepcopy(self.back_off)
        tx.set(self, "back_off", back_off)
        if ce != self._ce:
            tx.set(self, "_ce", ce)
            if self.memory.begin_section(pool, tx, ce, now):
                back_off.forget()
        back_off.follow_switch(switched)
        rows = observe_pilots(pool, tx, back_off, now)
        queues, until = back_off.paused_queues(now)
        tx.set(self.memory, "queues_paused", queues)
        tx.set(self.memory, "queues_until", until)
        started = [row for row in rows if row.started is not None]
        if started:
            self.memory.pilot_started(tx, had_job=any(row.take_number for row in started))
        for row in filter(is_unfit, rows):
            self.memory.count_failure(pool, tx, f"{CALLED_HOME}: {row.reason}", now)

    def acknowledged(self, pool: Pool, tx: Transaction, stamp: str, receipt: Receipt) -> None:
        """The batch system holds the submission."""
        if (row := pilot_submissions.live_by_stamp(tx.connection, stamp)) is not None:
            if self.largest is not None and row.pilots >= self.largest:
                tx.set(self, "largest", 2 * self.largest)
            pilot_submissions.update(
                tx.connection, row.id, phase=SubmissionPhase.HELD, batch_id=receipt.array, absent_since=None
            )
            listed_tasks.set_batch_ids(pool, tx, pilots_of(tx, row), dict(enumerate(receipt.batch_ids)))

    def releasing(self, tx: Transaction, stamp: str) -> bool:
        """Store that a submission is about to be released. False: it has been given up."""
        row = pilot_submissions.live_by_stamp(tx.connection, stamp)
        if row is None:
            return False
        if row.phase is SubmissionPhase.HELD:
            pilot_submissions.update(tx.connection, row.id, phase=SubmissionPhase.RELEASING)
        return True

    def released(self, pool: Pool, tx: Transaction, stamp: str) -> None:
        """The batch system says that it has released a submission. A listing shows whether it has."""
        row = pilot_submissions.live_by_stamp(tx.connection, stamp)
        if row is None:
            return
        pilot_submissions.update(
            tx.connection, row.id, releases=row.releases + 1, epoch=self.memory.epoch, absent_since=None
        )
        for pilot in pilots_of(tx, row):
            if pilot.state is PilotState.SUBMITTED:
                pool.pilots.rows.forget(pilot)
                pilots.update(tx.connection, pilot.id, state=PilotState.WAITING)

    def in_doubt(self, tx: Transaction, stamp: str, reason: str) -> None:
        """The batch system gave no clear answer: the next listings tell."""
        if (row := pilot_submissions.live_by_stamp(tx.connection, stamp)) is not None:
            pilot_submissions.update(tx.connection, row.id, phase=SubmissionPhase.IN_DOUBT, reason=reason)

    def full(self, pool: Pool, tx: Transaction, stamp: str, reason: str, now: float) -> None:
        """The batch system has reached a limit of its own: no failure, so it never stops the CE.

        It may have room for fewer pilots, so half as many are tried next. Without room for one, the CE waits.
        """
        if (row := pilot_submissions.live_by_stamp(tx.connection, stamp)) is not None:
            give_up(pool, tx, row, PilotEnd.NO_ROOM, reason, now)
            tx.set(self, "largest", max(1, row.pilots // 2))
            if row.pilots == 1:
                self.memory.restore(tx)
                self.memory.wait_for_room(tx, reason, now)
                self.memory.store(tx)

    def refused(self, pool: Pool, tx: Transaction, stamp: str, reason: str, now: float) -> bool:
        """The batch system will never start the submission: give it up. False: it has pilots that may run."""
        row = pilot_submissions.live_by_stamp(tx.connection, stamp)
        if row is None:
            return True
        members = pilots_of(tx, row)
        if row.phase is SubmissionPhase.RELEASED or any(pilot.started is not None for pilot in members):
            return False
        give_up(pool, tx, row, PilotEnd.NEVER_STARTED, reason, now)
        self.memory.restore(tx)
        self.memory.pause(tx, reason, now)
        self.memory.count_failure(pool, tx, reason, now)
        self.memory.store(tx)
        return True

    def checked(self, connection: Connection, listing: BatchListing) -> BatchListing:
        """The listing, unless it is of another cluster than the one that has the CE's pilots.

        Absence from the listing of another cluster means nothing.
        """
        before = cluster_of(ces.by_name(connection, self.ce).progress.epoch)
        if not listing.complete or not before or listing.cluster in ("", before):
            return listing
        if not pilot_submissions.live(connection, self.ce):
            return listing
        return BatchListing(
            failure=f"this is cluster {listing.cluster}, and pilots of the CE are in cluster {before}: configure"
            f" cluster {before} for the CE again until they have ended, and a CE of its own for the other one"
        )

    def begin_observation(self, tx: Transaction, listing: BatchListing, listed: float) -> None:
        """Note the result of a listing. Its submissions follow, a few in each transaction."""
        self.memory.restore(tx)
        self.memory.note_listing(tx, listing, listed)
        self.memory.store(tx)

    def observe_some(
        self,
        pool: Pool,
        tx: Transaction,
        comparison: ListingComparison,
        observations: Sequence[Observation],
        now: float,
    ) -> BatchSteps:
        """Apply the listing to some of the submissions that may have changed."""
        self.memory.restore(tx)
        release, cancel, unwanted = [], [], []
        for observation in observations:
            row = observation.row
            # The next comparison finds out whether a further observation is needed.
            tx.delete(self.unchanged, row.stamp)
            ours, others = listed_tasks.without_doubles(row, observation.tasks)
            members = pilots.of_submission(tx.connection, stamps_of(observation))
            unwanted += [*others, *listed_tasks.killed_tasks(members, ours)]
            listed_tasks.note_batch_ids(pool, tx, members, ours)
            listed_tasks.note_cores(tx, row, members, ours, comparison.listed)
            listed = self._listed(pool, comparison, observation, ours)
            if observation.indexes is None:
                action = take_step(pool, tx, self.memory, row, members, ours, listed, now)
            else:
                watch_released(pool, tx, self.memory, row, members, ours, listed, now)
                action = Action.NONE
            self._note_orphaned(tx, row.stamp, listed_tasks.count_orphaned(members, ours))
            if action is Action.RELEASE:
                release.append(row.stamp)
            elif action is Action.CANCEL:
                cancel.append(row.stamp)
        self.memory.store(tx)
        return BatchSteps(tuple(release), tuple(cancel), tuple(unwanted))

    def note_unchanged(self, tx: Transaction, comparison: ListingComparison) -> None:
        """After all observations: note the submissions without one, watch the returned ones, forget the ended ones."""
        for stamp in comparison.back:
            pilot_submissions.reopen(tx.connection, stamp)
        unchanged = {stamp: facts for stamp, facts in self.unchanged.items() if stamp in comparison.live}
        tx.set(self, "unchanged", {**unchanged, **comparison.unchanged})
        for stamp in [*self._orphaned]:
            if stamp not in comparison.live or stamp in comparison.unchanged:
                tx.delete(self._orphaned, stamp)

    def _listed(
        self, pool: Pool, comparison: ListingComparison, observation: Observation, tasks: Sequence[ListedTask]
    ) -> Listed:
        """The part of a listing that is about a submission. `tasks`: its batch jobs, without doubles."""
        whole = observation.indexes is None
        return Listed(
            comparison.listed,
            self._settle(pool),
            listed_tasks.wait_reason(tasks) if whole else observation.reason,
            listed_tasks.wait_class(tasks) if whole else observation.row.wait_class,
            observation.others,
            comparison.contradicted,
            observation.accounted,
        )

    def _note_orphaned(self, tx: Transaction, stamp: str, count: int) -> None:
        if count:
            tx.put(self._orphaned, stamp, count)
        else:
            tx.delete(self._orphaned, stamp)

    @property
    def orphaned(self) -> int:
        """Batch jobs at the last listing whose pilots were given up, say for their lease: they may come back."""
        return sum(self._orphaned.values())

    def _settle(self, pool: Pool) -> float:
        """Of the CE, also after it has gone from the policy."""
        ce = pool.policy.ces.get(self.ce, self._ce)
        return DEFAULT_SETTLE if ce is None else ce.settle


def _orders_with_jobs(pool: Pool, ce: str) -> tuple[BatchOrder, ...]:
    """The orders whose jobs still wait: other pilots may have taken them since the iteration read its facts."""
    entries = pool.queues.index.entries
    return tuple(
        order
        for order in pool.provisioning.orders.get(ce, ())
        if (entry := entries.get(order.queue)) is not None and entry.waiting
    )
