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


class TruthContext(IntEnum):
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
_STANDS_FOR: Final[dict[TruthContext, dict[int, int]]] = {
    TruthContext.VALUE: {_T: _T, _F: _F, _U: _U, _E: _E},
    TruthContext.MATCH: {_T: _T, _F: _F, _U: _F, _E: _F},
    TruthContext.TRUTH: {_T: _T, _F: _F, _U: _U, _E: _E},
    TruthContext.IS_TRUE: {_T: _T, _F: _F, _U: _F, _E: _F},
    TruthContext.IS_FALSE: {_T: _T, _F: _F, _U: _T, _E: _T},
    TruthContext.TRUE_OR_ERROR: {_T: _T, _F: _F, _U: _F, _E: _E},
    TruthContext.FALSE_OR_ERROR: {_T: _T, _F: _F, _U: _T, _E: _E},
    TruthContext.TEST: {_T: _T, _F: _F, _U: _U, _E: _U},
}
LITERALS: Final = {
    TRUE: Literal(True),
    FALSE: Literal(False),
    UNDEFINED: Literal(UNDEFINED_VALUE),
    ERROR: Literal(ERROR_VALUE),
}


def _decided(context: TruthContext, truths: int) -> int:
    """The truth value that all of these count as, 0 if they differ."""
    values = {stands for truth, stands in _STANDS_FOR[context].items() if truths & truth}
    return values.pop() if len(values) == 1 else 0


TRUE_SIDE: Final = (TruthContext.IS_TRUE, TruthContext.MATCH)


def _by_context(table: dict[TruthContext, _Item]) -> tuple[_Item, ...]:
    return tuple(table[context] for context in TruthContext)


_OR: Final = {
    TruthContext.VALUE: (TruthContext.TRUTH, TruthContext.TRUTH),
    TruthContext.MATCH: (TruthContext.TRUE_OR_ERROR, TruthContext.IS_TRUE),
    TruthContext.TRUTH: (TruthContext.TRUTH, TruthContext.TRUTH),
    TruthContext.IS_TRUE: (TruthContext.TRUE_OR_ERROR, TruthContext.IS_TRUE),
    TruthContext.IS_FALSE: (TruthContext.IS_FALSE, TruthContext.IS_FALSE),
    TruthContext.TRUE_OR_ERROR: (TruthContext.TRUE_OR_ERROR, TruthContext.TRUE_OR_ERROR),
    TruthContext.FALSE_OR_ERROR: (TruthContext.TRUTH, TruthContext.FALSE_OR_ERROR),
    TruthContext.TEST: (TruthContext.TRUTH, TruthContext.TEST),
}
_AND: Final = {
    TruthContext.VALUE: (TruthContext.TRUTH, TruthContext.TRUTH),
    TruthContext.MATCH: (TruthContext.IS_TRUE, TruthContext.IS_TRUE),
    TruthContext.TRUTH: (TruthContext.TRUTH, TruthContext.TRUTH),
    TruthContext.IS_TRUE: (TruthContext.IS_TRUE, TruthContext.IS_TRUE),
    TruthContext.IS_FALSE: (TruthContext.FALSE_OR_ERROR, TruthContext.IS_FALSE),
    TruthContext.TRUE_OR_ERROR: (TruthContext.TRUTH, TruthContext.TRUE_OR_ERROR),
    TruthContext.FALSE_OR_ERROR: (TruthContext.FALSE_OR_ERROR, TruthContext.FALSE_OR_ERROR),
    TruthContext.TEST: (TruthContext.TRUTH, TruthContext.TEST),
}
OF_OPERANDS: Final = {"||": _by_context(_OR), "&&": _by_context(_AND)}
"""The contexts of all operands but the last, and of the last, by operator and context of the whole."""

BELOW_NOT: Final = _by_context(
    {
        TruthContext.VALUE: TruthContext.TRUTH,
        TruthContext.MATCH: TruthContext.IS_FALSE,
        TruthContext.TRUTH: TruthContext.TRUTH,
        TruthContext.IS_TRUE: TruthContext.IS_FALSE,
        TruthContext.IS_FALSE: TruthContext.IS_TRUE,
        TruthContext.TRUE_OR_ERROR: TruthContext.FALSE_OR_ERROR,
        TruthContext.FALSE_OR_ERROR: TruthContext.TRUE_OR_ERROR,
        TruthContext.TEST: TruthContext.TEST,
    }
)

OF_TEST: Final = tuple(
    TruthContext.TEST
    if context in (TruthContext.MATCH, TruthContext.IS_TRUE, TruthContext.IS_FALSE, TruthContext.TEST)
    else TruthContext.TRUTH
    for context in TruthContext
)
"""The context of the test of a conditional, by the context of the whole."""


def _decision(outcomes: int, context: TruthContext) -> Literal | None:
    if context is TruthContext.MATCH:
        outcomes = outcomes & TRUE | (FALSE if outcomes & ~TRUE else 0)
    elif context is TruthContext.VALUE:
        return LITERALS.get(outcomes)
    return LITERALS.get(_decided(context, TRUTHS[outcomes]))


DECISIONS: Final = tuple(
    tuple(_decision(outcomes, context) for outcomes in range(ANYTHING + 1)) for context in TruthContext
)
"""For a context and a set of outcomes: the constant that stands for every one of them; None if they differ."""


def constant_in(value: Any, context: TruthContext) -> Literal:
    """A constant as it counts in a context."""
    if context is TruthContext.VALUE:
        return Literal(value)
    decided = DECISIONS[context][outcome_of(value)] if type(value) not in (int, float) else None
    if decided is not None:
        return decided
    return LITERALS[FALSE if context is TruthContext.MATCH or not value else TRUE]
