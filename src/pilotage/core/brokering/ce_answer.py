"""The answer of the match for one CE with its explanation, as commands and routes show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import isfinite
from typing import Final

from pilotage.core.brokering.ce_ad import CeAd
from pilotage.core.brokering.explanation import SubExpressionRefusal, explain_refusal
from pilotage.core.brokering.match import CeFacts, CeVerdict, MatchedCe, ce_requirements
from pilotage.core.classads import (
    Attribute,
    Call,
    Chain,
    ClassAd,
    Conditional,
    Expression,
    ListOf,
    Literal,
    Logic,
    Subscript,
    Unary,
    unparse,
)
from pilotage.core.classads.partial import Kind
from pilotage.core.classads.tree import children
from pilotage.core.glue.schema import BY_NAME, is_dynamic

MOST_CLASSES: Final = 8
"""Host classes that are explained one by one."""
MOST_RESIDUAL: Final = 4000
"""Characters of a residual in an answer."""
MOST_WORK: Final = 3_000_000
"""Nodes of expressions visited for one question of a user, about. It takes a few seconds."""
JOB, CE = "job", "ce"

_TRUE: Final = Literal(True)


@dataclass(frozen=True, slots=True)
class ExplainedRefusal:
    """A sub-expression that said no, and for which hosts."""

    refusal: SubExpressionRefusal
    side: str = JOB
    """Whose Requirements it belongs to."""
    hosts: str = ""
    """The hosts that it holds for; empty: all."""

    def __str__(self) -> str:
        return f"{self.refusal} on {self.hosts}" if self.hosts else str(self.refusal)


@dataclass(frozen=True, slots=True)
class CeAnswer:
    """The answer of the match for one CE, with its explanation."""

    ce: str
    match: MatchedCe
    refusals: tuple[ExplainedRefusal, ...] = ()
    host_classes: int | None = None
    """None: they are not known."""

    @property
    def rank(self) -> float | None:
        return self.match.rank if isfinite(self.match.rank) else None

    @property
    def residual(self) -> str:
        """Empty where it cannot be true."""
        if self.match.verdict is CeVerdict.IMPOSSIBLE:
            return ""
        text = unparse(in_glue_spelling(self.match.residual))
        return text if len(text) <= MOST_RESIDUAL else f"{text[:MOST_RESIDUAL]} ..."

    @property
    def fitting_classes(self) -> int | None:
        classes = self.match.host_classes
        return None if classes is None else len(classes)


def facts_of(ad: CeAd, *, is_current: bool = True) -> CeFacts:
    """The facts for the match. Of an ad that has expired, attributes that change all the time are unknown."""

    def lasting(tree: ClassAd) -> ClassAd:
        if is_current:
            return tree
        return ClassAd(tuple((name, value) for name, value in tree.attributes if not is_dynamic(name)))

    return CeFacts(ad.name, lasting(ad.ad), lasting(ad.fixed), tuple(lasting(host.ad) for host in ad.hosts))


def as_plain(answer: CeAnswer) -> dict[str, object]:
    """The answer by the names of the message `CeMatch` (wire/matchmaking.py), for commands and routes alike."""
    return {
        "ce": answer.ce,
        "verdict": str(answer.match.verdict),
        "reason": answer.match.reason,
        "rank": answer.rank,
        "residual": answer.residual,
        "host_classes": answer.host_classes,
        "fitting_classes": answer.fitting_classes,
        "refusals": [refusal_as_plain(refusal) for refusal in answer.refusals],
    }


def refusal_as_plain(explained: ExplainedRefusal) -> dict[str, object]:
    """A refusal by the names of the message `SubExpression`."""
    plain = asdict(explained.refusal)
    return {**plain, "text": str(explained), "side": explained.side, "hosts": explained.hosts}


def answer_for(requester: ClassAd, ce: CeFacts, match: MatchedCe, kinds: Mapping[str, Kind]) -> CeAnswer:
    """The answer with its explanation. `match` is the broker's answer for the same pair."""
    return CeAnswer(
        ce.name, match, explain_match(requester, ce, match, kinds), len(ce.hosts) if ce.hosts else None
    )


def explain_match(
    requester: ClassAd, ce: CeFacts, match: MatchedCe, kinds: Mapping[str, Kind]
) -> tuple[ExplainedRefusal, ...]:
    """The sub-expressions that kept a CE from fitting; none for one that fits."""
    if match.verdict is CeVerdict.REFUSED:
        refusals = explain_refusal(ce_requirements(ce.ad), ce.ad, requester)
        return tuple(ExplainedRefusal(refusal, CE) for refusal in refusals)
    requirements = in_glue_spelling(requester.get("Requirements") or _TRUE)
    if match.verdict is CeVerdict.IMPOSSIBLE:
        refusals = explain_refusal(requirements, requester, ce.fixed, kinds=kinds)
        return tuple(map(ExplainedRefusal, refusals))
    if match.verdict is CeVerdict.NO_HOSTS:
        return _of_hosts(requirements, requester, ce.hosts, kinds)
    return ()


def _of_hosts(
    requirements: Expression, requester: ClassAd, hosts: Sequence[ClassAd], kinds: Mapping[str, Kind]
) -> tuple[ExplainedRefusal, ...]:
    """Equal refusals of several host classes are one."""
    classes: dict[SubExpressionRefusal, int] = {}
    for host in hosts[:MOST_CLASSES]:
        for refusal in explain_refusal(requirements, requester, host, kinds=kinds):
            classes[refusal] = classes.get(refusal, 0) + 1
    explained = min(len(hosts), MOST_CLASSES)

    def named(count: int) -> str:
        if count == len(hosts):
            return ""
        more = f", of {len(hosts)} in all" if explained < len(hosts) else ""
        return f"{count} of {explained} classes of hosts{more}"

    return tuple(ExplainedRefusal(refusal, JOB, named(count)) for refusal, count in classes.items())


def work_of(requirements: Expression, host_classes: int) -> int:
    """Nodes visited for the answer of one CE, about: a part of `MOST_WORK`."""
    visits, stack = 0, [(requirements, 1)]
    while stack:
        node, depth = stack.pop()
        # An explanation evaluates a node again at each level above it.
        visits += depth
        stack.extend((below, depth + 1) for below in children(node))
    return visits * (2 + host_classes)


def in_glue_spelling(expression: Expression) -> Expression:
    """The same expression with names as the GLUE schema writes them: canonical texts have them in lower case."""
    match expression:
        case Attribute(base=base):
            known = BY_NAME.get(expression.key)
            name = known.name if known is not None else expression.name
            return replace(expression, name=name, base=None if base is None else in_glue_spelling(base))
        case Subscript(base=base, index=index):
            return Subscript(in_glue_spelling(base), in_glue_spelling(index))
        case Unary(op=op, operand=operand):
            return Unary(op, in_glue_spelling(operand))
        case Logic(op=op, operands=operands):
            return Logic(op, tuple(map(in_glue_spelling, operands)))
        case Chain(first=first, rest=rest):
            return Chain(in_glue_spelling(first), tuple((op, in_glue_spelling(right)) for op, right in rest))
        case Conditional(test=test, yes=yes, no=no):
            branch = None if yes is None else in_glue_spelling(yes)
            return Conditional(in_glue_spelling(test), branch, in_glue_spelling(no))
        case Call(name=name, arguments=arguments):
            return Call(name, tuple(map(in_glue_spelling, arguments)))
        case ListOf(items=items):
            return ListOf(tuple(map(in_glue_spelling, items)))
        case ClassAd(attributes=attributes):
            return ClassAd(tuple((name, in_glue_spelling(value)) for name, value in attributes))
        case _:
            return expression
