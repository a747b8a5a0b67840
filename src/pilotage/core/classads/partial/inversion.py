"""Comparisons of arithmetic over one unknown attribute, solved for the attribute.

`other.Memory / 1024 >= 2` is `other.Memory >= 2048`. Arithmetic with constants rises or falls throughout a range of
numbers, rounding included, if nothing overflows. So the evaluator's own operators find the bounds by bisection.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import lru_cache
from math import inf, isfinite, nextafter
from struct import pack, unpack
from typing import Any, Final, NamedTuple, TypeAlias

from pilotage.core.classads.partial import outcomes as of
from pilotage.core.classads.partial.unknowns import LARGEST_QUANTITY, Kind, Unknowns
from pilotage.core.classads.tree import INT_MAX, INT_MIN, Attribute, Chain, Expression, Literal, Unary
from pilotage.core.classads.values import BINARY, UNARY

_ORDER: Final = frozenset({"<", "<=", ">", ">=", "==", "!="})
_LOWER: Final = (">", ">=")
_CAN_OVERFLOW: Final[dict[str, Callable[[int, int], int]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}
# From here on reals are no longer all integers.
_EXACT: Final = 2**53
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


class Numbers(NamedTuple):
    """All integers or all reals of a range, numbered in their order."""

    number: Callable[[int], Any]
    first: int
    last: int


class Range(NamedTuple):
    """The numbers for which a comparison is true: from `low` to `high`, empty if they cross."""

    numbers: Numbers
    low: int
    high: int


def solved(tree: Chain, unknowns: Unknowns) -> list[Expression] | bool | None:
    """Conditions on the attribute alone that hold together exactly where the comparison is true.

    A truth value: the comparison has it everywhere. None: the tree has another form, or the conditions would be many.
    """
    op, right = tree.rest[0]
    if len(tree.rest) > 1 or op not in _ORDER or type(right) is not Literal:
        return None
    if type(right.value) not in (int, float) or type(tree.first) not in (Chain, Unary):
        return None
    term = _operations(tree.first)
    if term is None or not unknowns.is_unknown(term[0]):
        return None
    attribute, operations = term
    outcomes = unknowns.outcomes[attribute.key]
    if outcomes & ~of.NUMBER:
        return None
    unknowns.charge(_STEPS)
    conditions = _conditions(
        operations, op, right, outcomes, unknowns.kinds.get(attribute.key) is Kind.QUANTITY
    )
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
    operations: tuple[Operation, ...], op: str, bound: Literal, outcomes: int, is_quantity: bool
) -> tuple[Condition, ...] | bool | None:
    """The conditions on a number that hold together where the comparison is true, or its constant truth value."""
    assert isinstance(bound.value, int | float)
    ranges: list[Range] = []
    for numbers in _numbers(outcomes, is_quantity):
        direction = _direction(operations, numbers)
        true_range = _true_range(operations, direction, op, bound.value, numbers) if direction else None
        if true_range is None:
            return None
        ranges.append(true_range)
    if all(part.low > part.high for part in ranges):
        return op == "!="
    if any(part.low > part.high for part in ranges):
        return None
    if op in ("==", "!="):
        point = _point(op, ranges)
        if point is not None or op == "!=":
            return None if point is None else (point,)
    conditions = [
        condition
        for is_low in (True, False)
        if any(
            (part.low > part.numbers.first) if is_low else (part.high < part.numbers.last) for part in ranges
        )
        for condition in [_bound(ranges, is_low=is_low, is_strict=op in ("<", ">"))]
    ]
    if any(condition is None for condition in conditions):
        return None
    return tuple(condition for condition in conditions if condition is not None) or True


def _numbers(outcomes: int, is_quantity: bool) -> list[Numbers]:
    most = LARGEST_QUANTITY if is_quantity else INT_MAX
    numbers = []
    if outcomes & of.INTEGER:
        numbers.append(Numbers(int, -most if is_quantity else INT_MIN, most))
    if outcomes & of.REAL:
        largest = _place(float(most) if is_quantity else nextafter(inf, 0.0))
        numbers.append(Numbers(_real, -largest, largest))
    return numbers


def _place(number: float) -> int:
    """The place of a positive real among all reals: 0.0 has place 0."""
    return int(unpack("<q", pack("<d", number))[0])


def _real(place: int) -> float:
    value = float(unpack("<d", pack("<q", abs(place)))[0])
    return value if place >= 0 else -value


def _result(operations: tuple[Operation, ...], value: Any) -> Any:
    for operation in operations:
        value = operation.apply(value)
    return value


def _direction(operations: tuple[Operation, ...], numbers: Numbers) -> int:
    """Whether the result rises (1) or falls (-1) over all numbers; 0: neither, or some overflow."""
    direction = 1
    ends = [numbers.number(numbers.first), numbers.number(numbers.last)]
    for operation in operations:
        direction *= operation.direction
        if any(type(end) is int and operation.wraps(end) for end in ends):
            return 0
        ends = [operation.apply(end) for end in ends]
        if not all(type(end) in (int, float) and isfinite(end) for end in ends):
            return 0
    return direction


def _true_range(
    operations: tuple[Operation, ...], direction: int, op: str, bound: int | float, numbers: Numbers
) -> Range | None:
    """The numbers for which the comparison is true; for `!=` the numbers for which it is false."""
    if bound != bound:
        return None
    low, high = numbers.first, numbers.last
    for compared in (">=", "<=") if op in ("==", "!=") else (op,):
        compare = BINARY[compared]

        def is_true(place: int, compare: Callable[[Any, Any], Any] = compare) -> bool:
            return compare(_result(operations, numbers.number(place)), bound) is True

        if (compared in _LOWER) is (direction > 0):
            low = max(low, _first(is_true, numbers))
        else:
            high = min(high, _first(lambda place: not is_true(place), numbers) - 1)
    return Range(numbers, low, high)


def _first(is_true: Callable[[int], bool], numbers: Numbers) -> int:
    """The first place from which on the test is true; one after the last if it never is."""
    low, high = numbers.first, numbers.last + 1
    while low < high:
        middle = (low + high) // 2
        if is_true(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _point(op: str, ranges: list[Range]) -> Condition | None:
    """The equality (or inequality) of a single number, None if the range has several."""
    if any(part.low != part.high for part in ranges):
        return None
    values = [part.numbers.number(part.low) for part in ranges]
    if any(value != values[0] for value in values):
        return None
    return op, _constant(values[0])


def _bound(ranges: list[Range], *, is_low: bool, is_strict: bool) -> Condition | None:
    """One bound for the integers and the reals; None: their bounds differ."""
    for condition in _candidates(ranges, is_low, is_strict):
        if all(_is_bound(condition, part, is_low) for part in ranges):
            return condition
    return None


def _candidates(ranges: list[Range], is_low: bool, is_strict: bool) -> list[Condition]:
    """Possible bounds, the one that reads best first: as strict as the comparison, and whole."""
    inner, strict = (">=", ">") if is_low else ("<=", "<")
    candidates = []
    for part in ranges:
        value = part.numbers.number(part.low if is_low else part.high)
        outer: int | float
        if type(value) is float:
            outer = nextafter(value, -inf if is_low else inf)
        else:
            outer = value - 1 if is_low else value + 1
        candidates += [(inner, _constant(value)), (strict, _constant(outer))]
    return sorted(
        candidates,
        key=lambda candidate: (type(candidate[1].value) is float, (candidate[0] == strict) is not is_strict),
    )


def _constant(value: int | float) -> Literal:
    if type(value) is float and value.is_integer() and abs(value) < _EXACT:
        return Literal(int(value))
    return Literal(value)


def _is_bound(condition: Condition, part: Range, is_low: bool) -> bool:
    """Whether the condition is true of the whole range, and of no number beyond it on this side."""
    op, bound = condition[0], condition[1].value
    if type(bound) is int and not INT_MIN <= bound <= INT_MAX:
        return False
    edge, beyond = (part.low, part.low - 1) if is_low else (part.high, part.high + 1)
    if BINARY[op](part.numbers.number(edge), bound) is not True:
        return False
    is_end = not part.numbers.first <= beyond <= part.numbers.last
    return is_end or BINARY[op](part.numbers.number(beyond), bound) is False
