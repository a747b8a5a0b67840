"""The known offers: offers that pilots made lately, and the possible offers of CEs with known capacity."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from pilotage.core.ids import PilotId
from pilotage.core.pilots.states import PilotState
from pilotage.core.pilots.wall_time import cpu_time_of_new_pilot, wall_of_new_pilot
from pilotage.core.policy import Ce
from pilotage.core.policy.isolation import ISOLATED
from pilotage.core.provisioning.submit_pools import lasting_refusal
from pilotage.core.queues.fit import AnyIdentity, Offer, RequirementsHold
from pilotage.core.queues.indexed_queue import IndexedQueue
from pilotage.core.queues.offer_history import KnownOffer, OfferRecord
from pilotage.core.queues.wait_reason import WaitAnalysis
from pilotage.services.matching.possible_requirements import PossibleRequirements
from pilotage.services.matching.requirements import requirements_for
from pilotage.services.pool.state import Pool
from pilotage.store.tables import wait_reasons
from pilotage.store.tables.pilots import PilotRow
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.pilot import Node


def capacity(ce: Ce, node: Node) -> tuple[int, int]:
    """(cores, MB) that pilots of a local CE may use together: the policy's numbers, else the machine's."""
    return (ce.processors or node.processors, ce.memory or node.memory)


def possible_offer(pool: Pool, name: str, node: Node) -> Offer:
    """The offer of a pilot that has all of a local CE and finds `node`."""
    ce = pool.policy.ces[name]
    processors, memory = capacity(ce, node)
    pilot = PilotRow(
        id=PilotId(0),
        stamp="",
        secret_hash="",
        idx=0,
        nonce=None,
        token_hash=None,
        state=PilotState.RUNNING,
        site=ce.site,
        ce=name,
        only_owner=None if ce.serves_everybody else pool.server.home_owner,
        pilot_type="generic",
        owner="",
        group="",
        batch_id="",
        hostname="",
        version="",
        processors=processors,
        memory=memory,
        lease_until=None,
        take_number=0,
        jobs=[],
        submitted=0.0,
        started=None,
        ended=None,
        leave="",
        reason="",
    )
    cpu_left = cpu_time_of_new_pilot(ce.wall, ce.cpu_power)
    # Where isolation is not required, it is not known before the pilot starts.
    isolation = ISOLATED if ce.isolation == "require" else ""
    return pool.offers.cache.offer_of(
        pool.policy,
        pilot,
        replace(node, cpu_left=cpu_left, wall_left=wall_of_new_pilot(ce.wall), isolation=isolation),
    )


def rekey_offer_stats(pool: Pool) -> None:
    """A new policy is in force: replace each recorded offer by the offer of the same pilots under it."""

    def offered(before: Offer, origin: tuple[PilotRow, Node]) -> Offer:
        if before.ce not in pool.policy.ces or before.site not in pool.policy.sites:
            # The CE has gone from the policy: its setup and tags stay as they were.
            return replace(before, closed=True)
        # The pilot may be bound to another owner now than when it asked.
        return replace(pool.offers.cache.offer_of(pool.policy, *origin), only_owner=before.only_owner)

    pool.offers.stats.rekey(offered, pool.queues.index.history_key)


Turn = Callable[[Callable[[], Sequence[IndexedQueue] | None]], Sequence[IndexedQueue] | None]
"""Carries a question to the index out in the writer's thread, and gives its answer."""


def survey(pool: Pool, tx: Transaction, now: float, turn: Turn) -> WaitAnalysis:
    """The facts for `why`, as of now. Runs in the writer's thread; the result is for another thread."""
    known = known_offers(pool, now)
    places = {(known_offer.offer.site, known_offer.offer.ce) for known_offer in known}
    index, policy, refusals = pool.queues.index, pool.policy, pool.provisioning.refusals
    return WaitAnalysis(
        entries=list(index.entries.values()),
        known=known,
        closed={place: pool.offers.limits.limiter.exhausted_limits(*place, now) for place in places},
        rule=index.rule,
        draining=pool.server.draining,
        coming=frozenset(wait_reasons.ces_with_pending_pilots(tx.connection)),
        refused_by_pools=lambda entry: lasting_refusal(policy, entry.identity) or refusals.get(entry.id, ""),
        remembered=lambda offer: turn(lambda: index.cached_fitting(offer)),
    )


def known_offers(pool: Pool, now: float) -> list[KnownOffer]:
    """The offers that were made, the most used first, then the possible ones."""
    nodes = {
        name: pool.offers.other_folders.completed(name, node, now)
        for name, node in pool.ces.nodes.items()
        if name in pool.policy.ces
    }
    local = {name: possible_offer(pool, name, node) for name, node in sorted(nodes.items())}
    known = [
        _recent(pool, record, now, counted=record.offer.ce not in local)
        for record in pool.offers.stats.recent(now)
        if not _outdated(pool, record)
        and (record.offer.ce not in local or _has_room(local[record.offer.ce], record.offer))
    ]
    for name, offer in local.items():
        ce = pool.policy.ces[name]
        known += [
            KnownOffer(of_type, _predicate(pool, ce, of_type, nodes[name], now), possible=True)
            for of_type in _offers_by_type(ce, offer)
        ]
    return known


def _recent(
    pool: Pool, record: OfferRecord[tuple[PilotRow, Node]], now: float, *, counted: bool
) -> KnownOffer:
    """The offer of a record. Folders that all of its hosts have found to be other ones since are no longer in it."""
    offer = record.offer
    others = pool.offers.other_folders.on_all(offer.ce, record.hosts, now)
    if not others <= offer.other_folders:
        offer = replace(offer, other_folders=offer.other_folders | others)
    return KnownOffer(
        offer,
        requirements_for(pool, offer, record.origin[1], now),
        counted=counted,
        takes=record.takes,
        given=record.given,
        first=record.first,
        last=record.last,
        pilots=tuple(record.pilots),
    )


def _predicate(pool: Pool, ce: Ce, offer: Offer, node: Node, now: float) -> RequirementsHold:
    """The Requirements of a possible offer. Only a local CE has a known node."""
    ad = pool.ce_ad(offer.ce, now)
    if ce.type == "local" or ad is None:
        return requirements_for(pool, offer, node, now)
    return PossibleRequirements(pool.ces.brokering, pool.policy, ad, offer, now)


def _offers_by_type(ce: Ce, offer: Offer) -> Iterator[Offer]:
    """The possible offers of a CE for each type of pilot that it takes. `offer`: of a generic pilot."""
    if ce.type == "local" or "generic" in ce.allowed_pilot_types:
        yield offer
    if ce.type != "local" and "private" in ce.allowed_pilot_types:
        yield as_private(offer)


def as_private(offer: Offer) -> Offer:
    """The same offer of a private pilot, which is bound to an identity when it is submitted."""
    return replace(offer, pilot_type="private", identities=(AnyIdentity(),))


def _outdated(pool: Pool, record: OfferRecord[tuple[PilotRow, Node]]) -> bool:
    """Whether nobody makes such an offer any more: the CE was changed, and its earlier pilots have ended."""
    if record.newest_pilot >= pool.ces.changed_at.get(record.offer.ce, 0.0):
        return False
    return not any(pilot in pool.pilots.last_seen for pilot in record.pilots)


def _has_room(whole: Offer, part: Offer) -> bool:
    """Whether a CE that offers `whole` now can still offer `part`: it may have had more when that was made."""
    return part.processors <= whole.processors and (not whole.memory or part.memory <= whole.memory)
