"""The other servers on the same database, and the updates that servers send each other.

A single server has `NoPeers`, which does nothing. One of several on PostgreSQL has `DatabasePeers`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from pilotage.core.ids import JobId, PilotId, QueueId
from pilotage.core.queues.index_delta import IndexDelta
from pilotage.core.queues.indexed_queue import HeadsRequest
from pilotage.core.queues.own_part import OwnPart
from pilotage.services.pool.known_pilots import Uses
from pilotage.services.pool.records import IndexLoading
from pilotage.store.tables import counts as count_rows
from pilotage.store.tables import jobs as job_rows
from pilotage.store.writer.transaction import Transaction


class PeerUpdate(msgspec.Struct, omit_defaults=True):
    """The changes of one transaction for the other servers. Queues and jobs are given by their ids."""

    gone: list[tuple[QueueId, int, int, int]] = []
    back: list[tuple[QueueId, int, int, int]] = []
    """The lists `gone` and `back` of an `IndexDelta`."""
    queues: list[QueueId] = []
    """Queues that have been deleted."""
    rules: bool = False
    """Whether users, tokens, bans, states of sites or the policy have changed. The others follow the count of rules."""
    corrected: bool = False
    """Whether new share corrections have been stored."""
    followed: dict[JobId, float] = {}
    """Jobs with output that a user watches, and until when."""
    information: dict[str, bool] = {}
    """CEs with new answers of their batch systems, each with whether its host classes have changed."""
    pilots: list[PilotId] = []
    """Pilots that speak to this server now, or that it has ended."""
    uses: dict[PilotId, Uses] = {}
    """The use of running payloads that pilots told."""

    def add(self, later: PeerUpdate) -> None:
        """Merge an update that was made later in the same transaction."""
        self.queues = [*self.queues, *later.queues]
        self.rules = later.rules or self.rules
        self.corrected = later.corrected or self.corrected
        self.followed = {**self.followed, **later.followed}
        self.information = {
            ce: self.information.get(ce, False) or later.information.get(ce, False)
            for ce in (*self.information, *later.information)
        }
        self.pilots = [*self.pilots, *later.pilots]
        self.uses = {**self.uses, **later.uses}


_decoder = msgspec.json.Decoder(PeerUpdate)


def read_update(payload: str) -> PeerUpdate:
    """Parse the payload of a change row."""
    return _decoder.decode(payload)


class Heartbeat(NamedTuple):
    """A stored heartbeat."""

    now: float
    """The time by the store's clock."""
    before: float | None
    """The last heartbeat of this server, as the others have moved it; None: nobody moves it."""
    alone: bool
    """Whether no other server is registered."""


class Peers(Protocol):
    """How one server works with the others on its database. Only the writer's thread calls these methods."""

    server: str
    """The name of this server; "" if it is the only one."""
    shared: bool
    """Whether other servers may change the same store."""
    rules: int
    """The number of changes of rules that this server has applied."""
    delta: IndexDelta | None
    """The index appends its changes here for the other servers. None: there are no other servers."""
    own_part: OwnPart | None
    """The jobs that this server offers first."""

    def publish(self, tx: Transaction, update: PeerUpdate | None = None) -> None:
        """Publish the changes of the index by this transaction, and `update`, to the other servers at its commit."""

    def begin_loading(self, tx: Transaction) -> IndexLoading:
        """The loading state of an index without counted jobs."""

    def waiting_counts(self, tx: Transaction, queue: QueueId) -> Mapping[int, int]:
        """Count the waiting jobs of a queue in the store, by UserPriority."""

    def check_heads(self, wanted: Sequence[HeadsRequest], heads: Sequence[Sequence[object]]) -> None:
        """Record the queues in which the store has fewer jobs than the index asked for."""

    def doubt(self, queues: Iterable[QueueId]) -> None:
        """Count these queues again soon: a job has moved that another server may have changed just before."""

    def forget_queue(self, queue: QueueId) -> None:
        """Drop the state of a deleted queue."""

    def count_lost_race(self) -> bool:
        """Whether another server may have taken a job that this server could not claim. Counts these jobs."""

    def report_policy(self, tx: Transaction, version: int) -> None:
        """Store the version of the policy by which this server matches."""

    def heartbeat(self, tx: Transaction, now: float, policy_version: int) -> Heartbeat:
        """Store that this server is alive, and lock the row of the instance first. Raises `ServerEvicted`."""

    def metrics(self) -> Mapping[str, int]:
        """Counters of the metrics page."""


class NoPeers:
    """The peers of a single server: there are none."""

    server: str = ""
    shared: bool = False
    rules: int = 0
    delta: IndexDelta | None = None
    own_part: OwnPart | None = None

    def publish(self, tx: Transaction, update: PeerUpdate | None = None) -> None:
        pass

    def begin_loading(self, tx: Transaction) -> IndexLoading:
        return IndexLoading(last_job=job_rows.last_id(tx.connection))

    def waiting_counts(self, tx: Transaction, queue: QueueId) -> Mapping[int, int]:
        return count_rows.waiting_counts_of(tx.connection, queue)

    def check_heads(self, wanted: Sequence[HeadsRequest], heads: Sequence[Sequence[object]]) -> None:
        pass

    def doubt(self, queues: Iterable[QueueId]) -> None:
        pass

    def forget_queue(self, queue: QueueId) -> None:
        pass

    def count_lost_race(self) -> bool:
        return False

    def report_policy(self, tx: Transaction, version: int) -> None:
        pass

    def heartbeat(self, tx: Transaction, now: float, policy_version: int) -> Heartbeat:
        return Heartbeat(now, before=None, alone=True)

    def metrics(self) -> Mapping[str, int]:
        return {}
