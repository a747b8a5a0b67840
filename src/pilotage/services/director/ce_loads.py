"""The state of each CE at the begin of an iteration: its room, why it is closed, and its rank."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Final

from pilotage.core.brokering.ce_ad import CeAd
from pilotage.core.brokering.match import closed_reason, full_reason, jobs_left, rank_of
from pilotage.core.brokering.new_pilots import ad_of_new_pilots
from pilotage.core.classads import ClassAd, Literal
from pilotage.core.glue.schema import DEFAULT_RANK
from pilotage.core.jobs.durations import format_duration
from pilotage.core.plurals import plural
from pilotage.core.policy import Ce, Policy
from pilotage.core.provisioning.iteration import CeLoad, room_for_pilots
from pilotage.core.queues.fit import Offer
from pilotage.core.sites import SiteState
from pilotage.services.matching.known_offers import possible_offer
from pilotage.services.matching.requirements import stored_expression
from pilotage.services.pool.state import Pool
from pilotage.store.tables.ces import CeRow, CeSwitch
from pilotage.wire.pilot import Node

if TYPE_CHECKING:
    from pilotage.services.director.demand import DemandCounts

CLOSED_LOCAL = "its pilots are planned core by core, in its own cycle"
CLOSED_NEW = "its cycle has not begun yet"
MANY: Final = 10**9
"""Pilots, where the batch system tells no bound."""

NO_NODE: Final = Node(processors=1)
"""The node of a CE whose cycle has not begun: nothing is submitted there yet."""


def ce_load(pool: Pool, name: str, counts: DemandCounts, now: float) -> CeLoad:
    policy, ce, node = pool.policy, pool.policy.ces[name], pool.ces.nodes.get(name)
    waiting, running = counts.pilots.get(name, (0, 0))
    ordered = sum(order.pilots for order in counts.orders.get(name, ()))
    waiting += ordered
    row = counts.ces.get(name)
    running += row.progress.orphans if row is not None else 0
    room = room_for_pilots(waiting, running, ce.max_waiting, ce.max_running)
    if (note := pool.provisioning.directors.get(name)) is not None and note.budget_room is not None:
        room = min(room, max(0, note.budget_room - ordered))
    offer = possible_offer(pool, name, node or NO_NODE)
    ad = pool.ce_ad(name, now)
    assert ad is not None, "the policy has the CE"
    full = full_reason(ad.ad) or ("" if room else _outlived(row, now))
    room = 0 if full else min(room, _jobs_left(ad.ad, ordered))
    closed = _closed(pool, ce, row, now) if node is not None else CLOSED_NEW
    closed = closed or closed_reason(ad.ad)
    return CeLoad(
        name=name,
        pool=ce.submit_pool,
        middleware=ce.middleware or ce.type,
        offer=offer,
        pilot_types=ce.allowed_pilot_types,
        room=room,
        closed=closed,
        full=full,
        draining=pool.site_state(ce.site) is not SiteState.NORMAL,
        rank=_rank(policy, ce, ad, offer, waiting, running) if not closed else 0.0,
    )


def _outlived(row: CeRow | None, now: float) -> str:
    """The batch jobs without a pilot that take room; empty: there are none."""
    if row is None or not row.progress.orphans:
        return ""
    since = row.progress.orphans_since
    age = "" if since is None else f", which ended {format_duration(max(0.0, now - since))} ago"
    return f"{plural(row.progress.orphans, 'batch job')} outlived the pilots{age}"


def _jobs_left(ad: ClassAd, ordered: int) -> int:
    """Pilots that the batch system still takes, beside the ordered ones."""
    left = jobs_left(ad)
    return max(0, int(left - ordered)) if isfinite(left) else MANY


def _closed(pool: Pool, ce: Ce, row: CeRow | None, now: float) -> str:
    """Why no pilot is submitted to a CE now; empty: it is open."""
    if pool.server.draining:
        return "the server is stopping"
    if ce.type == "local":
        return CLOSED_LOCAL
    if row is None:
        return ""
    if row.switch is not CeSwitch.ON:
        return f"{row.switch}: {row.switch_reason}" if row.switch_reason else str(row.switch)
    if row.progress.unreachable:
        return f"unreachable: {row.progress.unreachable}"
    note = pool.provisioning.directors.get(row.ce)
    if note is not None and note.budget:
        return note.budget
    paused = max(row.progress.not_before, note.not_before if note else 0.0)
    return f"paused: {row.progress.trouble or 'pilots came in vain'}" if now < paused else ""


def _rank(policy: Policy, ce: Ce, ad: CeAd, offer: Offer, waiting: int, running: int) -> float:
    """The pool's Rank for the ad of a CE; 0 where the pool does no list-match."""
    settings = policy.director.pool(ce.submit_pool)
    if not settings.enable_list_match:
        return 0.0
    numbers = rank_numbers(waiting, running, ce.max_waiting, ce.max_running)
    known = ad_of_new_pilots(ad, offer).extended(numbers)
    return rank_of(stored_expression(settings.rank or DEFAULT_RANK), known)


def rank_numbers(
    waiting: int, running: int, max_waiting: int | None, max_running: int | None
) -> list[tuple[str, Literal]]:
    """Pilotage's own numbers of a CE, which Rank sees besides the CE's ad."""
    numbers = {
        "WaitingPilots": waiting,
        "RunningPilots": running,
        "MaxWaiting": max_waiting,
        "MaxRunning": max_running,
    }
    return [(name, Literal(number)) for name, number in numbers.items() if number is not None]
