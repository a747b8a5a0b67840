"""The match of a requester and a CE: both sides' Requirements, the state of the CE, and its rank.

`match` answers for one pair and shares nothing. `Broker` gives the same answers for many pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf, isnan
from typing import Final

from pilotage.core.classads import (
    Attribute,
    Call,
    Chain,
    ClassAd,
    Expression,
    Literal,
    Logic,
    Unary,
    evaluate,
)
from pilotage.core.classads.partial import Kind, can_be_true, residual
from pilotage.core.classads.tree import conjuncts
from pilotage.core.glue.information import number_of

UNRANKED: Final = -inf
"""The rank of a CE for which Rank has no number: it comes last."""
STEPS: Final = 20_000
"""Bound of one evaluation."""

_TRUE: Final = Literal(True)
_CHECKS: Final = ("AuthorizationCheck", "CloseOutputSECheck")
_LIMITS: Final = (
    ("GlueCEStateTotalJobs", "GlueCEPolicyMaxTotalJobs"),
    ("GlueCEStateRunningJobs", "GlueCEPolicyMaxRunningJobs"),
)


class CeVerdict(StrEnum):
    """Whether pilots of a requester may go to a CE now. Earlier values give way to later ones in an explanation."""

    YES = "yes"
    FULL = "full"
    """It runs or holds all jobs that it takes: a passing state."""
    CLOSED = "closed"
    """Its GlueCEStateStatus is not Production: a passing state."""
    REFUSED = "refused"
    """The Requirements of the CE are not true of the requester."""
    NO_HOSTS = "no hosts"
    """The Requirements of the requester can be true there, and on no known host."""
    IMPOSSIBLE = "impossible"
    """The Requirements of the requester cannot be true there."""

    @property
    def is_passing(self) -> bool:
        """The CE fits, and does not take pilots at present."""
        return self in (CeVerdict.FULL, CeVerdict.CLOSED)

    @property
    def fits(self) -> bool:
        return self is CeVerdict.YES or self.is_passing


@dataclass(frozen=True, slots=True, eq=False)
class CeFacts:
    """A CE as the match knows it."""

    name: str
    ad: ClassAd
    """All that is known of the CE, for its own Requirements and for Rank."""
    fixed: ClassAd
    """The values that hold on each of its hosts. A name that is absent is unknown."""
    hosts: tuple[ClassAd, ...] = ()
    """For each host class `fixed` with the values of its hosts; empty: classes are not known."""


@dataclass(frozen=True, slots=True)
class MatchedCe:
    """The answer for one requester and one CE."""

    verdict: CeVerdict
    reason: str = ""
    """Why it is not YES."""
    rank: float = UNRANKED
    residual: Expression = _TRUE
    """The Requirements of the requester after all that the CE fixes."""
    host_classes: tuple[int, ...] | None = None
    """Places of the host classes that may satisfy it; None: classes are not known."""


def match(
    requester: ClassAd,
    ce: CeFacts,
    *,
    now: float,
    rank: float = UNRANKED,
    kinds: Mapping[str, Kind] | None = None,
) -> MatchedCe:
    """Match one pair. `requester`: its Requirements, absent for true, and the attributes of its identity."""
    kinds = kinds or {}
    requirements = requester.get("Requirements") or _TRUE
    rest = residual(requirements, requester, ce.fixed, kinds)
    if not can_be_true(rest, kinds):
        return MatchedCe(CeVerdict.IMPOSSIBLE, REASONS[CeVerdict.IMPOSSIBLE], rank, rest)
    classes = None
    if ce.hosts:
        classes = tuple(
            place
            for place, host in enumerate(ce.hosts)
            if can_be_true(residual(rest, requester, host, kinds), kinds)
        )
        if not classes:
            return MatchedCe(CeVerdict.NO_HOSTS, REASONS[CeVerdict.NO_HOSTS], rank, rest, classes)
    if not accepts(ce.ad, requester, now):
        return MatchedCe(CeVerdict.REFUSED, REASONS[CeVerdict.REFUSED], rank, rest, classes)
    return MatchedCe(*state_of(ce.ad), rank, rest, classes)


REASONS: Final[Mapping[CeVerdict, str]] = {
    CeVerdict.IMPOSSIBLE: "the Requirements cannot be true there",
    CeVerdict.NO_HOSTS: "the Requirements are true on none of its hosts",
    CeVerdict.REFUSED: "the Requirements of the CE are not true for the submitting identity",
}
"""The reason of each verdict that has a single one."""


def ce_requirements(ad: ClassAd) -> Expression:
    """The Requirements of a CE. Without any they are both checks of the document; an absent check is true."""
    requirements = ad.get("Requirements")
    if requirements is not None:
        return requirements
    checks = [Attribute(name) for name in _CHECKS if ad.get(name) is not None]
    if len(checks) == 1:
        return checks[0]
    return Logic("&&", tuple(checks)) if checks else _TRUE


def accepts(ce: ClassAd, requester: ClassAd, now: float) -> bool:
    """Whether the Requirements of a CE are true of a requester."""
    return evaluate(ce_requirements(ce), ce, requester, now=now, steps=STEPS) is True


def state_of(ad: ClassAd) -> tuple[CeVerdict, str]:
    """CLOSED or FULL with the reason, for a CE that takes no pilots at present; YES for any other."""
    if reason := closed_reason(ad):
        return CeVerdict.CLOSED, reason
    reason = full_reason(ad)
    return (CeVerdict.FULL if reason else CeVerdict.YES), reason


def closed_reason(ad: ClassAd) -> str:
    """Why no pilot is submitted to a CE in its present state; empty: its state is Production, or not known."""
    status = _value(ad, "GlueCEStateStatus")
    if not isinstance(status, str) or status.lower() == "production":
        return ""
    return f"its state is {status}"


def full_reason(ad: ClassAd) -> str:
    """Why a CE takes no further job at present; empty: it does, or its numbers are not known."""
    for jobs, most in _LIMITS:
        held, limit = _number(ad, jobs), _number(ad, most)
        if held is not None and limit is not None and held >= limit:
            return f"it is full: {jobs} is {held:g}, and {most} {limit:g}"
    return ""


def jobs_left(ad: ClassAd) -> float:
    """How many further jobs a CE takes by GlueCEPolicyMaxTotalJobs; infinity: not known."""
    held, limit = (_number(ad, name) for name in _LIMITS[0])
    return inf if held is None or limit is None else max(0.0, limit - held)


def rank_of(rank: Expression, ad: ClassAd) -> float:
    """The value of Rank for the ad of a CE; UNRANKED if it is no number."""
    value = evaluate(rank, my=ad, target=ad, now=0.0, steps=STEPS)
    if not isinstance(value, int | float) or isnan(value):
        return UNRANKED
    return float(value)


def _value(ad: ClassAd, name: str) -> object:
    expression = ad.get(name)
    if expression is None:
        return None
    return expression.value if isinstance(expression, Literal) else evaluate(expression, ad, steps=STEPS)


def _number(ad: ClassAd, name: str) -> float | None:
    return number_of(_value(ad, name))


def split_requirements(expression: Expression) -> tuple[Expression, ...]:
    """Expressions that are all true where `expression` is true, and only there."""
    parts = tuple(conjuncts(expression))
    return parts if len(parts) == 1 else tuple(_as_condition(part) for part in parts)


_COMPARISONS: Final = frozenset({"==", "!=", "<", "<=", ">", ">=", "=?=", "=!="})
_PREDICATES: Final = frozenset({"member", "regexp", "isundefined"})


def _as_condition(part: Expression) -> Expression:
    """An operand of `&&` by itself. There a number other than 0 counts as true; alone it would not."""
    match part:
        case Logic() | Unary(op="!"):
            return part
        case Chain(rest=rest) if rest[-1][0] in _COMPARISONS:
            return part
        case Call(key=key) if key in _PREDICATES:
            return part
        case Literal(value=bool()):
            return part
    return Logic("&&", (part, _TRUE))


def join_requirements(parts: Sequence[Expression]) -> Expression:
    """An expression that is true where all parts are true, and only there."""
    if len(parts) > 1:
        return Logic("&&", tuple(operand for part in parts for operand in conjuncts(part)))
    return parts[0] if parts else _TRUE
