"""Which truth values of an expression its surroundings tell apart.

A match asks whether Requirements are true. So false, undefined and error are the same to it, and mostly also to the
operands below. A *context* names the truth values that are the same: an expression can be replaced by any other
that differs from it only in these.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final, TypeVar

from pilotage.core.classads.partial.outcomes import (
    ANYTHING,
    ERROR,
    FALSE,
    TRUE,
    TRUTHS,
    UNDEFINED,
    outcome_of,
)
from pilotage.core.classads.tree import ERROR as ERROR_VALUE
from pilotage.core.classads.tree import UNDEFINED as UNDEFINED_VALUE
from pilotage.core.classads.tree import Literal


class Context(IntEnum):
    """The truth values told apart; the others count as the value in parentheses."""

    VALUE = 0
    """All values, numbers apart from truth values."""
    MATCH = 1
    """True itself, and all else (false): a number is not true here."""
    TRUTH = 2
    """All four truth values; a number counts as one."""
    IS_TRUE = 3
    """True, and all else (false)."""
    IS_FALSE = 4
    """False, and all else (true)."""
    TRUE_OR_ERROR = 5
    """True, error, and all else (false)."""
    FALSE_OR_ERROR = 6
    """False, error, and all else (true)."""
    TEST = 7
    """True, false, and all else (undefined)."""


_Item = TypeVar("_Item")
_T, _F, _U, _E = TRUE, FALSE, UNDEFINED, ERROR
_STANDS_FOR: Final[dict[Context, dict[int, int]]] = {
    Context.VALUE: {_T: _T, _F: _F, _U: _U, _E: _E},
    Context.MATCH: {_T: _T, _F: _F, _U: _F, _E: _F},
    Context.TRUTH: {_T: _T, _F: _F, _U: _U, _E: _E},
    Context.IS_TRUE: {_T: _T, _F: _F, _U: _F, _E: _F},
    Context.IS_FALSE: {_T: _T, _F: _F, _U: _T, _E: _T},
    Context.TRUE_OR_ERROR: {_T: _T, _F: _F, _U: _F, _E: _E},
    Context.FALSE_OR_ERROR: {_T: _T, _F: _F, _U: _T, _E: _E},
    Context.TEST: {_T: _T, _F: _F, _U: _U, _E: _U},
}
LITERALS: Final = {
    TRUE: Literal(True),
    FALSE: Literal(False),
    UNDEFINED: Literal(UNDEFINED_VALUE),
    ERROR: Literal(ERROR_VALUE),
}


def _decided(context: Context, truths: int) -> int:
    """The truth value that all of these count as, 0 if they differ."""
    values = {stands for truth, stands in _STANDS_FOR[context].items() if truths & truth}
    return values.pop() if len(values) == 1 else 0


TRUE_SIDE: Final = (Context.IS_TRUE, Context.MATCH)


def _by_context(table: dict[Context, _Item]) -> tuple[_Item, ...]:
    return tuple(table[context] for context in Context)


_OR: Final = {
    Context.VALUE: (Context.TRUTH, Context.TRUTH),
    Context.MATCH: (Context.TRUE_OR_ERROR, Context.IS_TRUE),
    Context.TRUTH: (Context.TRUTH, Context.TRUTH),
    Context.IS_TRUE: (Context.TRUE_OR_ERROR, Context.IS_TRUE),
    Context.IS_FALSE: (Context.IS_FALSE, Context.IS_FALSE),
    Context.TRUE_OR_ERROR: (Context.TRUE_OR_ERROR, Context.TRUE_OR_ERROR),
    Context.FALSE_OR_ERROR: (Context.TRUTH, Context.FALSE_OR_ERROR),
    Context.TEST: (Context.TRUTH, Context.TEST),
}
_AND: Final = {
    Context.VALUE: (Context.TRUTH, Context.TRUTH),
    Context.MATCH: (Context.IS_TRUE, Context.IS_TRUE),
    Context.TRUTH: (Context.TRUTH, Context.TRUTH),
    Context.IS_TRUE: (Context.IS_TRUE, Context.IS_TRUE),
    Context.IS_FALSE: (Context.FALSE_OR_ERROR, Context.IS_FALSE),
    Context.TRUE_OR_ERROR: (Context.TRUTH, Context.TRUE_OR_ERROR),
    Context.FALSE_OR_ERROR: (Context.FALSE_OR_ERROR, Context.FALSE_OR_ERROR),
    Context.TEST: (Context.TRUTH, Context.TEST),
}
OF_OPERANDS: Final = {"||": _by_context(_OR), "&&": _by_context(_AND)}
"""The contexts of all operands but the last, and of the last, by operator and context of the whole."""

BELOW_NOT: Final = _by_context(
    {
        Context.VALUE: Context.TRUTH,
        Context.MATCH: Context.IS_FALSE,
        Context.TRUTH: Context.TRUTH,
        Context.IS_TRUE: Context.IS_FALSE,
        Context.IS_FALSE: Context.IS_TRUE,
        Context.TRUE_OR_ERROR: Context.FALSE_OR_ERROR,
        Context.FALSE_OR_ERROR: Context.TRUE_OR_ERROR,
        Context.TEST: Context.TEST,
    }
)

OF_TEST: Final = tuple(
    Context.TEST
    if context in (Context.MATCH, Context.IS_TRUE, Context.IS_FALSE, Context.TEST)
    else Context.TRUTH
    for context in Context
)
"""The context of the test of a conditional, by the context of the whole."""


def _decision(outcomes: int, context: Context) -> Literal | None:
    if context is Context.MATCH:
        outcomes = outcomes & TRUE | (FALSE if outcomes & ~TRUE else 0)
    elif context is Context.VALUE:
        return LITERALS.get(outcomes)
    return LITERALS.get(_decided(context, TRUTHS[outcomes]))


DECISIONS: Final = tuple(
    tuple(_decision(outcomes, context) for outcomes in range(ANYTHING + 1)) for context in Context
)
"""For a context and a set of outcomes: the constant that stands for every one of them; None if they differ."""


def constant_in(value: Any, context: Context) -> Literal:
    """A constant as it counts in a context."""
    if context is Context.VALUE:
        return Literal(value)
    decided = DECISIONS[context][outcome_of(value)] if type(value) not in (int, float) else None
    if decided is not None:
        return decided
    return LITERALS[FALSE if context is Context.MATCH or not value else TRUE]
