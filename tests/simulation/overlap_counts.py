"""What happened to transactions of two servers that overlapped."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class OverlapCounts:
    """Of one history."""

    pauses: int = 0
    """Trips to the database before which a transaction stood still."""
    waits_for_conflicts: int = 0
    """Those among them that waited for a change of the rows on which the transaction rested."""
    conflicts: int = 0
    """Such changes by another server during one."""
    overlaps: int = 0
    """Commits of one server while a transaction of another one was open."""
    waits: int = 0
    """Statements that waited for a lock."""
    timeouts: int = 0
    """Statements that gave up a lock."""
    races: int = 0
    """Transactions that PostgreSQL could not order, or that were in a deadlock."""
    lost_sessions: int = 0
    """Sessions that the database ended, since their transaction stood still for too long."""

    def began(self, *, is_for_conflict: bool) -> None:
        """A transaction stands still."""
        self.pauses += 1
        self.waits_for_conflicts += is_for_conflict

    def __str__(self) -> str:
        return (
            f"{self.overlaps} commits beside an open transaction, {self.pauses} pauses, {self.waits_for_conflicts} of"
            f" them for {self.conflicts} conflicts, {self.waits} waits for locks,"
            f" {self.timeouts} of them given up, {self.races} races, {self.lost_sessions} sessions ended"
        )
