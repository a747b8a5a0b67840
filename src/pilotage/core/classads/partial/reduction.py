"""Partial evaluation of an expression against an ad that defines only some of its attributes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pilotage.core.classads.evaluate import OutOfSteps, value_in
from pilotage.core.classads.parser import MAX_NODES
from pilotage.core.classads.partial.contexts import TruthContext
from pilotage.core.classads.partial.outcomes import BOOLEAN
from pilotage.core.classads.partial.satisfiability import can_be
from pilotage.core.classads.partial.simplify import simplify
from pilotage.core.classads.partial.unknowns import Kind, Unknowns
from pilotage.core.classads.tree import (
    NODES,
    ClassAd,
    Conditional,
    Expression,
    Literal,
    Logic,
    nodes_of,
)
from pilotage.core.classads.values import Irreducible

MAX_STEPS: Final = 20_000

# Steps in which no tree can grow too large.
_SMALL: Final = MAX_NODES // 4
_TRUE, _FALSE = Literal(True), Literal(False)
_NOTHING: Final = ClassAd()
_NO_KINDS: Final[Mapping[str, Kind]] = {}


@dataclass(frozen=True, slots=True)
class Residual:
    """A partially evaluated expression and its unknown attributes; None where it is left as it is."""

    tree: Expression
    unknowns: Unknowns | None


def residual(
    expression: Expression,
    my: ClassAd | None,
    target: ClassAd,
    kinds: Mapping[str, Kind] = _NO_KINDS,
    *,
    steps: int = MAX_STEPS,
) -> Expression:
    """The condition that `expression` in `my` still puts on the attributes that `target` does not define.

    An attribute is unknown if the target does not define it, and `my` neither for a bare name. One that is present
    with the value undefined is known. Attributes that `my` lacks are undefined: `my` is complete.

    A *full ad* extends the target with a value of its kind for every unknown attribute. The result is true for the
    same full ads as the expression. `kinds` has lower-case names; without an entry the kind follows from the use.
    It is the constant true or false where that can be decided. It names unknown attributes as `other.NAME`.

    `time()` and `random()` stay. Work beyond `steps` leaves the expression as it is. It never raises.
    """
    return partial(expression, my, target, kinds, steps).tree


def can_be_true(
    expression: Expression, kinds: Mapping[str, Kind] = _NO_KINDS, *, steps: int = MAX_STEPS
) -> bool:
    """False only if the expression is true for no values of its attributes, each of its kind.

    It is meant for residuals, which name unknown attributes as `other.NAME`. An expression with other names, or one
    that takes too many steps, can be true.
    """
    if type(expression) is Literal:
        return expression.value is True
    return reduced(expression, kinds, steps).tree != _FALSE


def partial(
    expression: Expression,
    my: ClassAd | None,
    target: ClassAd,
    kinds: Mapping[str, Kind] = _NO_KINDS,
    steps: int = MAX_STEPS,
) -> Residual:
    """The answer of `residual`, with the unknown attributes of the tree."""
    return _guarded(Unknowns(my, target, kinds, steps), expression)


def reduced(expression: Expression, kinds: Mapping[str, Kind], steps: int) -> Residual:
    """The residual of an expression of which no attribute is known, with its unknown attributes."""
    return _guarded(Unknowns(None, _NOTHING, kinds, steps, is_complete=False), expression)


def _guarded(unknowns: Unknowns, expression: Expression) -> Residual:
    try:
        return _evaluated(unknowns, expression)
    except (OutOfSteps, Irreducible, RecursionError):
        return Residual(expression, None)


def _evaluated(unknowns: Unknowns, expression: Expression) -> Residual:
    steps = unknowns.steps
    value = value_in(expression, unknowns.mine, unknowns)
    if not unknowns.borrowed.isdisjoint(unknowns.nodes):
        # A name that the target took from `my` is an unknown attribute elsewhere.
        raise Irreducible
    if type(value) not in NODES:
        return Residual(_TRUE if value is True else _FALSE, None)
    tree, outcomes = simplify(value, TruthContext.MATCH, unknowns)
    # Conditions on different attributes cannot contradict each other.
    if unknowns.repeated and type(tree) in (Logic, Conditional):
        if not can_be(tree, True, unknowns):
            tree = _FALSE
        elif not outcomes & ~BOOLEAN and not can_be(tree, False, unknowns):
            tree = _TRUE
    if steps - unknowns.steps > _SMALL:
        _check_size(tree)
    return Residual(tree, unknowns)


def _check_size(tree: Expression) -> None:
    """Refuse a tree that the parser would refuse: attributes inlined many times grow without bound."""
    if any(count > MAX_NODES for count, _ in enumerate(nodes_of(tree), 1)):
        raise OutOfSteps
