"""What servers of one database tell each other, and what each has in mind of the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from pilotage.core.ids import JobId, QueueId
from pilotage.store.cluster.changes import TransactionSnapshot


class PeerUpdate(msgspec.Struct, omit_defaults=True):
    """What one transaction tells the other servers. Queues, jobs and pilots by their ids."""

    gone: list[tuple[QueueId, int, int, int]] = []
    back: list[tuple[QueueId, int, int, int]] = []
    """As in `IndexDelta` of the index."""
    queues: list[QueueId] = []
    """Their rows have gone."""
    policy: int = 0
    """This version is in force."""
    corrected: bool = False
    """The share corrections have been drawn up anew."""
    followed: dict[JobId, float] = {}
    """Somebody watches the output of these jobs, until then."""
    moved: float = 0.0
    """All leases have been moved by so many seconds."""


_decoder = msgspec.json.Decoder(PeerUpdate)


def read_update(payload: str) -> PeerUpdate:
    """What a change row tells."""
    return _decoder.decode(payload)


HINTS = 0.05
"""Seconds between two notifications by one server: in its commit each has a lock of the whole database server."""


@dataclass(slots=True)
class Peers:
    """What a server has in mind of the others. Of the writer's thread."""

    server: str
    """The name of this one."""
    position: int = 0
    """Changes of all transactions before this one have been followed."""
    filled: TransactionSnapshot | None = None
    """What was seen when the index was filled ..."""
    seen: dict[QueueId, TransactionSnapshot] = field(default_factory=dict)
    """... and when one queue was read again."""
    uncertain: set[QueueId] = field(default_factory=set)
    """Queues that were found to have fewer jobs than was thought: they are to be counted."""
    blocks: set[tuple[str, str, str, str]] = field(default_factory=set)
    """Keys of the limits of which this server has a block in the store."""
    followed: dict[JobId, float] = field(default_factory=dict)
    """Until when the others have been told that the output of a job is watched here."""
    telling: PeerUpdate = field(default_factory=PeerUpdate)
    """What the transaction `telling_in` has to tell."""
    telling_in: object = None
    races_lost: int = 0
    """Jobs that were to be offered and were another server's."""
    differences: int = 0
    """Queues that a recount found to have other jobs than was thought."""
    clock: Callable[[], float] | None = None
    """Seconds that only pass, for hints; without it none are given."""
    hinted: float = float("-inf")

    def hints_now(self) -> bool:
        """Whether the transaction that tells something gives a hint of it. Not each: the others go on for a while."""
        if self.clock is None or (now := self.clock()) - self.hinted < HINTS:
            return False
        self.hinted = now
        return True

    def saw(self, queue: QueueId, xid: int) -> bool:
        """Whether what memory has of a queue was read after that transaction."""
        seen = self.seen.get(queue, self.filled)
        return seen is not None and seen.saw(xid)
