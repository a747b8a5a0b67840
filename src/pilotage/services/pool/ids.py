"""The ids that a server gives to new rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from pilotage.store.cluster.id_allocator import IdAllocator, SequentialIds
from pilotage.store.writer.transaction import Transaction


@dataclass(frozen=True, slots=True)
class IdAllocators:
    """The allocator of each kind of id."""

    events: IdAllocator
    submissions: IdAllocator
    jobs: IdAllocator
    pilots: IdAllocator | None = None
    """None: the store assigns the ids of pilots."""

    def next_pilot(self) -> int | None:
        """The id of a new pilot. None: the store assigns it."""
        return None if self.pilots is None else self.pilots.next()

    def rewind_on_rollback(self, tx: Transaction) -> None:
        """Free the ids of submissions and jobs again if `tx` fails. Call it before these ids are allocated."""
        for allocator in (self.submissions, self.jobs):
            if isinstance(allocator, SequentialIds):
                tx.on_rollback(partial(allocator.rewind, allocator.last))
