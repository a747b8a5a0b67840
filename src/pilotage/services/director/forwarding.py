"""The flags of submissions: the requirements of a queue as native arguments of a CE's batch system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pilotage.core.brokering.ce_ad import CeAd
from pilotage.core.brokering.requester_ad import requester
from pilotage.core.classads import ClassAd, Expression, Literal, unparse
from pilotage.core.classads.partial import residual
from pilotage.core.errors import NotFound
from pilotage.core.forwarding.forward import (
    CeTerms,
    Forwarding,
    forward,
    forward_explicit,
    selects_hosts,
)
from pilotage.core.forwarding.hook import condition_variables, requirements_text
from pilotage.core.glue.information import Value
from pilotage.core.glue.schema import BY_NAME, kinds
from pilotage.core.policy import Ce, Policy
from pilotage.core.provisioning.iteration import BatchOrder
from pilotage.core.queues.identity import QueueIdentity
from pilotage.services.matching.requirements import stored_expression
from pilotage.services.pool.state import Pool
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import submissions
from pilotage.store.writer.transaction import Transaction

_TRUE = Literal(True)
NOTHING = Forwarding(_TRUE)
"""The forwarding of submissions without requirements."""

MAX_UNMAPPED = 500
"""Characters of the unmapped part among the properties of a batch job."""


@dataclass(frozen=True, slots=True)
class HookCall:
    """A run of the site's hook: equal calls have equal answers."""

    program: str
    environment: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class ForwardedOrder:
    """An order whose requirements can be true at the CE."""

    order: BatchOrder
    identity: QueueIdentity | None
    """None: its queue has gone."""
    forwarding: Forwarding


def forwarding_of(pool: Pool, name: str, identity: QueueIdentity, now: float) -> Forwarding:
    """The flags for pilots of a queue at CE `name`, of the same residual that the director matches.

    Flags for equal requirements, identities and facts of the CE are made once.
    """
    text, ad = identity.match_text, pool.ce_ad(name, now)
    if not text or ad is None:
        return NOTHING
    submitter = requester(identity, pool.policy)
    known, key = pool.ces.forwardings.of(ad), (text, identity.host_requirements, submitter)
    if key not in known:
        # Read after the ad: flags of a newer policy may be kept with an older ad, which nobody asks for again.
        ce = pool.policy.ces.get(name)
        if ce is None:
            return NOTHING
        known[key] = _made(identity, ce, ad, submitter)
    return known[key]


def terms_of(ce: Ce) -> CeTerms:
    """The native terms of a CE of the policy."""
    table = ce.forward_table
    rules, names = table.with_rules(ce.forward), selects_hosts(table, ce.host_selection)
    if ce.type == "local":
        return CeTerms(table, rules, wall=ce.wall, selects_hosts=names)
    own = ce.batch_options()
    return CeTerms(table, rules, own.own_features, own.own_queue, own.own_requests, ce.wall, names)


def _made(identity: QueueIdentity, ce: Ce, ad: CeAd, submitter: ClassAd) -> Forwarding:
    terms = replace(terms_of(ce), minima=_minima(ce, ad))
    if ce.residual == "explicit":
        explicit = _residual(identity.host_requirements, ad, submitter)
        rest = _residual(identity.requirements, ad, submitter)
        return forward_explicit(explicit, rest, terms, ad.host_classes, kinds())
    return forward(_residual(identity.match_text, ad, submitter), terms, ad.host_classes, kinds())


def _minima(ce: Ce, ad: CeAd) -> dict[str, Value]:
    """The values of the CE's own ad for the attributes with a rule."""
    names = {name.lower() for name in ce.forward_table.with_rules(ce.forward)}
    values = {name: ad.ad.index.get(name) for name in names}
    known = {name: value.value for name, value in values.items() if isinstance(value, Literal)}
    return {name: value for name, value in known.items() if isinstance(value, bool | int | float | str)}


def _residual(text: str, ad: CeAd, submitter: ClassAd) -> Expression:
    return residual(stored_expression(text), submitter, ad.fixed, kinds()) if text else _TRUE


def prepare_forwardings(pool: Pool, connection: Connection, name: str, now: float) -> None:
    """Make the flags for the orders of CE `name` in a thread of its own, so that the writer finds them made.

    Large requirements and many classes of hosts take hundreds of milliseconds.
    """
    for order in pool.provisioning.orders.get(name, ()):
        identity = submissions.queue_identity(connection, order.queue)
        if identity is not None:
            forwarding_of(pool, name, identity, now)


def forwarded_orders(
    pool: Pool, tx: Transaction, name: str, orders: Sequence[BatchOrder], now: float
) -> list[ForwardedOrder]:
    """The orders for CE `name` that can be true there, with their flags. The reasons of the others are kept."""
    forwarded, refused = [], {}
    for order in orders:
        try:
            identity = pool.queues.identity(tx, order.queue)
        except NotFound:
            forwarded.append(ForwardedOrder(order, None, NOTHING))
            continue
        made = forwarding_of(pool, name, identity, now)
        if made.is_possible:
            forwarded.append(ForwardedOrder(order, identity, made))
        else:
            refused[order.queue] = f"CE {name}: {made.reason}"
    if refused:
        tx.set(pool.provisioning, "refusals", {**pool.provisioning.refusals, **refused})
    return forwarded


def forwarding_properties(forwarded: ForwardedOrder) -> dict[str, str]:
    """The facts of a queue's requirements for the administrators of the site."""
    identity, unmapped = forwarded.identity, forwarded.forwarding.unmapped
    if identity is None:
        return {}
    properties = {"identity": identity.digest()[:16], "cpu": str(identity.cpu_time)}
    if identity.wall_time:
        properties["job-wall"] = str(identity.wall_time)
    if unmapped is not None:
        text = unparse(unmapped)
        properties["unmapped"] = text if len(text) <= MAX_UNMAPPED else f"{text[: MAX_UNMAPPED - 1]}…"
    return properties


def hook_call(
    policy: Policy, ce: Ce, name: str, identity: QueueIdentity | None, made: Forwarding
) -> HookCall | None:
    """The run of the CE's hook for a queue, also for one without requirements; None: there is no hook or no queue."""
    if not ce.forward_hook or identity is None:
        return None
    submitter = requester(identity, policy).index
    variables = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C",
        "PILOTAGE_CE": name,
        "PILOTAGE_QUEUE": ce.batch_options().own_queue,
        "PILOTAGE_VO": _text(submitter, "virtualorganisation"),
        "PILOTAGE_SUBJECT": _text(submitter, "certificatesubject"),
        "PILOTAGE_PROCESSORS": str(ce.pilot_processors),
        "PILOTAGE_MEMORY": str(ce.pilot_memory),
        "PILOTAGE_WALL": str(round(ce.wall)),
        "PILOTAGE_FLAGS": "\n".join(made.flags),
        "PILOTAGE_REQUIREMENTS": requirements_text(made.residual),
    }
    variables |= condition_variables(made.residual, kinds(), _variable_names(ce))
    return HookCall(ce.forward_hook, tuple(sorted(variables.items())))


def _variable_names(ce: Ce) -> dict[str, str]:
    """The attributes that may become variables: of the GLUE schema, and with a rule of the CE."""
    names = {name.lower(): name for name in terms_of(ce).rules}
    return {**names, **{key: attribute.name for key, attribute in BY_NAME.items()}}


def _text(ad: Mapping[str, Expression], name: str) -> str:
    value = ad.get(name)
    return value.value if isinstance(value, Literal) and isinstance(value.value, str) else ""
