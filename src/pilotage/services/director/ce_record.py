"""The stored memory of a CE's director, and the switch by which submission to a CE is stopped and enabled."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from math import inf
from typing import NamedTuple

import msgspec

from pilotage.core.policy import Ce
from pilotage.outside.batch.submission import BatchListing, is_same_failure
from pilotage.services.pool.ids import IdAllocators
from pilotage.services.pool.state import Pool
from pilotage.store.tables import ces
from pilotage.store.tables.ces import PROGRESS, CeProgress, CeRow, CeSwitch
from pilotage.store.tables.events import record
from pilotage.store.writer.transaction import Transaction

DIRECTOR = "server"
"""Who stops a CE after failures."""


class Pauses(NamedTuple):
    """How long a CE pauses after pilots that never called home, or submissions that were refused."""

    first: float
    """Seconds after the first failure; doubled by each further one."""
    longest: float

    def after(self, failures: int) -> float:
        """Seconds of the pause after this number of failures in a row."""
        return min(self.longest, self.first * 2.0 ** min(30, failures - 1))


BATCH_PAUSES = Pauses(10.0, 3600.0)
LOCAL_PAUSES = Pauses(2.0, 300.0)
"""A process starts at once and costs little, so a local CE tries again sooner."""

FAILURES_TO_PAUSE = 3
"""Pilots in a row that end without calling home before the CE pauses. A refused submission pauses it at once."""

FULL_PERIOD = 60.0
"""Seconds without a submission after the batch system had no room for one pilot."""

NO_ROOM = "no room: "
"""Begins the trouble of a CE whose batch system has reached a limit of its own."""

ENDED_SILENTLY = "its batch job has ended without a word"
"""Begins the reason of pilots whose batch job has ended before they said goodbye."""

CALLED_HOME = "called home and had no job"
"""Begins the failures of pilots that reached the server."""


def section_digest(ce: Ce) -> str:
    """Identifies the content of a CE's section of the policy."""
    return sha256(msgspec.json.encode(ce)).hexdigest()[:16]


def switch_ce(
    ids: IdAllocators, tx: Transaction, ce: str, switch: CeSwitch, *, by: str, reason: str, now: float
) -> None:
    """Stop, disable or enable submission to a CE, and record who did it and why. Enabling ends a pause too."""
    row = ces.lock(tx.connection, ce)
    ces.set_switch(tx.connection, ce, switch, by=by, reason=reason, now=now)
    if switch is CeSwitch.ON:
        # The director sees that its memory was changed, and reads it again.
        progress = row.progress
        fresh = CeProgress(progress.section, epoch=progress.epoch, listed=progress.listed)
        ces.save_progress(tx.connection, ce, fresh)
    record(
        tx.connection,
        ids.events,
        at=now,
        kind="ce",
        actor=by if by == DIRECTOR else f"user:{by}",
        detail=f"CE {ce}: {switch or 'enabled'}" + (f": {reason}" if reason else ""),
        old=str(row.switch) or "enabled",
        new=str(switch) or "enabled",
    )


@dataclass(slots=True)
class CeMemory:
    """The memory of one director. The row in `ces` has the same values after `store`."""

    ce: str
    pauses: Pauses = BATCH_PAUSES
    section: str = ""
    """Digest of the CE's section of the policy in the last cycle."""
    trouble: str = ""
    """Why nothing is submitted, in the batch system's words."""
    unreachable: str = ""
    """Why the last listing failed; empty: it was complete."""
    failures: int = 0
    """Pilots and submissions in a row that failed before a pilot called home."""
    not_before: float = 0.0
    epoch: str = ""
    listed: float | None = None
    """Time of the last complete listing."""
    alike: int = 0
    """Failures in a row that are all `failure`."""
    failure: str = ""
    queues_paused: int = 0
    queues_until: float = 0.0
    orphans: int = 0
    """Batch jobs at the last listing whose pilots have ended. They count against the room of the CE."""
    orphans_since: float | None = None
    unreachable_at: float | None = None
    """When `unreachable` was told last."""
    _stored: CeProgress | None = None
    """The row as this director last read or wrote it; None: not yet."""

    def restore(self, tx: Transaction) -> CeRow:
        """Lock the CE's row, and continue with its values if another director or an administrator wrote it.

        The lock holds until the transaction ends, so that it overwrites no decision that was made meanwhile.
        """
        row = ces.lock(tx.connection, self.ce)
        if row.progress != self._stored:
            for name in PROGRESS:
                tx.set(self, name, getattr(row.progress, name))
            tx.set(self, "_stored", row.progress)
        return row

    def store(self, tx: Transaction) -> None:
        """Write the CE's row if it has changed."""
        progress = CeProgress(*(getattr(self, name) for name in PROGRESS))
        if progress != self._stored:
            ces.save_progress(tx.connection, self.ce, progress)
            tx.set(self, "_stored", progress)

    def begin_section(self, pool: Pool, tx: Transaction, ce: Ce, now: float) -> bool:
        """Forget pauses and failures if the CE's section has changed since the row was written; whether it has."""
        section = section_digest(ce)
        if section == self.section:
            return False
        tx.set(self, "section", section)
        self.end_pause(tx)
        self._forget_failures(tx)
        if ces.by_name(tx.connection, self.ce).switch is CeSwitch.STOPPED:
            reason = "its section of the policy has changed"
            self.store(tx)
            switch_ce(pool.ids, tx, self.ce, CeSwitch.ON, by=DIRECTOR, reason=reason, now=now)
        return True

    def is_paused(self, now: float) -> bool:
        """Whether nothing is submitted now. A clock that stepped back ends the pause."""
        return self.not_before - self.pauses.longest <= now < self.not_before

    def pause(self, tx: Transaction, reason: str, submitted: float, now: float) -> None:
        """Submit nothing for a while, twice as long after each further failure.

        A submission that is older than the last pause does not lengthen it. Thus a server that is killed with many
        submissions under way causes one pause, not one doubling for each.
        """
        if submitted > self._pause_began():
            tx.set(self, "failures", self.failures + 1)
            self._begin_pause(tx, reason, now)

    def _begin_pause(self, tx: Transaction, reason: str, now: float) -> None:
        tx.set(self, "trouble", reason)
        tx.set(self, "not_before", now + self.pauses.after(self.failures))

    def wait_for_room(self, tx: Transaction, reason: str, now: float) -> None:
        """Submit nothing for `FULL_PERIOD`. A full batch system is no failure, so the wait never grows."""
        tx.set(self, "trouble", NO_ROOM + reason)
        tx.set(self, "not_before", now + FULL_PERIOD)

    @property
    def _is_full(self) -> bool:
        return self.trouble.startswith(NO_ROOM)

    def end_pause(self, tx: Transaction) -> None:
        for name, value in (("failures", 0), ("not_before", 0.0), ("trouble", "")):
            tx.set(self, name, value)

    def _forget_failures(self, tx: Transaction) -> None:
        tx.set(self, "alike", 0)
        tx.set(self, "failure", "")

    def pilot_started(self, tx: Transaction, *, had_job: bool) -> None:
        """A pilot called home, so pilots that did not are no row of failures any more."""
        self.end_pause(tx)
        if had_job or not self.failure.startswith(CALLED_HOME):
            self._forget_failures(tx)

    def count_silent_pilot(
        self, pool: Pool, tx: Transaction, reason: str, submitted: float, now: float
    ) -> None:
        """A pilot of the instant `submitted` ended without calling home.

        A pilot that is older than the last pause does not lengthen it. Thus an administrator who cancels many
        waiting pilots at once causes one pause, not one doubling for each.
        """
        if submitted > self._pause_began():
            tx.set(self, "failures", self.failures + 1)
            if (self.not_before and not self._is_full) or self.failures >= FAILURES_TO_PAUSE:
                self._begin_pause(tx, "pilots end without calling home", now)
        self.count_failure(pool, tx, reason, now)

    def _pause_began(self) -> float:
        if not self.not_before or self._is_full:
            return -inf
        return self.not_before - self.pauses.after(self.failures)

    def count_failure(self, pool: Pool, tx: Transaction, failure: str, now: float) -> None:
        """Stop submission after too many failures in a row that are all alike. A local CE is never stopped."""
        tx.set(self, "alike", self.alike + 1 if failure == self.failure else 1)
        tx.set(self, "failure", failure)
        ce = pool.policy.ces.get(self.ce)
        if ce is None or ce.type == "local" or not 0 < ce.max_failures <= self.alike:
            return
        if ces.by_name(tx.connection, self.ce).switch is CeSwitch.ON:
            reason = f"{self.alike} failures in a row: {failure}"
            switch_ce(pool.ids, tx, self.ce, CeSwitch.STOPPED, by=DIRECTOR, reason=reason, now=now)

    def note_listing(self, tx: Transaction, listing: BatchListing, listed: float) -> None:
        if not is_same_failure(self.unreachable, listing.failure):
            tx.set(self, "unreachable", listing.failure)
        tx.set(self, "unreachable_at", listed if listing.failure else None)
        if listing.complete:
            tx.set(self, "epoch", listing.epoch)
            tx.set(self, "listed", listed)
