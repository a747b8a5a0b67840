"""The pool: the state that the writer's thread keeps in memory beside the store.

Only requests to the writer change it. A request whose transaction fails restores the state that it changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

from pilotage.core.brokering.ce_ad import CeAd
from pilotage.core.glue.information import number_of
from pilotage.core.ids import JobId, QueueId
from pilotage.core.policy import Policy
from pilotage.core.secret_source import SecretSource
from pilotage.core.sites import SiteState, slots_of_sites, state_of_site
from pilotage.services.pool.ids import IdAllocators
from pilotage.services.pool.job_caches import JobCaches
from pilotage.services.pool.known_ces import KnownCes
from pilotage.services.pool.known_pilots import KnownPilots
from pilotage.services.pool.limits import limits_for
from pilotage.services.pool.offer_cache import OfferCache
from pilotage.services.pool.offer_state import OfferState
from pilotage.services.pool.peers import NoPeers, Peers
from pilotage.services.pool.provisioning import Provisioning
from pilotage.services.pool.server_state import ServerState
from pilotage.services.pool.share_state import ShareState
from pilotage.services.pool.task_queues import TaskQueues
from pilotage.store.tables.events import EventBatch
from pilotage.store.tables.pilots import PilotRow
from pilotage.store.writer.transaction import Transaction


@dataclass(slots=True)
class Pool:
    """The state that the use cases share, by concern."""

    policy: Policy
    server: ServerState
    ids: IdAllocators
    rng: Random
    secrets: SecretSource
    """For tokens of pilots and names of submissions."""
    peers: Peers = field(default_factory=NoPeers)
    queues: TaskQueues = field(init=False)
    offers: OfferState = field(init=False)
    pilots: KnownPilots = field(default_factory=KnownPilots)
    jobs: JobCaches = field(default_factory=JobCaches)
    shares: ShareState = field(default_factory=ShareState)
    ces: KnownCes = field(default_factory=KnownCes)
    provisioning: Provisioning = field(default_factory=Provisioning)

    def __post_init__(self) -> None:
        self.queues = TaskQueues(lambda: self.policy, self.peers)
        self.offers = OfferState(
            limits_for(self.peers, self.queues.identity), OfferCache(self.server.home_owner)
        )

    def site_state(self, site: str) -> SiteState:
        """The state of a site, by its administrators and by the policy."""
        row = self.offers.site_states.get(site)
        return state_of_site(self.policy, site, SiteState.NORMAL if row is None else row.state)

    def ce_ad(self, name: str, now: float) -> CeAd | None:
        """The ad of a CE, from its information; None: the policy has no such CE."""
        policy = self.policy  # Read once: threads that explain run beside a change of the policy.
        ce = policy.ces.get(name)
        if ce is None:
            return None
        live = self.ces.information.get(name)
        published = self.ces.published.of(policy, name, live, self.server.home_owner, now)
        return self.ces.ads.of(name, ce, published.information, now)

    def site_slots(self) -> dict[str, int]:
        """The one-core jobs that each site can run at the same time.

        The cores of a local CE come from its information, which all servers read: one server only has its node.
        """
        cores = {ce: node.processors for ce, node in self.ces.nodes.items()}
        for ce, known in self.ces.information.items():
            total = number_of(known.attributes.get("GlueCEInfoTotalCPUs"))
            if total:
                cores[ce] = int(total)
        return slots_of_sites(self.policy, cores)

    def event_batch(self, now: float, actor: str) -> EventBatch:
        return EventBatch(self.ids.events, now, actor)

    def forget_queues(self, tx: Transaction, queues: Iterable[QueueId]) -> None:
        """Drop queues without waiting jobs, in the transaction that deletes their rows.

        Their ids may be allocated again at once. If the transaction fails, each is read again for its next job.
        """
        for queue in queues:
            self.queues.forget(queue)
            if self.queues.recorded_reasons is not None:
                tx.delete(self.queues.recorded_reasons, queue)

    def record_lost_job(
        self, tx: Transaction, queue: QueueId, user_priority: int, job: JobId, pilot: PilotRow
    ) -> None:
        """Undo the offer of a job to `pilot` that the store did not accept: the job no longer waits there."""
        self.offers.limits.left(tx, self.queues.identity(tx, queue), pilot)
        if self.peers.count_lost_race():
            self.queues.index.restore_lost_job(queue, user_priority, job)
        else:
            self.queues.reload(tx, queue)
