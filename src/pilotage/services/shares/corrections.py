"""Shares at work: use is charged, corrections are drawn from it, priorities are settled; all off the hot path.

Reading and computing happens on a reader's connection, in any thread; what comes of it is stored, and told to the
index, in short requests to the writer.
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
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import instance
from pilotage.store.tables import usage as use_rows
from pilotage.store.writer.transaction import Transaction

SETTLED_AT_ONCE = 100
"""Queues that take up a new priority in one turn of the writer: below 1 ms, as long as some matches."""

SAVED_AT_ONCE = 20
"""Buckets stored in one transaction."""

AHEAD = 60.0
"""Buckets that reach so many seconds into the future were stored across a step of the clock: they are made anew."""

WATCHED = {"Hour": 3600.0, "Week": 604800.0}
"""What is shown of entities that nothing corrects."""


def apply_priorities(pool: Pool) -> bool:
    """Have the index take up some of the priorities that have changed; whether that was all. Writer's thread."""
    if pool.settling is None:
        pool.settling = pool.index.apply_priorities()
    done = sum(1 for _ in islice(pool.settling, SETTLED_AT_ONCE))
    if done < SETTLED_AT_ONCE:
        pool.settling = None
    return pool.settling is None


class Reload(Exception):
    """The store's buckets are no longer those that the ledger was read from: the clock has stepped back."""


@dataclass(frozen=True, slots=True)
class Charged:
    """What one `UseBook.charge` has changed."""

    before: float | None
    """Until when the stored buckets held all use; None: they are made anew."""
    as_of: float
    known_entities: int
    buckets: list[tuple[int, int]]
    gone: list[tuple[int, int]]


@dataclass(slots=True)
class UseBook:
    """The ledger of one server, and its way to the store. Safe to ask from any thread."""

    history: float
    _ledger: Ledger | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def charge(self, connection: Connection) -> Charged:
        """Charge what attempts have used up to the last sign of life."""
        with self._lock:
            try:
                with use_rows.snapshot(connection):
                    return self._charge(connection)
            except BaseException:
                self._ledger = None
                raise

    def _charge(self, connection: Connection) -> Charged:
        found = instance.load(connection)
        assert found is not None
        stored = use_rows.as_of(connection)
        if stored is not None and stored > found.alive_at + AHEAD:
            stored = None
        ledger = self._ledger
        if ledger is None or ledger.as_of != stored:
            oldest = found.alive_at - self.history
            ledger = self._ledger = Ledger(oldest if stored is None else stored, self.history)
            if stored is not None:
                use_rows.load(connection, ledger)
        ledger.history = self.history
        ledger.outages = use_rows.outages(connection)
        known = len(ledger.entities)
        portions = use_rows.attempts_since(connection, ledger.as_of)
        changed = ledger.charge((columns_of(ledger, rows) for rows in portions), found.alive_at)
        return Charged(stored, ledger.as_of, known, changed, ledger.forget_old())

    def saving(self, charged: Charged) -> Iterator[use_rows.LedgerChanges]:
        """What is to be stored, a transaction each: one as a rule, so that a crash leaves all of it or nothing."""
        ledger = self._ledger
        assert ledger is not None
        gone = set(charged.gone)
        keys = [key for key in charged.buckets if key not in gone]
        portions = [keys[at : at + SAVED_AT_ONCE] for at in range(0, len(keys), SAVED_AT_ONCE)] or [[]]
        for place, portion in enumerate(portions):
            yield use_rows.LedgerChanges(
                expected=charged.before if place == 0 else None,
                as_of=charged.as_of if place == len(portions) - 1 else None,
                anew=charged.before is None and place == 0,
                first_entity=charged.known_entities,
                entities=ledger.entities[charged.known_entities :] if place == 0 else [],
                buckets=[(span, start, ledger.levels[span][start]) for span, start in portion],
                gone=charged.gone if place == 0 else [],
            )

    def look(self, spans: Mapping[str, float]) -> dict[str, Use]:
        """Average use over spans of up-time, by the names that they are given here."""
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
        """Seconds between two instants in which the system was up."""
        with self._lock:
            return 0.0 if self._ledger is None else self._ledger.up_time(begin, end)


def save_use(tx: Transaction, save: use_rows.LedgerChanges) -> None:
    """Store a part of what was charged. Raises `Reload` if the store has gone another way meanwhile."""
    if save.expected is not None and use_rows.as_of(tx.connection) != save.expected:
        raise Reload
    use_rows.save_changes(tx.connection, save)


# --- corrections


@dataclass(frozen=True, slots=True)
class WaitingEntities:
    """Who waits, as of one turn of the writer."""

    policy: Policy
    entities: frozenset[Entity]


def waiting(pool: Pool) -> WaitingEntities:
    """Writer's thread."""
    return WaitingEntities(pool.policy, pool.index.priorities.waiting_owners())


def corrections(book: UseBook, who: WaitingEntities, last: float | None, memory: Memory) -> Corrections:
    """The corrections that the policy asks for, and what is shown of entities that it does not correct.

    `last` is when `memory` was drawn up.
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
    return correct([*names, SHOWN_ONLY], {**instances, SHOWN_ONLY: _watched(policy)}, facts, memory)


SHOWN_ONLY = ""
"""Stands for a corrector in reports of use that nothing corrects."""


def _watched(policy: Policy) -> dict[str, HistoryInstance]:
    """Instances with the factor 1, which show the use of entities that no corrector looks at."""
    corrected = {instance.settings.group for instance in policy.correction.instances}
    slices = {
        name: CorrectionSlice(time_span=span, max_correction=1.0)
        for name, span in WATCHED.items()
        if span <= policy.accounting.history
    }
    targets = ["", *(group for group in policy.groups if not policy.sharing(group))]
    return {
        group: HistoryInstance(group=group, max_global_correction_factor=1.0, slices=slices)
        for group in targets
        if group not in corrected
    }


def apply_use(pool: Pool, tx: Transaction, found: Corrections, at: float) -> None:
    """Store what is carried on, and have the priorities follow."""
    before = (pool.corrections, pool.corrected_at)
    tx.on_rollback(lambda: _put(pool, *before))
    text = _encode(found) if pool.peers.shared else ""
    use_rows.save_correction(tx.connection, at, found.memory, text)
    _put(pool, found, at)
    pool.peers.publish(tx, PeerUpdate(corrected=True))


class _ReadCorrections(msgspec.Struct):
    """Corrections as other servers read them."""

    groups: dict[str, float]
    owners: list[tuple[str, str, float]]
    reports: list[InstanceReport]


def _encode(found: Corrections) -> str:
    owners = [(owner, group, factor) for (owner, group), factor in found.owners.items()]
    return msgspec.json.encode(_ReadCorrections(found.groups, owners, found.reports)).decode()


def read_corrections(pool: Pool, tx: Transaction) -> None:
    """Have the priorities follow the corrections that another server has drawn up."""
    at, text = use_rows.last_correction(tx.connection)
    if text:
        found = msgspec.json.decode(text, type=_ReadCorrections)
        owners = {(owner, group): factor for owner, group, factor in found.owners}
        _put(pool, Corrections(found.groups, owners, found.reports), at)


def _put(pool: Pool, found: Corrections, at: float | None) -> None:
    pool.corrections, pool.corrected_at = found, at
    pool.index.priorities.correct(found.groups, found.owners)
