"""The values that a term can still have after conditions on it: types, an interval, strings, members of a list."""

from __future__ import annotations

from typing import Any, Final

from pilotage.core.classads.partial.outcomes import (
    BOOLEAN,
    FALSE,
    INTEGER,
    LIST,
    NUMBER,
    REAL,
    STRING,
    TRUE,
    outcome_of,
)
from pilotage.core.classads.values import lower

NEGATED: Final = {
    "==": "!=",
    "!=": "==",
    "<": ">=",
    ">=": "<",
    ">": "<=",
    "<=": ">",
    "=?=": "=!=",
    "=!=": "=?=",
}
"""The operator that is true where an operator is false."""

# From here on an integer and a real that differ can compare as equal.
_EXACT: Final = 2**53
_NUMERIC: Final = NUMBER | BOOLEAN


class Interval:
    """A range of numbers or of strings with excluded points. None is no bound."""

    __slots__ = ("excluded", "high", "high_open", "low", "low_open")

    def __init__(self) -> None:
        self.low: Any = None
        self.low_open = False
        self.high: Any = None
        self.high_open = False
        self.excluded: frozenset[Any] = frozenset()

    def copy(self) -> Interval:
        copied = Interval()
        copied.low, copied.low_open = self.low, self.low_open
        copied.high, copied.high_open = self.high, self.high_open
        copied.excluded = self.excluded
        return copied

    def require(self, op: str, bound: Any) -> None:
        """Keep the values for which `value op bound` is true."""
        if op == "!=":
            self.excluded |= {bound}
            return
        if op in (">", ">=", "==") and (
            self.low is None or bound > self.low or (bound == self.low and op == ">")
        ):
            self.low, self.low_open = bound, op == ">"
        if op in ("<", "<=", "==") and (
            self.high is None or bound < self.high or (bound == self.high and op == "<")
        ):
            self.high, self.high_open = bound, op == "<"

    def contains(self, value: Any) -> bool:
        if self.low is not None and (value < self.low or (value == self.low and self.low_open)):
            return False
        if self.high is not None and (value > self.high or (value == self.high and self.high_open)):
            return False
        return value not in self.excluded

    @property
    def is_empty(self) -> bool:
        if self.low is None or self.high is None or self.low < self.high:
            return False
        return self.low > self.high or not self.contains(self.low)

    @property
    def has_integer(self) -> bool:
        """Whether an integer is left, for bounds that are numbers."""
        if self.low is None or self.high is None:
            return True
        first = int(self.low // 1) + (self.low_open or self.low % 1 != 0)
        last = int(self.high // 1) - (self.high_open and self.high % 1 == 0)
        if last - first >= len(self.excluded):
            return last >= first
        return any(number not in self.excluded for number in range(first, last + 1))


class Domain:
    """The values of one term that all conditions so far allow, or more of them, never fewer.

    `outcomes` are the types that it can have. Numbers have one interval, true counting as 1. Strings have one for
    texts in lower case, as comparisons read them, and `exact` and `not_exact` for comparisons with `=?=`.
    """

    __slots__ = ("exact", "has", "lacks", "not_exact", "numbers", "outcomes", "texts")

    def __init__(self, outcomes: int) -> None:
        self.outcomes = outcomes
        self.numbers: Interval | None = None
        self.texts: Interval | None = None
        self.exact: str | None = None
        self.not_exact: frozenset[Any] = frozenset()
        self.has: frozenset[Any] = frozenset()
        self.lacks: frozenset[Any] = frozenset()

    def copy(self) -> Domain:
        copied = Domain(self.outcomes)
        copied.numbers = self.numbers and self.numbers.copy()
        copied.texts = self.texts and self.texts.copy()
        copied.exact, copied.not_exact = self.exact, self.not_exact
        copied.has, copied.lacks = self.has, self.lacks
        return copied

    def require(self, op: str, value: Any, wanted: bool) -> bool:
        """Keep the values for which the condition is true, or false if not `wanted`. False if none is left.

        Conditions: a comparison with a constant; `truth`, the term taken as a truth value; `member`, that the term
        is a list with this item; `type`, that the term has one of the outcomes in `value`.
        """
        if op == "truth":
            self.outcomes &= (TRUE if wanted else FALSE) | NUMBER
            self._bound("!=" if wanted else "==", 0)
        elif op == "type":
            self.outcomes &= value if wanted else ~value
        elif op == "member":
            self._require_member(value, wanted)
        else:
            self._require_comparison(op if wanted else NEGATED[op], value)
        return self.is_possible

    def _require_member(self, item: Any, wanted: bool) -> None:
        self.outcomes &= LIST
        key = _item_key(item)
        if wanted:
            self.has |= {key}
        else:
            self.lacks |= {key}

    def _require_comparison(self, op: str, value: Any) -> None:
        if op == "=?=":
            self.outcomes &= outcome_of(value)
            if isinstance(value, str):
                self.exact = value if self.exact in (None, value) else None
                self.outcomes &= STRING if self.exact is not None else 0
            elif not isinstance(value, bool) and isinstance(value, int | float):
                self._bound("==", value)
        elif op == "=!=":
            self._exclude(value)
        elif isinstance(value, str):
            self.outcomes &= STRING
            self.texts = self.texts or Interval()
            self.texts.require(op, lower(value))
        elif isinstance(value, int | float):
            self.outcomes &= _NUMERIC
            self._bound(op, int(value) if isinstance(value, bool) else value)
        else:
            # A comparison with undefined, an error or a list is neither true nor false.
            self.outcomes = 0

    def _bound(self, op: str, number: int | float) -> None:
        if -_EXACT < number < _EXACT:
            self.numbers = self.numbers or Interval()
            self.numbers.require(op, number)

    def _exclude(self, value: Any) -> None:
        """Take the value itself away, of its own type and case."""
        outcome = outcome_of(value)
        if outcome not in (INTEGER, REAL, STRING):
            # A type with a single value; lists and ads do not compare.
            self.outcomes &= ~outcome
        elif outcome == STRING:
            self.not_exact |= {value}
        elif self.outcomes & _NUMERIC == outcome:
            self._bound("!=", value)

    @property
    def is_possible(self) -> bool:
        """False only if no value is left."""
        outcomes = self.outcomes
        if outcomes & ~(_NUMERIC | STRING | LIST):
            return True
        if outcomes & _NUMERIC and (self.numbers is None or self._has_number(self.numbers)):
            return True
        if outcomes & STRING and self._has_text():
            return True
        return bool(outcomes & LIST and self.has.isdisjoint(self.lacks))

    def _has_number(self, numbers: Interval) -> bool:
        outcomes = self.outcomes
        return bool(
            (outcomes & REAL and not numbers.is_empty)
            or (outcomes & INTEGER and not numbers.is_empty and numbers.has_integer)
            or (outcomes & TRUE and numbers.contains(1))
            or (outcomes & FALSE and numbers.contains(0))
        )

    def _has_text(self) -> bool:
        if self.exact is not None:
            fits = self.texts is None or self.texts.contains(lower(self.exact))
            return fits and self.exact not in self.not_exact
        return self.texts is None or not self.texts.is_empty


def _item_key(item: Any) -> Any:
    """Items that `member` takes for equal have the same key."""
    return lower(item) if isinstance(item, str) else (int(item) if isinstance(item, bool) else item)
