"""Functions of ClassAds over strings: parts, case, versions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Any, Final

from pilotage.core.classads.functions_basic import Function, one, two
from pilotage.core.classads.tree import ERROR, UNDEFINED
from pilotage.core.classads.values import TextTooLong, Value, as_text, lower, upper

MAX_STRING: Final = 1024 * 1024


def bounded(parts: Iterable[str], separator: str = "") -> str:
    """The parts joined; raises `TextTooLong` before it would take much memory."""
    joined, size = [], 0
    for part in parts:
        size += len(part) + len(separator)
        if size > MAX_STRING:
            raise TextTooLong
        joined.append(part)
    return separator.join(joined)


def _strcat(arguments: Sequence[Any], world: Any) -> Any:
    texts = [as_text(value) for value in arguments]
    plain = [text for text in texts if isinstance(text, str)]
    if len(plain) == len(texts):
        return bounded(plain)
    return next(text for text in texts if not isinstance(text, str))


def unknown_first(values: Iterable[Any]) -> Any:
    """The result of most functions for arguments they can't take: UNDEFINED if one is, else ERROR."""
    return UNDEFINED if any(value is UNDEFINED for value in values) else ERROR


def absent_of(values: Iterable[Any]) -> Any:
    """ERROR if one is, else UNDEFINED if one is, else ERROR for the wrong type."""
    items = list(values)
    return ERROR if any(value is ERROR for value in items) else unknown_first(items)


def _join(arguments: Sequence[Any], world: Any) -> Any:
    """`join(separator, items...)`, `join(separator, {items})` or `join({items})`; undefined items are left out."""
    if not arguments:
        return ""
    if isinstance(arguments[-1], tuple) and len(arguments) <= 2:
        separator, items = (arguments[0] if len(arguments) == 2 else UNDEFINED), list(arguments[-1])
    else:
        separator, items = arguments[0], list(arguments[1:])
    if all(item is UNDEFINED for item in items or arguments[:1]) and separator is not ERROR:
        return UNDEFINED
    between = as_text(separator)
    texts = [as_text(item) for item in items]
    if between is ERROR or any(text is ERROR for text in texts):
        return ERROR
    return bounded((t for t in texts if isinstance(t, str)), between if isinstance(between, str) else "")


def _substr(arguments: Sequence[Any], world: Any) -> Any:
    if len(arguments) not in (2, 3):
        return ERROR
    text, rest = arguments[0], list(arguments[1:])
    if not isinstance(text, str) or any(type(value) is not int for value in rest):
        return unknown_first(arguments)
    size = len(text)
    start = max(0, size + rest[0]) if rest[0] < 0 else min(rest[0], size)
    length = rest[1] if len(rest) == 2 else size
    end = size + length if length < 0 else start + length
    return text[start : max(start, end)]


def _mapped(convert: Callable[[str], str]) -> Function:
    def apply(value: Any) -> Any:
        text = as_text(value)
        return convert(text) if isinstance(text, str) else text

    return one(apply)


def _compared(order: Callable[[str, str], int], answer: Callable[[int], Value]) -> Function:
    def apply(a: Any, b: Any) -> Any:
        left, right = as_text(a), as_text(b)
        if isinstance(left, str) and isinstance(right, str):
            return answer(order(left, right))
        return unknown_first((left, right))

    return two(apply)


def _order(a: str, b: str) -> int:
    left, right = a.encode("utf-8", "surrogatepass"), b.encode("utf-8", "surrogatepass")
    return (left > right) - (left < right)


class _Digits(Enum):
    """The run of digits in which two texts are alike so far."""

    NONE = "none"
    WHOLE = "whole"
    ZEROS = "zeros"
    """Only leading zeros."""
    FRACTION = "fraction"
    """Digits after leading zeros."""


def version_order(a: str, b: str) -> int:
    """Runs of digits compare as numbers, with leading zeros as fractions, all else by character.

    So 1.9 < 1.10, and 1.01 < 1.010 < 1.09 < 1.1, as strverscmp(3) of the GNU library has them.
    """
    run = _Digits.NONE
    for place, (x, y) in enumerate(zip(a + _END, b + _END, strict=False)):
        if x != y:
            return _order_after(run, a[place:], b[place:])
        run = _run_after(run, x)
    return 0


_END = "\0"
_DIGITS = frozenset("0123456789")


def _run_after(run: _Digits, letter: str) -> _Digits:
    if letter not in _DIGITS:
        return _Digits.NONE
    if run in (_Digits.WHOLE, _Digits.FRACTION):
        return run
    if letter == "0":
        return _Digits.ZEROS
    return _Digits.WHOLE if run is _Digits.NONE else _Digits.FRACTION


def _order_after(run: _Digits, a: str, b: str) -> int:
    """The order of the rests of two texts, which differ in their first character."""
    digits = a[:1] in _DIGITS, b[:1] in _DIGITS
    if run in (_Digits.WHOLE, _Digits.ZEROS) and digits[0] is not digits[1]:
        # A whole number grows with each digit. After zeros alone, a further digit makes a smaller fraction.
        return 1 if digits[0] is (run is _Digits.WHOLE) else -1
    numbers = run is _Digits.NONE and "0" not in (a[:1], b[:1])
    if all(digits) and (numbers or run is _Digits.WHOLE):
        left, right = (len(rest) - len(rest.lstrip("0123456789")) for rest in (a, b))
        if left != right:
            return 1 if left > right else -1
    return _order(a[:1], b[:1])


def _version_in_range(arguments: Sequence[Any], world: Any) -> Any:
    if len(arguments) != 3:
        return ERROR
    texts = [as_text(value) for value in arguments]
    if not all(isinstance(text, str) for text in texts):
        return unknown_first(texts[1:])
    version, low, high = (str(text) for text in texts)
    return version_order(low, version) <= 0 <= version_order(high, version)


def cut(text: str, delimiters: str) -> list[str]:
    """The pieces of a text between any two of `delimiters`, empty ones included."""
    if not delimiters:
        return [text]
    first = delimiters[0]
    return text.translate(str.maketrans(delimiters, first * len(delimiters))).split(first)


def _split(arguments: Sequence[Any], world: Any) -> Any:
    """Items between delimiters; blanks around an item belong to the delimiter if blanks are delimiters."""
    if len(arguments) not in (1, 2) or not all(isinstance(value, str) for value in arguments):
        return ERROR
    text, delimiters = arguments[0], arguments[1] if len(arguments) == 2 else ", "
    hard = "".join(mark for mark in delimiters if not mark.isspace())
    soft = "".join(mark for mark in delimiters if mark.isspace())
    text = text.strip(soft) if soft else text
    items: list[str] = []
    for piece in cut(text, hard):
        items += [item for item in cut(piece, soft) if item or not soft] or [""]
    # A delimiter at either end separates nothing.
    return tuple(items[not items[0] : len(items) - (len(items) > 1 and not items[-1])])


def _parted(alone: Callable[[str], tuple[str, str]]) -> Function:
    """The two parts around the first `@`. `alone`: the parts of a text without one."""

    def apply(text: Any) -> Any:
        if not isinstance(text, str):
            return ERROR
        first, mark, rest = text.partition("@")
        return (first, rest) if mark else alone(text)

    return one(apply)


TEXT: Final[dict[str, Function]] = {
    "strcat": _strcat,
    "join": _join,
    "substr": _substr,
    "toupper": _mapped(upper),
    "tolower": _mapped(lower),
    "strcmp": _compared(_order, lambda sign: sign),
    "stricmp": _compared(lambda a, b: _order(lower(a), lower(b)), lambda sign: sign),
    "versioncmp": _compared(lambda a, b: version_order(a, b), lambda sign: sign),
    "versiongt": _compared(lambda a, b: version_order(a, b), lambda sign: sign > 0),
    "versionge": _compared(lambda a, b: version_order(a, b), lambda sign: sign >= 0),
    "versionlt": _compared(lambda a, b: version_order(a, b), lambda sign: sign < 0),
    "versionle": _compared(lambda a, b: version_order(a, b), lambda sign: sign <= 0),
    "versioneq": _compared(lambda a, b: version_order(a, b), lambda sign: sign == 0),
    "version_in_range": _version_in_range,
    "split": _split,
    "splitusername": _parted(lambda text: (text, "")),
    "splitslotname": _parted(lambda text: ("", text)),
}
