"""Operators on trees: negation, order of operands, and operators that move into a conditional."""

from __future__ import annotations

from typing import Final

from pilotage.core.classads.partial import outcomes as of
from pilotage.core.classads.partial.contexts import TRUE_SIDE, TruthContext
from pilotage.core.classads.partial.domain import NEGATED
from pilotage.core.classads.partial.unknowns import Unknowns
from pilotage.core.classads.tree import (
    LEVEL,
    Attribute,
    Chain,
    Conditional,
    Expression,
    Literal,
    Logic,
    Unary,
)
from pilotage.core.classads.values import BINARY, UNARY

_FLIPPED: Final = {
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
    "==": "==",
    "!=": "!=",
    "=?=": "=?=",
    "=!=": "=!=",
}
_IDENTITY: Final = frozenset({"=?=", "=!="})
_EQUALITY: Final = frozenset({"==", "!=", "=?=", "=!="})


def negation(node: Expression, unknowns: Unknowns) -> Expression:
    """A tree that has the truth value of `!node` everywhere; "not" moves down as far as it can."""
    unknowns.charge()
    match node:
        case Literal(value=value):
            return Literal(UNARY["!"](value))
        case Unary(op="!", operand=operand):
            return operand
        case Logic(op=op, operands=operands):
            return Logic(
                "&&" if op == "||" else "||", tuple([negation(operand, unknowns) for operand in operands])
            )
        case Conditional(test=test, yes=yes, no=no) if yes is not None and not (_is_not(yes) or _is_not(no)):
            return Conditional(test, negation(yes, unknowns), negation(no, unknowns))
        case Chain(first=first, rest=((op, right),)) if op in NEGATED and (
            op in ("==", "!=", "=?=", "=!=") or (_is_a_number(first) and _is_a_number(right))
        ):
            return Chain(first, ((NEGATED[op], right),))
        case _:
            return Unary("!", node)


def _is_not(node: Expression) -> bool:
    return type(node) is Unary and node.op == "!"


def _is_a_number(node: Expression) -> bool:
    """Whether the value can't be NaN, for which both `x < 1` and `x >= 1` are false."""
    return type(node) is Attribute or (type(node) is Literal and node.value == node.value)


def operation(left: Expression, op: str, right: Expression, unknowns: Unknowns) -> Expression:
    """A binary operator on two trees of which one is no constant; an unknown attribute comes first.

    With a constant on one side, the operator moves into a conditional on the other: `5 > (c ? 1 : 9)` is
    `c ? true : false`.
    """
    unknowns.charge()
    if type(left) is Literal and type(right) is Literal:
        return Literal(BINARY[op](left.value, right.value))
    if type(right) is Literal and _takes(left, op, right):
        assert type(left) is Conditional
        assert left.yes is not None
        yes, no = operation(left.yes, op, right, unknowns), operation(left.no, op, right, unknowns)
        return Conditional(left.test, yes, no)
    if type(left) is Literal and _takes(right, op, left):
        assert type(right) is Conditional
        assert right.yes is not None
        yes, no = operation(left, op, right.yes, unknowns), operation(left, op, right.no, unknowns)
        return Conditional(right.test, yes, no)
    if type(left) is Literal and op in _FLIPPED:
        return Chain(right, ((_FLIPPED[op], left),))
    if type(left) is Chain and LEVEL[left.rest[0][0]] == LEVEL[op]:
        return Chain(left.first, (*left.rest, (op, right)))
    return Chain(left, ((op, right),))


def _takes(node: Expression, op: str, constant: Literal) -> bool:
    """Whether an operator with this constant can move into the node.

    A test that is undefined or an error makes the whole so, since a strict operator passes both on.
    """
    if type(node) is not Conditional or node.yes is None or op in _IDENTITY:
        return False
    if not isinstance(constant.value, int | float | str):
        return False
    return type(node.yes) in (Literal, Conditional) or type(node.no) in (Literal, Conditional)


def truth_compared(
    tree: Expression, outcomes: int, op: str, constant: bool, context: TruthContext, unknowns: Unknowns
) -> Expression | None:
    """The tree, or its negation, that a comparison of a truth value with a constant stands for; None if none does.

    `(x > 3) == true` is `x > 3`. With an operand that may be undefined that is so only where just true counts.
    """
    if op not in _EQUALITY:
        return None
    is_sure = not outcomes & ~of.BOOLEAN
    is_only_asked_for_true = (
        context in TRUE_SIDE
        and op in ("==", "=?=")
        and not outcomes & ~(of.BOOLEAN | of.UNDEFINED | of.ERROR)
    )
    if not (is_sure or is_only_asked_for_true):
        return None
    if constant is (op in ("==", "=?=")):
        return tree
    # The negation of `!x` is x, which can be a number.
    return None if _is_not(tree) else negation(tree, unknowns)
