"""The unknown attributes of one partial evaluation, and the steps left to it."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Final

from pilotage.core.classads.evaluate import OutOfSteps
from pilotage.core.classads.partial import outcomes as of
from pilotage.core.classads.tree import (
    Attribute,
    Call,
    Chain,
    ClassAd,
    Conditional,
    Expression,
    ListOf,
    Literal,
    Logic,
    Unary,
    children,
)

_ORDER = frozenset({"==", "!=", "<", "<=", ">", ">="})
_IDENTITY = frozenset({"=?=", "=!="})
_ARITHMETIC = frozenset({"+", "-", "*", "/", "%"})


class Unknowns:
    """The unknown attributes of a tree with the outcomes of each, by lower-case name.

    `nodes` has the one node that stands for an attribute. Names in
    `repeated` stand in the tree more than once. Nodes in `kept` stay as they are. `quantities` are integers of a
    limited size.
    Functions of constants have this as their world: it has neither a clock nor chance.
    """

    now = None
    rng = None
    __slots__ = ("kept", "nodes", "outcomes", "quantities", "repeated", "steps")

    def __init__(
        self,
        nodes: Mapping[str, Attribute],
        outcomes: Mapping[str, int],
        repeated: Set[str],
        kept: Mapping[int, tuple[Expression, int]],
        steps: int,
        quantities: Set[str] = frozenset(),
    ) -> None:
        self.nodes = nodes
        self.outcomes = outcomes
        self.repeated = repeated
        self.kept = kept
        self.steps = steps
        self.quantities = quantities

    def charge(self, steps: int = 1) -> None:
        self.steps -= steps
        if self.steps < 0:
            raise OutOfSteps

    def is_unknown(self, node: Expression) -> bool:
        return type(node) is Attribute and self.nodes.get(node.key) is node

    def outcomes_of(self, node: Expression) -> int:
        """All outcomes that the tree can have, or more."""
        self.charge()
        if type(node) is Literal:
            return of.outcome_of(node.value)
        if self.kept and id(node) in self.kept:
            return self.kept[id(node)][1]
        if isinstance(node, Chain):
            outcomes = self.outcomes_of(node.first)
            for op, right in node.rest:
                outcomes = of_operator(op, outcomes, self.outcomes_of(right), right)
            return outcomes
        return self._outcomes_of_others(node)

    def _outcomes_of_others(self, node: Expression) -> int:
        match node:
            case Attribute():
                return self.outcomes[node.key] if self.nodes.get(node.key) is node else of.ANYTHING
            case Logic(op=op, operands=operands):
                return of_logic(op, [of.TRUTHS[self.outcomes_of(operand)] for operand in operands])
            case Unary(op=op, operand=operand):
                return of_unary(op, self.outcomes_of(operand))
            case Conditional(test=test, yes=yes, no=no):
                below = None if yes is None else self.outcomes_of(yes)
                return of_conditional(self.outcomes_of(test), below, self.outcomes_of(no))
            case Call(key=key, arguments=arguments):
                return of.of_call(key, [self.outcomes_of(argument) for argument in arguments])
            case ListOf():
                return of.LIST
            case ClassAd():
                return of.AD
            case _:
                return of.ANYTHING


def of_operator(op: str, left: int, right: int, operand: Expression) -> int:
    """Outcomes of a binary operator; `operand` is its right side."""
    if op in _ORDER:
        return of.of_comparison(left, right)
    if op in _IDENTITY:
        outcomes = of.of_identity(left, right)
        return outcomes if op == "=?=" else of.NOT[outcomes]
    if op in _ARITHMETIC:
        nonzero = type(operand) is Literal and operand.value not in (0, False)
        return of.of_arithmetic(op, left, right, nonzero)
    return of.of_bits(left, right)


def of_logic(op: str, truths: list[int]) -> int:
    """Outcomes of `||` and `&&` for the truth values that each operand can have."""
    decisive, neutral = (of.TRUE, of.FALSE) if op == "||" else (of.FALSE, of.TRUE)
    result = 0
    passes = True
    is_undefined = False
    for truth in truths:
        result |= truth & (decisive | of.ERROR)
        is_undefined = is_undefined or bool(truth & of.UNDEFINED)
        if not truth & neutral:
            passes = False
            if not truth & of.UNDEFINED:
                # Nothing gets beyond this operand.
                return result
    return result | (neutral if passes else 0) | (of.UNDEFINED if is_undefined else 0)


def of_unary(op: str, outcomes: int) -> int:
    if op == "!":
        return of.NOT[of.TRUTHS[outcomes]]
    return of.of_complement(outcomes) if op == "~" else of.of_sign(outcomes)


def of_conditional(test: int, yes: int | None, no: int) -> int:
    """Outcomes of `test ? yes : no`, or of `test ?: no` without `yes`."""
    if yes is None:
        return test & ~of.UNDEFINED | (no if test & of.UNDEFINED else 0)
    truths = of.TRUTHS[test]
    result = truths & (of.UNDEFINED | of.ERROR)
    return result | (yes if truths & of.TRUE else 0) | (no if truths & of.FALSE else 0)


# Nodes of a tree that is compared with others. Larger ones are compared with none: it would cost too much.
MOST_COMPARED: Final = 64


def is_comparable(tree: Expression) -> bool:
    """Whether the tree is small, and two evaluations of it can't differ."""
    nodes = 0
    stack = [tree]
    while stack:
        node = stack.pop()
        nodes += 1
        if nodes > MOST_COMPARED or (type(node) is Call and node.key == "random"):
            return False
        stack.extend(children(node))
    return True
