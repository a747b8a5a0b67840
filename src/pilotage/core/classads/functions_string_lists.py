"""Functions of ClassAds over lists kept in a string, such as "1, 2, 3"."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from pilotage.core.classads.functions_basic import Function
from pilotage.core.classads.functions_text import cut, unknown_first
from pilotage.core.classads.tree import ERROR, INT_MAX, INT_MIN, UNDEFINED
from pilotage.core.classads.values import Value, lower, number_in, wrap


def items_of(text: str, delimiters: str = " ,") -> list[str]:
    """The non-empty items of a list kept in a string, blanks around them taken off."""
    return [item for piece in cut(text, delimiters) if (item := piece.strip())]


def _member_of(fold: Callable[[str], str]) -> Function:
    def apply(arguments: Sequence[Any], world: Any) -> Any:
        if len(arguments) not in (2, 3):
            return ERROR
        if not all(isinstance(value, str) or value is UNDEFINED for value in arguments):
            return ERROR
        item, items = arguments[:2]
        if isinstance(item, str) and isinstance(items, str):
            delimiters = [value for value in arguments[2:] if isinstance(value, str)]
            return fold(item) in {fold(member) for member in items_of(items, *delimiters)}
        return UNDEFINED if item is items else False

    return apply


def _over_items(answer: Callable[[list[str]], Value]) -> Function:
    def apply(arguments: Sequence[Any], world: Any) -> Any:
        if len(arguments) not in (1, 2) or not all(isinstance(value, str) for value in arguments):
            return ERROR
        return answer(items_of(*arguments))

    return apply


def _over_numbers(none: Value, answer: Callable[[list[int] | list[float]], Value]) -> Function:
    """A function of the numbers in a list: whole numbers, or reals if one item is a real. `none`: without items."""

    def of_items(items: list[str]) -> Value:
        numbers = [_number_of(item) for item in items]
        known = [number for number in numbers if number is not None]
        if len(known) < len(numbers):
            return ERROR
        if not known:
            return none
        if any(isinstance(number, float) for number in known):
            return answer([float(number) for number in known])
        return answer([int(number) for number in known])

    return _over_items(of_items)


def _number_of(item: str) -> int | float | None:
    digits = item[1:] if item[0] in "+-" else item
    if digits.isascii() and digits.isdecimal() and len(digits) < 20 and INT_MIN <= int(item) <= INT_MAX:
        return int(item)
    number = number_in(item)
    return None if number is None else float(number)


def _sum(numbers: list[int] | list[float]) -> Value:
    total = sum(numbers)
    return wrap(total) if isinstance(total, int) else total


def _average(numbers: list[int] | list[float]) -> Value:
    total = sum(numbers)
    if isinstance(total, int):
        # Whole numbers have a whole average, cut towards zero.
        return wrap(abs(total) // len(numbers) * (1 if total >= 0 else -1))
    return total / len(numbers)


def _subset(fold: Callable[[str], str]) -> Function:
    """Whether each item of the first list is in the second one."""

    def apply(arguments: Sequence[Any], world: Any) -> Any:
        if not _are_lists(arguments):
            return ERROR
        first, second = arguments[:2]
        if first is UNDEFINED or second is UNDEFINED:
            return UNDEFINED if first is second else first is UNDEFINED or not _items(arguments, 0)
        return {fold(item) for item in _items(arguments, 0)} <= {fold(item) for item in _items(arguments, 1)}

    return apply


def _intersect(arguments: Sequence[Any], world: Any) -> Any:
    """Whether two lists have an item in common."""
    if len(arguments) not in (2, 3) or not all(isinstance(value, str) for value in arguments):
        return unknown_first(arguments) if len(arguments) in (2, 3) else ERROR
    return not set(_items(arguments, 0)).isdisjoint(_items(arguments, 1))


def _are_lists(arguments: Sequence[Any]) -> bool:
    return len(arguments) in (2, 3) and all(
        isinstance(value, str) or value is UNDEFINED for value in arguments
    )


def _items(arguments: Sequence[Any], place: int) -> list[str]:
    return items_of(arguments[place], *[value for value in arguments[2:] if isinstance(value, str)])


STRING_LISTS: Final[dict[str, Function]] = {
    "stringlistmember": _member_of(str),
    "stringlistimember": _member_of(lower),
    "stringlistsize": _over_items(len),
    "stringlistsum": _over_numbers(0.0, _sum),
    "stringlistavg": _over_numbers(0.0, _average),
    "stringlistmin": _over_numbers(UNDEFINED, min),
    "stringlistmax": _over_numbers(UNDEFINED, max),
    "stringlistsubsetmatch": _subset(str),
    "stringlistisubsetmatch": _subset(lower),
    "stringlistsintersect": _intersect,
}
