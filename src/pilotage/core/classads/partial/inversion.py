"""Comparisons of arithmetic over one unknown quantity, solved for it.

`other.Memory / 1024 >= 2` is `other.Memory >= 2048`. Arithmetic with constants rises or falls over all quantities,
rounding included, if nothing overflows. So the evaluator's own operators find the bounds by bisection.
"""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Callable
from functools import lru_cache
from math import isfinite
from typing import Any, Final, NamedTuple, TypeAlias

from pilotage.core.classads.partial.unknowns import LARGEST_QUANTITY, Unknowns
from pilotage.core.classads.tree import INT_MAX, INT_MIN, Attribute, Chain, Expression, Literal, Unary
from pilotage.core.classads.values import BINARY, UNARY

_ORDER: Final = frozenset({"<", "<=", ">", ">=", "==", "!="})
_QUANTITIES: Final = range(-LARGEST_QUANTITY, LARGEST_QUANTITY + 1)
_CAN_OVERFLOW: Final[dict[str, Callable[[int, int], int]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}
_STEPS: Final = 50
_MOST_OPERATIONS: Final = 16


class Operation(NamedTuple):
    """One operator with a constant; `constant` is None for a sign."""

    op: str
    constant: Literal | None = None
    is_left: bool = False
    """The constant stands on the left."""

    def apply(self, value: Any) -> Any:
        if self.constant is None:
            return UNARY[self.op](value)
        left, right = (self.constant.value, value) if self.is_left else (value, self.constant.value)
        return BINARY[self.op](left, right)

    def wraps(self, value: int) -> bool:
        """Whether the result of this integer does not fit into 64 bits."""
        if self.constant is None:
            return self.op == "-" and value == INT_MIN
        constant = self.constant.value
        if self.op not in _CAN_OVERFLOW or not isinstance(constant, int):
            return False
        left, right = (constant, value) if self.is_left else (value, constant)
        return not INT_MIN <= _CAN_OVERFLOW[self.op](left, right) <= INT_MAX

    @property
    def direction(self) -> int:
        """1: the result rises with the operand, -1: it falls, 0: neither is certain."""
        if self.constant is None:
            return -1 if self.op == "-" else 1
        constant = self.constant.value
        if isinstance(constant, bool) or not isinstance(constant, int | float) or not isfinite(constant):
            return 0
        if self.op == "+":
            return 1
        if self.op == "-":
            return -1 if self.is_left else 1
        if constant == 0 or (self.op == "/" and self.is_left) or self.op not in ("*", "/"):
            return 0
        return 1 if constant > 0 else -1


Condition: TypeAlias = tuple[str, Literal]


def solved(tree: Chain, unknowns: Unknowns) -> list[Expression] | bool | None:
    """Conditions on the quantity alone that hold together exactly where the comparison is true.

    A truth value: the comparison has it everywhere. None: the tree has another form, or the conditions would be many.
    """
    op, right = tree.rest[0]
    if len(tree.rest) > 1 or op not in _ORDER or type(right) is not Literal:
        return None
    if type(right.value) not in (int, float) or type(tree.first) not in (Chain, Unary):
        return None
    term = _operations(tree.first)
    if term is None or not unknowns.is_quantity(term[0]):
        return None
    attribute, operations = term
    unknowns.charge(_STEPS)
    conditions = _conditions(operations, op, right)
    if conditions is None or isinstance(conditions, bool):
        return conditions
    return [Chain(attribute, (condition,)) for condition in conditions]


def _operations(term: Expression) -> tuple[Attribute, tuple[Operation, ...]] | None:
    """The attribute of a term, and the operators around it, the innermost first; None: it has another form."""
    operations: list[Operation] = []
    while type(term) is not Attribute:
        if len(operations) > _MOST_OPERATIONS:
            return None
        if type(term) is Unary and term.op in ("-", "+"):
            operations.append(Operation(term.op))
            term = term.operand
            continue
        if type(term) is not Chain:
            return None
        op, right = term.rest[-1]
        left = Chain(term.first, term.rest[:-1]) if len(term.rest) > 1 else term.first
        if type(right) is Literal:
            operations.append(Operation(op, right))
            term = left
        elif type(left) is Literal:
            operations.append(Operation(op, left, is_left=True))
            term = right
        else:
            return None
    return term, tuple(reversed(operations))


@lru_cache(maxsize=4096)
def _conditions(
    operations: tuple[Operation, ...], op: str, bound: Literal
) -> tuple[Condition, ...] | bool | None:
    """The conditions on a quantity that hold together where the comparison is true, or its constant truth value."""
    direction = _direction(operations)
    if not direction or bound.value != bound.value:
        return None
    low, high = _true_range(operations, direction, op, bound)
    if low > high:
        return op == "!="
    if op in ("==", "!=") and low == high:
        return ((op, Literal(low)),)
    if op == "!=":
        return None
    conditions = []
    is_strict = op in ("<", ">")
    if low > _QUANTITIES[0]:
        conditions.append((">", Literal(low - 1)) if is_strict else (">=", Literal(low)))
    if high < _QUANTITIES[-1]:
        conditions.append(("<", Literal(high + 1)) if is_strict else ("<=", Literal(high)))
    return tuple(conditions) or True


def _direction(operations: tuple[Operation, ...]) -> int:
    """Whether the result rises (1) or falls (-1) over all quantities; 0: neither, or some overflow."""
    direction = 1
    ends: list[Any] = [_QUANTITIES[0], _QUANTITIES[-1]]
    for operation in operations:
        direction *= operation.direction
        if any(type(end) is int and operation.wraps(end) for end in ends):
            return 0
        ends = [operation.apply(end) for end in ends]
        if not all(type(end) in (int, float) and isfinite(end) for end in ends):
            return 0
    return direction


def _true_range(
    operations: tuple[Operation, ...], direction: int, op: str, bound: Literal
) -> tuple[int, int]:
    """The first and the last quantity for which the comparison is true; for `!=`, for which it is false."""
    low, high = _QUANTITIES[0], _QUANTITIES[-1]
    for compared in (">=", "<=") if op in ("==", "!=") else (op,):

        def is_true(quantity: int, compared: str = compared) -> bool:
            value: Any = quantity
            for operation in operations:
                value = operation.apply(value)
            return BINARY[compared](value, bound.value) is True

        if (compared in (">", ">=")) is (direction > 0):
            low = max(low, _first(is_true))
        else:
            high = min(high, _first(lambda quantity: not is_true(quantity)) - 1)
    return low, high


def _first(is_true: Callable[[int], bool]) -> int:
    """The first quantity from which on the test is true; one after the last if it never is."""
    return _QUANTITIES[0] + bisect_left(_QUANTITIES, True, key=is_true)
