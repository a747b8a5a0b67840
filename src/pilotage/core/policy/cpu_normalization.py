"""`CPUNormalization` of submit pools: the speed of a CE's cores, computed from the ad of the CE.

The result replaces `ces.*.cpu_power` in the policy in force. So the director, the pilots, `why` and accounting all
reckon with the same speed.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from pilotage.core.classads import ClassAd, Expression, ListOf, Literal, evaluate, parse_expression
from pilotage.core.policy.ce_model import Ce
from pilotage.core.policy.director import DEFAULT_NORMALIZATION
from pilotage.core.policy.model import Policy

STATIC_ATTRIBUTES = (
    "Site",
    "GridCE",
    "Setup",
    "Middleware",
    "Tags",
    "Processors",
    "Memory",
    "Wall",
    "CPUPower",
)
"""Attributes of a CE in the policy. Numbers of its load are missing: the speed of a core does not follow the load."""

LOWEST, HIGHEST = 1e-6, 1e6
"""The range of `ces.*.cpu_power`."""


def with_normalized_cpu(policy: Policy) -> Policy:
    """The policy with the `cpu_power` of each CE as the CPUNormalization of its pool gives it."""
    powers = {name: normalized_cpu_power(policy, name) for name in policy.ces}
    changed = {
        name: msgspec.structs.replace(policy.ces[name], cpu_power=power)
        for name, power in powers.items()
        if power is not None and power != policy.ces[name].cpu_power
    }
    return msgspec.structs.replace(policy, ces={**policy.ces, **changed}) if changed else policy


def normalized_cpu_power(policy: Policy, name: str) -> float | None:
    """The speed of a core of a CE in reference cores; None: the expression gives no number in the range."""
    ce = policy.ces[name]
    text = policy.director.pool(ce.submit_pool).cpu_normalization or DEFAULT_NORMALIZATION
    if text == DEFAULT_NORMALIZATION:
        return ce.cpu_power
    value = evaluate(_expression(text), my=_ad(name, ce))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if LOWEST <= value <= HIGHEST else None


@lru_cache(maxsize=64)
def _expression(text: str) -> Expression:
    return parse_expression(text)


def _ad(name: str, ce: Ce) -> ClassAd:
    values: dict[str, Expression] = {
        "Site": Literal(ce.site),
        "GridCE": Literal(name),
        "Setup": Literal(ce.setup),
        "Middleware": Literal(ce.middleware or ce.type),
        "Tags": ListOf(tuple(Literal(tag) for tag in sorted(ce.tags))),
        "Processors": Literal(ce.pilot_processors),
        "Wall": Literal(ce.wall),
        "CPUPower": Literal(ce.cpu_power),
    }
    if ce.pilot_memory:
        values["Memory"] = Literal(ce.pilot_memory)
    return ClassAd(tuple(values.items()))
