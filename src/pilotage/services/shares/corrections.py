"""Charges use, computes share corrections from it, and applies priorities, all off the hot path.

A reader's connection in any thread reads and computes. Short requests to the writer store the result and update the
index.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

import msgspec

from pilotage.core.policy import Policy
from pilotage.core.shares.correction import Corrections, Facts, Memory, correct
from pilotage.core.shares.correctors.wms_history import CorrectionSlice, HistoryInstance
from pilotage.core.shares.reports import InstanceReport
from pilotage.core.shares.use import Entity, Ledger, Use, columns_of
from pilotage.services.pool.peers import PeerUpdate
from pilotage.services.pool.state import Pool
from pilotage.services.pool.task_queues import TaskQueues
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import instance
from pilotage.store.tables import usage as use_rows
from pilotage.store.writer.transaction import Transaction

QUEUES_PER_REQUEST = 100
"""Queues that get a new priority in one request to the writer: below 1 ms, the time of a few matches."""

BUCKETS_PER_TRANSACTION = 20
"""Buckets stored in one transaction."""

MAX_AHEAD = 60.0
"""Seconds. Buckets further in the future were stored before the clock stepped back, and are rebuilt."""

SHOWN_SPANS = {"Hour": 3600.0, "Week": 604800.0}
"""Spans in which use is shown for entities without a corrector."""


def apply_priorities(queues: TaskQueues) -> bool:
    """Apply some of the changed priorities to the index. Returns whether all are applied. Writer's thread."""
    if queues.priority_updates is None:
        queues.priority_updates = queues.index.apply_priorities()
    done = sum(1 for _ in islice(queues.priority_updates, QUEUES_PER_REQUEST))
    if done < QUEUES_PER_REQUEST:
        queues.priority_updates = None
    return queues.priority_updates is None


class LedgerOutdated(Exception):
    """All buckets got invalid since attempts were read: one goes on after its end, or the clock has stepped back."""


@dataclass(frozen=True, slots=True)
class LedgerUpdate:
    """The changes of one `UseBook.charge`."""

    resets: int
    """How often all buckets had got invalid before."""
    anew: bool
    """All buckets are rebuilt."""
    as_of: float
    known_entities: int
    buckets: list[tuple[int, int]]
    gone: list[tuple[int, int]]


@dataclass(slots=True)
class UseBook:
    """The ledger of one server and its changes for the store. Any thread may call it."""

    history: float
    _ledger: Ledger | None = None
    _resets: int = 0
    """How often all buckets had got invalid when `_ledger` was charged."""
    _charged: LedgerUpdate | None = None
    """The last change of `_ledger`."""
    _stored: LedgerUpdate | None = None
    """The last change that was stored, by this server."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def charge(self, connection: Connection) -> LedgerUpdate:
        """Charge the use of attempts up to the server's last sign of life."""
        with self._lock:
            try:
                with use_rows.snapshot(connection):
                    self._charged = self._charge(connection)
                    return self._charged
            except BaseException:
                self._ledger = None
                raise

    def _charge(self, connection: Connection) -> LedgerUpdate:
        server = instance.load(connection)
        assert server is not None
        stored = use_rows.as_of(connection)
        if stored is not None and stored > server.alive_at + MAX_AHEAD:
            stored = None
        resets = use_rows.resets(connection)
        ledger = self._ledger
        is_stored = ledger is not None and self._is_stored(connection, ledger)
        if ledger is None or ledger.as_of != stored or self._resets != resets or not is_stored:
            oldest = server.alive_at - self.history
            ledger = self._ledger = Ledger(oldest if stored is None else stored, self.history)
            if stored is not None:
                use_rows.load(connection, ledger)
        self._resets = resets
        ledger.history = self.history
        ledger.outages = use_rows.outages(connection)
        known = len(ledger.entities)
        portions = use_rows.attempts_since(connection, ledger.as_of)
        changed = ledger.charge((columns_of(ledger, rows) for rows in portions), server.alive_at)
        return LedgerUpdate(resets, stored is None, ledger.as_of, known, changed, ledger.forget_old())

    def _is_stored(self, connection: Connection, ledger: Ledger) -> bool:
        """Whether the store knows the entities of the ledger by the same places.

        The same `as_of` does not say so: changes that were not stored may end there, and changes of another server too.
        """
        return self._charged is self._stored and use_rows.entity_count(connection) == len(ledger.entities)

    def saving(self, charged: LedgerUpdate) -> Iterator[use_rows.LedgerChanges]:
        """The changes to store, one transaction each; usually a single one. Ask for the next when one is stored."""
        ledger = self._ledger
        assert ledger is not None
        gone = set(charged.gone)
        keys = [key for key in charged.buckets if key not in gone]
        portions = [
            keys[at : at + BUCKETS_PER_TRANSACTION] for at in range(0, len(keys), BUCKETS_PER_TRANSACTION)
        ] or [[]]
        for place, portion in enumerate(portions):
            yield use_rows.LedgerChanges(
                resets=charged.resets,
                as_of=charged.as_of if place == len(portions) - 1 else None,
                anew=charged.anew and place == 0,
                first_entity=charged.known_entities,
                entities=ledger.entities[charged.known_entities :] if place == 0 else [],
                buckets=[(span, start, ledger.levels[span][start]) for span, start in portion],
                gone=charged.gone if place == 0 else [],
            )
        self._stored = charged

    def look(self, spans: Mapping[str, float]) -> dict[str, Use]:
        """Average use over spans of up-time, by the names of the spans."""
        with self._lock:
            ledger = self._ledger
            return {} if ledger is None else {name: ledger.over(span) for name, span in spans.items()}

    def decayed(self, half_life: float) -> Use:
        """Average use with a weight that halves with each `half_life` seconds of up-time."""
        with self._lock:
            return Use({}, {}) if self._ledger is None else self._ledger.decayed(half_life)

    def between(self, begin: float, end: float) -> Use:
        with self._lock:
            return Use({}, {}) if self._ledger is None else self._ledger.between(begin, end)

    @property
    def as_of(self) -> float | None:
        ledger = self._ledger
        return None if ledger is None else ledger.as_of

    def up_time(self, begin: float, end: float) -> float:
        """Seconds of up-time between two instants."""
        with self._lock:
            return 0.0 if self._ledger is None else self._ledger.up_time(begin, end)


def save_use(tx: Transaction, save: use_rows.LedgerChanges) -> None:
    """Store a part of the charged use. Raises `LedgerOutdated` if it must be charged again."""
    instance.lock_row(tx.connection)  # Other servers count no reset before this transaction ends.
    if use_rows.resets(tx.connection) != save.resets:
        raise LedgerOutdated
    use_rows.save_changes(tx.connection, save)


# --- corrections


@dataclass(frozen=True, slots=True)
class WaitingEntities:
    """The policy and the entities with waiting jobs, at one moment."""

    policy: Policy
    entities: frozenset[Entity]


def waiting_entities(pool: Pool) -> WaitingEntities:
    """Writer's thread."""
    return WaitingEntities(pool.policy, pool.queues.index.priorities.waiting_owners())


def compute_corrections(
    book: UseBook, who: WaitingEntities, last: float | None, memory: Memory
) -> Corrections:
    """The corrections of the policy, and reports on entities that nothing corrects.

    `last` is the time of the correction that left `memory`.
    """
    policy = who.policy
    now = book.as_of or 0.0
    facts = Facts(
        shares=policy.shares(),
        owners=who.entities,
        admits=policy.admits,
        use=lambda span: book.look({"": span}).get("") or Use({}, {}),
        decayed_use=book.decayed,
        elapsed=book.up_time(last, now) if last is not None else policy.correction.period,
    )
    names = policy.correction.correctors
    instances = {name: policy.correction.instances_of(name) for name in names}
    return correct([*names, SHOWN_ONLY], {**instances, SHOWN_ONLY: _shown_only(policy)}, facts, memory)


SHOWN_ONLY = ""
"""Stands for a corrector in reports of use that nothing corrects."""


def _shown_only(policy: Policy) -> dict[str, HistoryInstance]:
    """Instances with the factor 1, which show the use of entities that no corrector looks at."""
    corrected = {instance.settings.group for instance in policy.correction.instances}
    slices = {
        name: CorrectionSlice(time_span=span, max_correction=1.0)
        for name, span in SHOWN_SPANS.items()
        if span <= policy.accounting.history
    }
    targets = ["", *(group for group in policy.groups if not policy.sharing(group))]
    return {
        group: HistoryInstance(group=group, max_global_correction_factor=1.0, slices=slices)
        for group in targets
        if group not in corrected
    }


def apply_corrections(pool: Pool, tx: Transaction, corrections: Corrections, at: float) -> None:
    """Store the memory of the correctors, and set the corrections in force."""
    before = (pool.shares.corrections, pool.shares.corrected_at)
    tx.on_rollback(lambda: _set_corrections(pool, *before))
    text = _encode(corrections) if pool.peers.shared else ""
    use_rows.save_correction(tx.connection, at, corrections.memory, text)
    _set_corrections(pool, corrections, at)
    pool.peers.publish(tx, PeerUpdate(corrected=True))


class _PublishedCorrections(msgspec.Struct):
    """Corrections as other servers read them."""

    groups: dict[str, float]
    owners: list[tuple[str, str, float]]
    reports: list[InstanceReport]


def _encode(corrections: Corrections) -> str:
    owners = [(owner, group, factor) for (owner, group), factor in corrections.owners.items()]
    return msgspec.json.encode(
        _PublishedCorrections(corrections.groups, owners, corrections.reports)
    ).decode()


def read_corrections(pool: Pool, tx: Transaction) -> None:
    """Set the corrections in force that another server has computed."""
    at, text = use_rows.last_correction(tx.connection)
    if text:
        corrections = msgspec.json.decode(text, type=_PublishedCorrections)
        owners = {(owner, group): factor for owner, group, factor in corrections.owners}
        _set_corrections(pool, Corrections(corrections.groups, owners, corrections.reports), at)


def _set_corrections(pool: Pool, corrections: Corrections, at: float | None) -> None:
    pool.shares.corrections, pool.shares.corrected_at = corrections, at
    pool.queues.index.priorities.correct(corrections.groups, corrections.owners)
