"""Arithmetic, comparison and conversion of ClassAd values, as the language defines them.

A value is an int of 64 bits, a float, a str, a bool, UNDEFINED, ERROR, a tuple (a list) or a `Record`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from pilotage.core.classads.printer import scalar_text, unparse
from pilotage.core.classads.tree import (
    ERROR,
    INT_MAX,
    INT_MIN,
    NODES,
    UNDEFINED,
    ClassAd,
    Error,
    Expression,
    ListOf,
    Literal,
    Undefined,
)

TEXT_PER_STEP: Final = 4
"""Characters that are worked through for one step."""

_MASK = 2**64 - 1


class TextTooLong(Exception):
    """A string would grow beyond its limit; the call that made it is ERROR. Never leaves this package."""


class Irreducible(Exception):
    """A value cannot be written outside of its ad. Never leaves this package."""


class Record:
    """An ad as a value: its attributes and the ads around it, in which their names are looked up.

    `top` is the outermost ad, `other` the ad it is matched with.
    """

    __slots__ = ("ad", "other", "parent", "top")

    def __init__(self, ad: ClassAd, parent: Record | None = None) -> None:
        self.ad = ad
        self.parent = parent
        self.top: Record = self if parent is None else parent.top
        self.other: Record | None = None


Value: TypeAlias = int | float | str | bool | Undefined | Error | tuple[Any, ...] | Record
Operation: TypeAlias = Callable[[Any, Any], Any]


def written(value: Any) -> Expression:
    """A partial value as a tree; raises `Irreducible`."""
    if type(value) in NODES:
        return value  # type: ignore[no-any-return]
    if isinstance(value, tuple):
        return ListOf(tuple([written(item) for item in value]))
    if isinstance(value, Record):
        if all(type(member) is Literal for member in value.ad.index.values()):
            return value.ad
        raise Irreducible
    return Literal(value)


_UPPER = str.maketrans("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_LOWER = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")


def upper(text: str) -> str:
    return text.upper() if text.isascii() else text.translate(_UPPER)


def lower(text: str) -> str:
    """Case is folded for ASCII letters alone."""
    return text.lower() if text.isascii() else text.translate(_LOWER)


def wrap(number: int) -> int:
    """An integer brought into 64 bits, as overflowing hardware does."""
    if INT_MIN <= number <= INT_MAX:
        return number
    return ((number - INT_MIN) & _MASK) + INT_MIN


def truncate(number: float) -> int:
    """A real cut to an integer; a value that does not fit becomes the smallest one."""
    if number != number or not -(2.0**63) <= number < 2.0**63:
        return INT_MIN
    return int(number)


def truth(value: Any) -> Any:
    """True, False, UNDEFINED or ERROR: numbers count as true unless zero, all else is ERROR."""
    kind = type(value)
    if kind is bool or value is UNDEFINED:
        return value
    if kind is int or kind is float:
        return bool(value)
    return ERROR


def as_text(value: Any) -> Any:
    """How a value reads inside a string; UNDEFINED and ERROR are unchanged."""
    if isinstance(value, str | Undefined | Error):
        return value
    return nested_text(value)


def nested_text(value: Any) -> str:
    """How a value reads as an item of a list."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return real_text(value)
    if isinstance(value, tuple):
        return "{ " + ",".join(nested_text(item) for item in value) + " }" if value else "{  }"
    if isinstance(value, Record):
        return "[ " + "; ".join(f"{name} = {unparse(member)}" for name, member in value.ad.attributes) + " ]"
    return scalar_text(value)


def real_text(value: float) -> str:
    """Reals read with 16 digits and an exponent: 2.500000000000000E+00."""
    if value == 0:
        return repr(value)
    return f"{value:.15E}" if math.isfinite(value) else scalar_text(value)


_NUMBER_PREFIX = re.compile(
    r"[ \t\n\r\f\v]*([+-]?(?:0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)(?:[pP][+-]?\d+)?"
    r"|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[iI][nN][fF](?:[iI][nN][iI][tT][yY])?|[nN][aA][nN]))"
)


def number_in(text: str) -> float | None:
    """The number a text begins with, None if it begins with none."""
    match = _NUMBER_PREFIX.match(text)
    if match is None:
        return None
    digits = match[1]
    if "x" in digits.lower():
        try:
            return float.fromhex(digits)
        except OverflowError:
            return -math.inf if digits[0] == "-" else math.inf
    return float(digits)


def _numbers(a: Any, b: Any) -> bool:
    return isinstance(a, int | float) and isinstance(b, int | float)


def absent(a: Any, b: Any) -> Any:
    """The result of a strict operator for operands that are not both of its types."""
    if a is ERROR or b is ERROR:
        return ERROR
    if a is UNDEFINED or b is UNDEFINED:
        return UNDEFINED
    return ERROR


def _finite(number: float) -> Any:
    # Only too large is an ERROR; too small is minus infinity. That is how HTCondor has it.
    return ERROR if number == math.inf else number


def _arithmetic(exact: Callable[[int, int], int], real: Callable[[float, float], float]) -> Operation:
    def apply(a: Any, b: Any) -> Any:
        if not _numbers(a, b):
            return absent(a, b)
        if type(a) is float or type(b) is float:
            return _finite(real(float(a), float(b)))
        return wrap(exact(int(a), int(b)))

    return apply


def _divide(a: Any, b: Any) -> Any:
    if not _numbers(a, b):
        return absent(a, b)
    if type(a) is float or type(b) is float:
        if b == 0:
            return _real_by_zero(float(a), float(b))
        return _finite(float(a) / float(b))
    if b == 0:
        return ERROR
    if a == INT_MIN and b == -1:
        return INT_MAX
    return _quotient(int(a), int(b))


def _real_by_zero(a: float, b: float) -> Any:
    if a == 0 or a != a:
        return math.nan
    return _finite(math.copysign(math.inf, a) * math.copysign(1.0, b))


def _quotient(a: int, b: int) -> int:
    # Towards zero, not towards minus infinity as `//`.
    return a // b if (a < 0) == (b < 0) else -(-a // b)


def _modulo(a: Any, b: Any) -> Any:
    if not (isinstance(a, int) and isinstance(b, int)):
        return absent(a, b)
    return ERROR if b == 0 else int(a) - _quotient(int(a), int(b)) * int(b)


def _bits(exact: Callable[[int, int], int]) -> Operation:
    def apply(a: Any, b: Any) -> Any:
        if type(a) is int and type(b) is int:
            return wrap(exact(a, b))
        return absent(a, b)

    return apply


def _shift_right(a: int, b: int) -> int:
    # HTCondor shifts negative numbers bit by bit, hence the whole count: a negative one does nothing.
    if a < 0:
        return a >> min(b, 63) if b > 0 else a
    return a >> (b & 63)


def _shift_right_unsigned(a: int, b: int) -> int:
    # A negative number not shifted at all gives 0, there and hence here.
    return (a & _MASK) >> (b & 63) if a >= 0 or b & 63 else 0


def _comparison(compare: Callable[[Any, Any], bool]) -> Operation:
    def apply(a: Any, b: Any) -> Any:
        kind_a, kind_b = type(a), type(b)
        if kind_a is str and kind_b is str:
            return compare(lower(a), lower(b))
        if kind_a is int and kind_b is int:
            return compare(a, b)
        if _numbers(a, b):
            if kind_a is float or kind_b is float:
                return compare(float(a), float(b))
            return compare(a, b)
        return absent(a, b)

    return apply


def same(a: Any, b: Any) -> Any:
    """`=?=`: equal in type and value, case of strings included; lists and ads can't be compared."""
    if type(a) is not type(b):
        return False
    if isinstance(a, tuple | Record):
        return ERROR
    return bool(a is b or a == b) and a == a


def _different(a: Any, b: Any) -> Any:
    equal = same(a, b)
    return equal if equal is ERROR else not equal


BINARY: Final[dict[str, Operation]] = {
    "+": _arithmetic(lambda a, b: a + b, lambda a, b: a + b),
    "-": _arithmetic(lambda a, b: a - b, lambda a, b: a - b),
    "*": _arithmetic(lambda a, b: a * b, lambda a, b: a * b),
    "/": _divide,
    "%": _modulo,
    "|": _bits(lambda a, b: a | b),
    "^": _bits(lambda a, b: a ^ b),
    "&": _bits(lambda a, b: a & b),
    # Only the low six bits of a shift count, negative ones too.
    "<<": _bits(lambda a, b: a << (b & 63)),
    ">>": _bits(_shift_right),
    ">>>": _bits(_shift_right_unsigned),
    "==": _comparison(lambda a, b: bool(a == b)),
    "!=": _comparison(lambda a, b: bool(a != b)),
    "<": _comparison(lambda a, b: bool(a < b)),
    "<=": _comparison(lambda a, b: bool(a <= b)),
    ">": _comparison(lambda a, b: bool(a > b)),
    ">=": _comparison(lambda a, b: bool(a >= b)),
    "=?=": same,
    "=!=": _different,
}


def _minus(value: Any) -> Any:
    return wrap(-value) if type(value) is int else -value


UNARY: Final[dict[str, Callable[[Any], Any]]] = {
    "-": lambda v: _minus(v) if type(v) in (int, float) else absent(v, v),
    "+": lambda v: v if type(v) in (int, float) else absent(v, v),
    "~": lambda v: ~v if type(v) is int else absent(v, v),
    "!": lambda v: absent(v, v) if not isinstance(t := truth(v), bool) else not t,
}
