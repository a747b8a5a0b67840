"""All functions of the language by folded name, and the functions over lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from pilotage.core.classads.functions_basic import BASIC, LAZY_CHOICE, Function, one, two
from pilotage.core.classads.functions_patterns import PATTERNS
from pilotage.core.classads.functions_programs import PROGRAMS
from pilotage.core.classads.functions_string_lists import STRING_LISTS
from pilotage.core.classads.functions_text import TEXT
from pilotage.core.classads.tree import ERROR, UNDEFINED, Expression, Literal, children
from pilotage.core.classads.values import BINARY, TEXT_PER_STEP, Record

_COMPARISONS: Final = {
    "<": "<",
    "<=": "<=",
    "==": "==",
    "!=": "!=",
    ">=": ">=",
    ">": ">",
    "is": "=?=",
    "isnt": "=!=",
}


def _size(value: Any) -> Any:
    if isinstance(value, str):
        return len(value.encode("utf-8", "surrogatepass"))
    if isinstance(value, tuple):
        return len(value)
    if isinstance(value, Record):
        return len(value.ad.attributes)
    return UNDEFINED if value is UNDEFINED else ERROR


def _member(op: str) -> Function:
    compare = BINARY[op]

    def apply(value: Any, items: Any) -> Any:
        if items is UNDEFINED or (value is UNDEFINED and op == "=="):
            return UNDEFINED
        if value is ERROR and op == "==":
            return ERROR
        if not isinstance(items, tuple) or isinstance(value, tuple | Record):
            return ERROR
        return any(compare(item, value) is True for item in items)

    return two(apply)


def _compare_each(decisive: bool) -> Function:
    """Items are compared from the left until one decides; an undefined comparison decides for False."""

    def apply(arguments: Sequence[Any], world: Any) -> Any:
        if len(arguments) != 3:
            return ERROR
        op, items, value = arguments
        if not isinstance(op, str) or op not in _COMPARISONS or not isinstance(items, tuple):
            known_op = isinstance(op, str) and op in _COMPARISONS
            return UNDEFINED if items is UNDEFINED and known_op else ERROR
        compare = BINARY[_COMPARISONS[op]]
        for item in items:
            answer = compare(item, value)
            if answer is UNDEFINED:
                return False
            if answer is ERROR or answer is decisive:
                return answer
        return not decisive

    return apply


def _over_numbers(answer: Callable[[list[int] | list[float]], Any], *, lone: bool) -> Function:
    """A function of a list of numbers; undefined items are left out, any other is an ERROR.

    With `lone`, an only item is the answer as it stands, a bool too.
    """

    def apply(items: Any) -> Any:
        if not isinstance(items, tuple):
            return UNDEFINED if items is UNDEFINED else ERROR
        known = [item for item in items if item is not UNDEFINED]
        if not all(isinstance(item, int | float) for item in known):
            return ERROR
        if lone and len(known) == 1:
            return known[0]
        if any(type(item) is float for item in known):
            return answer([float(item) for item in known])
        return answer([int(item) for item in known])

    return one(apply)


def _sum(numbers: list[int] | list[float]) -> Any:
    total: Any = 0
    for value in numbers:
        total = BINARY["+"](total, value)
    return total


def _average(numbers: list[int] | list[float]) -> Any:
    total = _sum(numbers)
    return BINARY["/"](float(total), len(numbers)) if numbers and total is not ERROR else total


FUNCTIONS: Final[dict[str, Function]] = {
    **BASIC,
    **TEXT,
    **STRING_LISTS,
    **PATTERNS,
    **PROGRAMS,
    "size": one(_size),
    "member": _member("=="),
    "identicalmember": _member("=?="),
    "anycompare": _compare_each(True),
    "allcompare": _compare_each(False),
    "min": _over_numbers(lambda numbers: min(numbers) if numbers else UNDEFINED, lone=True),
    "max": _over_numbers(lambda numbers: max(numbers) if numbers else UNDEFINED, lone=True),
    "sum": _over_numbers(_sum, lone=True),
    "avg": _over_numbers(_average, lone=False),
}

NAMES: Final = frozenset(FUNCTIONS) | {LAZY_CHOICE}

_PAIRWISE: Final = frozenset({"member", "identicalmember", "anycompare", "allcompare"})
"""Functions that compare one argument with each item of another."""


def work_of_call(function: str, arguments: list[Any]) -> int:
    """The steps that a function takes for these arguments: it goes through each of them once.

    One of `_PAIRWISE` compares an argument with each item of a list.
    """
    steps = _extent(arguments)
    if function in _PAIRWISE:
        length = max((len(value) for value in arguments if isinstance(value, tuple)), default=0)
        steps += length * (
            1 + max((len(v) for v in arguments if isinstance(v, str)), default=0) // TEXT_PER_STEP
        )
    return steps


def _extent(values: list[Any]) -> int:
    """Items, nodes and characters of values, counted in steps."""
    steps = 0
    stack: list[Any] = list(values)
    while stack:
        value = stack.pop()
        if isinstance(value, str):
            steps += len(value) // TEXT_PER_STEP
            continue
        steps += 1
        if isinstance(value, tuple):
            stack.extend(value)
        elif isinstance(value, Record):
            stack.append(value.ad)
        elif isinstance(value, Expression):
            stack.append(value.value) if isinstance(value, Literal) else stack.extend(children(value))
    return steps
