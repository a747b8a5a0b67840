"""The director of one CE: its memory, and the rule by which it orders pilots.

It works in three phases: `ordering` stores the intents of submissions, `submitting` stores the answers of the batch
system, and `observing` applies listings. A local CE has the same phases: its batch system is the server's machine.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from pilotage.core.ids import PilotId
from pilotage.core.pilots.backoff import BackOff
from pilotage.core.policy import Ce
from pilotage.core.policy.budget import BudgetStatus
from pilotage.services.director.ce_record import BATCH_PAUSES, LOCAL_PAUSES, CeMemory
from pilotage.services.director.listing_comparison import UnchangedSubmission
from pilotage.services.director.submissions import SubmissionOrder
from pilotage.services.pool.state import Pool
from pilotage.store.tables.ces import LiveTotals
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.pilot import Node

DEFAULT_SETTLE = 120.0
"""Seconds of `ces.NAME.settle` for a CE that the policy has no more."""


@dataclass(frozen=True, slots=True)
class CycleFacts:
    """The facts of one cycle that every rule of orders needs."""

    ce: Ce
    now: float
    is_open: bool
    """False: the CE is stopped, paused or down, or the server is stopping. Then nothing may be ordered."""
    budget: BudgetStatus | None
    """None: the CE has no budget."""
    live: LiveTotals | None
    """The totals of its pilots, not older than its last intent; None: nobody has read them."""


@dataclass(frozen=True, slots=True)
class ChosenOrders:
    """The submissions to store in one cycle."""

    orders: Sequence[SubmissionOrder]
    live: LiveTotals
    cores: int
    """Cores that the pilots of the CE may have together."""


class OrderRule(Protocol):
    """How many pilots a CE gets, how wide they are, and for whom.

    `IterationOrders` serves batch systems, `LocalOrders` this machine. `server/process/schedule.py` chooses.
    """

    def node(self, ce: Ce) -> Node:
        """The node that a new pilot of the CE is expected to find."""

    def probe(self, ce: Ce) -> SubmissionOrder:
        """The pilot for `pilotage ce test`."""

    def choose(self, director: CeDirector, pool: Pool, tx: Transaction, facts: CycleFacts) -> ChosenOrders:
        """The submissions of this cycle, within the room and the budget of the CE."""


class OrphanedJobs(NamedTuple):
    """Batch jobs of one submission that have outlived their pilots."""

    number: int
    since: float
    """The first end of their pilots."""


@dataclass(slots=True)
class CeDirector:
    """The director of one CE. Its `memory` is stored; the rest may be forgotten."""

    ce: str
    rule: OrderRule
    local: bool = False
    """Its pilots are processes of this machine, which are asked about one by one: one answer is proof."""
    place: str = ""
    """The part of a batch id that is known before the submission."""
    back_off: BackOff = field(default_factory=BackOff)
    memory: CeMemory = field(init=False)
    unchanged: dict[str, UnchangedSubmission] = field(default_factory=dict)
    """Submissions that the last listing would not have changed, by stamp."""
    largest: int | None = None
    """Pilots of one submission at most, after the batch system had no room for more; None: no limit is known."""
    orphans: dict[str, OrphanedJobs] = field(default_factory=dict)
    """Batch jobs at the last listing whose pilots have ended, by the stamp of their submission."""
    no_room: str = ""
    """Why the batch system has no room for one further pilot, in this cycle; empty: it may have room."""
    next_listing: float = 0.0
    killed: Set[PilotId] = frozenset()
    """Pilots whose kill the last listing has taken in."""
    section: Ce | None = None
    """The CE as the policy had it in the last cycle."""

    def __post_init__(self) -> None:
        self.memory = CeMemory(self.ce, LOCAL_PAUSES if self.local else BATCH_PAUSES)

    def note_orphans(self, tx: Transaction) -> None:
        """Keep their number and age in `memory`, which is shown and decides about the room of the CE."""
        tx.set(self.memory, "orphans", sum(jobs.number for jobs in self.orphans.values()))
        tx.set(
            self.memory, "orphans_since", min((jobs.since for jobs in self.orphans.values()), default=None)
        )

    def settle(self, pool: Pool) -> float:
        """Seconds between two listings that prove an absence, also after the CE has gone from the policy."""
        if self.local:
            return 0.0
        ce = pool.policy.ces.get(self.ce, self.section)
        return DEFAULT_SETTLE if ce is None else ce.settle
