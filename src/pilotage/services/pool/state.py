"""The pool: the state that the writer's thread keeps in memory beside the store.

Only requests to the writer change it. A request whose transaction fails restores the state that it changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from random import Random

from pilotage.core.brokering.ce_ad import CeAd
from pilotage.core.brokering.information import CeInformation
from pilotage.core.ids import JobId, PilotId, QueueId
from pilotage.core.policy import Policy
from pilotage.core.provisioning.batch import BatchOrder
from pilotage.core.queues.offer_history import OfferStats
from pilotage.core.shares.correction import Corrections
from pilotage.core.shares.turns import TurnBook
from pilotage.core.sites import SiteState, slots_of_sites, state_of_site
from pilotage.services.pool.brokering import PoolBroker
from pilotage.services.pool.ce_ads import CeAds
from pilotage.services.pool.forwardings import Forwardings
from pilotage.services.pool.ids import IdAllocators
from pilotage.services.pool.limits import RunningLimits, limits_for
from pilotage.services.pool.lru_cache import LruCache
from pilotage.services.pool.offer_cache import OfferCache
from pilotage.services.pool.peers import NoPeers, Peers
from pilotage.services.pool.pilot_cache import PilotCache
from pilotage.services.pool.pilot_watch import PilotWatch
from pilotage.services.pool.published_information import PublishedInformations
from pilotage.services.pool.records import DirectorNote, RecordedReason, StepOutputs
from pilotage.services.pool.submission_cache import SubmissionCache
from pilotage.services.pool.task_queues import TaskQueues
from pilotage.services.pool.token_state import TokenState
from pilotage.store.tables.bans import BanRow
from pilotage.store.tables.events import EventBatch
from pilotage.store.tables.pilots import PilotRow
from pilotage.store.tables.site_states import SiteStateRow
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.pilot import Node


@dataclass(slots=True)
class Pool:
    """The state that the use cases share."""

    policy: Policy
    policy_version: int
    incarnation: int
    ids: IdAllocators
    rng: Random
    home_owner: str
    home_storage: str = ""
    """The storage place of sites with a local CE whose policy names none; empty: there is none."""
    given_places: set[tuple[str, str]] = field(default_factory=set)
    """Sites and storage places that the store has as given to pilots, as far as known here."""
    step_outputs: LruCache[tuple[int, int], StepOutputs] = field(default_factory=lambda: LruCache(4096))
    """By request and position of the step."""
    peers: Peers = field(default_factory=NoPeers)
    queues: TaskQueues = field(init=False)
    limits: RunningLimits = field(init=False)
    pilots: PilotCache = field(default_factory=PilotCache)
    submissions: SubmissionCache = field(default_factory=SubmissionCache)
    last_seen: dict[PilotId, float] = field(default_factory=dict)
    """When each pilot sent its last message. The store has only its lease."""
    heard: dict[PilotId, float] = field(default_factory=dict)
    """The last sign of life of each pilot that this server has heard. Costs are booked up to it."""
    watch: PilotWatch = field(default_factory=PilotWatch)
    """Finds pilots that have been silent for too long."""
    unconfirmed: dict[PilotId, float] = field(default_factory=dict)
    """Pilots with offered jobs that they may not have confirmed, and the time of the first such offer."""
    stalled: set[PilotId] = field(default_factory=set)
    finished: dict[PilotId, int] = field(default_factory=dict)
    """Jobs finished since the count was last written to the pilot's row."""
    followed: dict[JobId, float] = field(default_factory=dict)
    """Jobs with output that a user watches, and until when. The lease duty drops expired entries."""
    corrections: Corrections = field(default_factory=Corrections)
    """The share corrections in force, with the state of their correctors."""
    corrected_at: float | None = None
    offer_stats: OfferStats[tuple[PilotRow, Node]] = field(default_factory=OfferStats)
    """The classes of recent offers."""
    offer_cache: OfferCache = field(default_factory=OfferCache)
    bans: tuple[BanRow, ...] = ()
    """The bans in force. `offer_cache` has their owners by site."""
    site_states: Mapping[str, SiteStateRow] = field(default_factory=dict)
    """The sites that an administrator has drained or taken down. `offer_cache` has the closed ones."""
    ces_changed_at: dict[str, float] = field(default_factory=dict)
    """When the policy last changed each CE. Offers of pilots that started before may differ from new offers."""
    turns: TurnBook = field(default_factory=TurnBook)
    """The turns of pilots that serve one owner at a time."""
    local_nodes: dict[str, Node] = field(default_factory=dict)
    """The node of each local CE, as a pilot with the whole CE finds it."""
    forwardings: Forwardings = field(default_factory=Forwardings)
    """The flags of requirements at the CEs, as long as the facts of a CE are the same."""
    ce_information: dict[str, CeInformation] = field(default_factory=dict)
    """The last answer of each CE's batch system, as the store has it. `published` applies the policy."""
    published: PublishedInformations = field(default_factory=PublishedInformations)
    """The information of CEs, made from `ce_information` and the policy."""
    ce_ads: CeAds = field(default_factory=CeAds)
    """The ads made from `published`."""
    brokering: PoolBroker = field(default_factory=PoolBroker)
    """Matches queues with CEs, and keeps the answers."""
    directors: dict[str, DirectorNote] = field(default_factory=dict)
    """The last cycle of each CE's director."""
    pilot_orders: dict[str, tuple[BatchOrder, ...]] = field(default_factory=dict)
    """By CE: orders of the last iteration that its own cycle has not stored as intents yet."""
    pool_refusals: Mapping[QueueId, str] = field(default_factory=dict)
    """Queues whose pilots no submit pool took in the last iteration, and the verdicts of the pools."""
    recorded_reasons: dict[QueueId, RecordedReason] | None = None
    """The last recorded wait reason of each queue; None until the history has been read."""
    token_state: TokenState = field(default_factory=TokenState)
    """The keys that sign tokens, and the revoked tokens."""
    draining: bool = False
    """The server is about to stop: pilots get no new jobs."""

    def __post_init__(self) -> None:
        self.queues = TaskQueues(lambda: self.policy, self.peers)
        self.limits = limits_for(self.peers, self.queues.identity)

    def site_state(self, site: str) -> SiteState:
        """The state of a site, by its administrators and by the policy."""
        row = self.site_states.get(site)
        return state_of_site(self.policy, site, SiteState.NORMAL if row is None else row.state)

    def ce_ad(self, name: str, now: float) -> CeAd | None:
        """The ad of a CE, from its information; None: the policy has no such CE."""
        policy = self.policy  # Read once: threads that explain run beside a change of the policy.
        ce = policy.ces.get(name)
        if ce is None:
            return None
        live = self.ce_information.get(name)
        published = self.published.of(policy, name, live, self.home_owner, now)
        return self.ce_ads.of(name, ce, published.information, now)

    def site_slots(self) -> dict[str, int]:
        """The one-core jobs that each site can run at the same time."""
        return slots_of_sites(self.policy, {ce: node.processors for ce, node in self.local_nodes.items()})

    def event_batch(self, now: float, actor: str) -> EventBatch:
        return EventBatch(self.ids.events, now, actor)

    def forget_queues(self, tx: Transaction, queues: Iterable[QueueId]) -> None:
        """Drop queues without waiting jobs, in the transaction that deletes their rows.

        Their ids may be allocated again at once. If the transaction fails, each is read again for its next job.
        """
        for queue in queues:
            self.queues.forget(queue)
            if self.recorded_reasons is not None:
                tx.delete(self.recorded_reasons, queue)

    def record_lost_job(
        self, tx: Transaction, queue: QueueId, user_priority: int, job: JobId, pilot: PilotRow
    ) -> None:
        """Undo the offer of a job to `pilot` that the store did not accept: the job no longer waits there."""
        self.limits.left(tx, self.queues.identity(tx, queue), pilot)
        if self.peers.count_lost_race():
            self.queues.index.restore_lost_job(queue, user_priority, job)
        else:
            self.queues.reload(tx, queue)

    def unconfirmed_before(self, before: float, limit: int) -> list[PilotId]:
        """At most `limit` pilots with unconfirmed offers made before an instant."""
        earlier = (pilot for pilot, at in self.unconfirmed.items() if at < before)
        return list(islice(earlier, limit))

    def set_unconfirmed(self, tx: Transaction, pilot: PilotId, since: float | None) -> None:
        """Record when the first unconfirmed offer to a pilot was made; None: all are confirmed or taken back."""
        if since is None:
            tx.delete(self.unconfirmed, pilot)
        else:
            tx.put(self.unconfirmed, pilot, since)
