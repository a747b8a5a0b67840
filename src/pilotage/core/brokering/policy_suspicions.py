"""Legal things in a policy's ads and expressions that are probably mistakes."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Final

from pilotage.core.brokering.ad_text import suspicions_of
from pilotage.core.brokering.ce_ad import ce_ad
from pilotage.core.brokering.requester_ad import ATTRIBUTES
from pilotage.core.brokering.seen_attributes import attributes_of
from pilotage.core.classads import Attribute, Expression, Literal, parse_expression
from pilotage.core.glue.information import CeInformation, HostClass
from pilotage.core.glue.schema import BY_NAME, EXPRESSIONS, nearest_name
from pilotage.core.policy import Ce, Policy, toml

MOST: Final = 20
"""Suspicions of one policy."""

STATES: Final = ("Production", "Queueing", "Draining", "Closed")
"""Values of GlueCEStateStatus."""
_STATUS: Final = "gluecestatestatus"
_TARGET: Final = frozenset({"other", "target"})
_REQUESTER: Final = {name.lower(): name for name in ATTRIBUTES}


def policy_suspicions(policy: Policy) -> list[str]:
    """A sentence for each. At most `MOST`."""
    suspicions: list[str] = []
    for name, ce in policy.ces.items():
        table = f"ces.{toml.key(name)}.attributes"
        suspicions += [f"{table}.{text}" for text in _of_ce(name, ce)]
    pools = {ce.submit_pool for ce in policy.ces.values()}
    for name, pool in policy.director.pools.items():
        if name not in pools and policy.director.is_handled(name):
            known = ", ".join(sorted(pools)) or "none"
            suspicions.append(
                f"director.pools.{toml.key(name)}: no CE is in this pool; pools of CEs: {known}"
            )
        for key, text in (("Rank", pool.rank), ("CPUNormalization", pool.cpu_normalization)):
            expression = parse_expression(text or "0")
            if key == "Rank" and _is_no_number(expression):
                suspicions.append(f"director.pools.{toml.key(name)}.Rank: its value is never a number")
            suspicions += [
                f"director.pools.{toml.key(name)}.{key}: {reason}" for reason in _misspelt(expression)
            ]
    return suspicions[:MOST]


def _of_ce(name: str, ce: Ce) -> Iterator[str]:
    if not ce.attributes:
        return
    classes = tuple(HostClass(entry.size, entry.attributes, entry.hosts) for entry in ce.hosts)
    own = {key.lower() for key in ce.attributes}
    ad = ce_ad(name, ce, CeInformation(ce.attributes, classes, ce.homogeneous), 0.0).ad
    for suspicion in suspicions_of(ad):
        if suspicion.path.partition(".")[0].partition("[")[0].lower() in own:
            yield f"{suspicion.path}: {suspicion.message}"
    for key in EXPRESSIONS:
        expression = ad.get(key)
        if key.lower() in own and expression is not None:
            if isinstance(expression, Literal) and expression.value is not True:
                yield f"{key}: it is never true, so no pilot is ever submitted there"
            for reason in _wrong_in_check(expression):
                yield f"{key}: {reason}"
    status = ce.attributes.get(next((key for key in ce.attributes if key.lower() == _STATUS), ""), "")
    if status and status not in STATES:
        yield f"GlueCEStateStatus: {status!r} is none of {', '.join(STATES)}"


def _is_no_number(expression: Expression) -> bool:
    if not isinstance(expression, Literal):
        return False
    return isinstance(expression.value, bool) or not isinstance(expression.value, int | float)


def _misspelt(expression: Expression) -> Iterator[str]:
    for name in dict.fromkeys(attribute.name for attribute in attributes_of(expression)):
        if near := nearest_name(name):
            yield f"the GLUE schema has no {name}: is {near} meant?"


def _wrong_in_check(expression: Expression) -> Iterator[str]:
    """Misspelt names of the CE's own ad, and names that the requester's ad never has, so that nobody gets in."""
    for attribute in dict.fromkeys(attributes_of(expression)):
        if not _is_of_requester(attribute):
            yield from _misspelt(attribute)
        elif attribute.key in BY_NAME or nearest_name(attribute.name):
            yield f"no requester has {attribute.name}: leave out `other.` for facts of the CE"
        elif attribute.key not in _REQUESTER:
            near = difflib.get_close_matches(attribute.key, _REQUESTER, 1)
            meant = f": is {_REQUESTER[near[0]]} meant?" if near else f"; it has {', '.join(ATTRIBUTES)}"
            yield f"no requester has {attribute.name}{meant}"


def _is_of_requester(attribute: Attribute) -> bool:
    base = attribute.base
    return isinstance(base, Attribute) and base.base is None and base.key in _TARGET
