"""Which values an expression can have: a set of bits, one for each type of value.

An expression has *at most* the outcomes in its set. A set that is too large costs a simplification. A set that
is too small makes the residual wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pilotage.core.classads.tree import ERROR as ERROR_VALUE
from pilotage.core.classads.tree import UNDEFINED as UNDEFINED_VALUE
from pilotage.core.classads.tree import Expression, Literal

TRUE: Final = 1
FALSE: Final = 2
INTEGER: Final = 4
REAL: Final = 8
STRING: Final = 16
UNDEFINED: Final = 32
ERROR: Final = 64
LIST: Final = 128
AD: Final = 256

BOOLEAN: Final = TRUE | FALSE
NUMBER: Final = INTEGER | REAL
ANYTHING: Final = 511
_NUMERIC: Final = NUMBER | BOOLEAN
_IMPROPER: Final = STRING | LIST | AD
_DEFINED: Final = ANYTHING & ~(UNDEFINED | ERROR)

_OF_TYPE: Final[dict[type, int]] = {int: INTEGER, float: REAL, str: STRING, tuple: LIST}


def outcome_of(value: Any) -> int:
    """The bit of a constant."""
    if value is True:
        return TRUE
    if value is False:
        return FALSE
    if value is UNDEFINED_VALUE:
        return UNDEFINED
    if value is ERROR_VALUE:
        return ERROR
    return _OF_TYPE.get(type(value), AD)


def _truth_of(outcomes: int) -> int:
    truths = outcomes & (TRUE | FALSE | UNDEFINED | ERROR)
    if outcomes & NUMBER:
        truths |= BOOLEAN
    if outcomes & _IMPROPER:
        truths |= ERROR
    return truths


TRUTHS: Final = tuple(_truth_of(outcomes) for outcomes in range(ANYTHING + 1))
"""For each set of outcomes, the truth values among TRUE, FALSE, UNDEFINED and ERROR."""

NOT: Final = tuple(
    (truths & (UNDEFINED | ERROR)) | (FALSE if truths & TRUE else 0) | (TRUE if truths & FALSE else 0)
    for truths in range(128)
)
"""The truth values of `!x` for each set of truth values of x."""


def of_comparison(left: int, right: int) -> int:
    """Outcomes of `== != < <= > >=`."""
    result = 0
    if (left & STRING and right & STRING) or (left & _NUMERIC and right & _NUMERIC):
        result = BOOLEAN
    return result | _of_absent(left, right) | (ERROR if _can_differ(left, right) else 0)


def _can_differ(left: int, right: int) -> bool:
    """Whether two defined operands can be of types that don't compare."""
    if (left | right) & (LIST | AD):
        return bool(left & _DEFINED and right & _DEFINED)
    return bool((left & STRING and right & _NUMERIC) or (left & _NUMERIC and right & STRING))


def _of_absent(left: int, right: int) -> int:
    result = ERROR if (left | right) & ERROR else 0
    if (left & UNDEFINED and right & ~ERROR) or (right & UNDEFINED and left & ~ERROR):
        result |= UNDEFINED
    return result


def of_identity(left: int, right: int) -> int:
    """Outcomes of `=?=` and `=!=`, of which FALSE stands for "not identical"."""
    result = 0
    if left & right & ~(LIST | AD):
        result = TRUE
    if left & right & (LIST | AD):
        result |= ERROR
    single = left == right and left in (UNDEFINED, ERROR, TRUE, FALSE)
    lists = left == right and left in (LIST, AD)
    return result if single or lists else result | FALSE


def of_arithmetic(op: str, left: int, right: int, right_is_nonzero: bool) -> int:
    """Outcomes of `+ - * / %`. `right_is_nonzero` tells that the right side is a constant other than 0."""
    result = _of_absent(left, right)
    if (left | right) & _IMPROPER and left & _DEFINED and right & _DEFINED:
        result |= ERROR
    whole = bool(left & (INTEGER | BOOLEAN) and right & (INTEGER | BOOLEAN))
    real = bool(left & _NUMERIC and right & _NUMERIC and (left | right) & REAL)
    if whole:
        result |= INTEGER
        if op in "/%" and not right_is_nonzero:
            result |= ERROR
    if real:
        # A sum that is too large is an error.
        result |= ERROR if op == "%" else REAL | ERROR
    return result


def of_bits(left: int, right: int) -> int:
    """Outcomes of `| ^ & << >> >>>`."""
    result = _of_absent(left, right)
    if left & INTEGER and right & INTEGER:
        result |= INTEGER
    if left & _DEFINED and right & _DEFINED and (left | right) & _DEFINED != INTEGER:
        result |= ERROR
    return result


def of_sign(outcomes: int) -> int:
    """Outcomes of `-x` and `+x`."""
    return outcomes & (NUMBER | UNDEFINED | ERROR) | (ERROR if outcomes & (_IMPROPER | BOOLEAN) else 0)


def of_complement(outcomes: int) -> int:
    """Outcomes of `~x`."""
    kept = outcomes & (INTEGER | UNDEFINED | ERROR)
    return kept | (ERROR if outcomes & (_IMPROPER | BOOLEAN | REAL) else 0)


QUESTIONS: Final = {
    "isundefined": UNDEFINED,
    "iserror": ERROR,
    "isstring": STRING,
    "isinteger": INTEGER,
    "isreal": REAL,
    "isboolean": BOOLEAN,
    "islist": LIST,
    "isclassad": AD,
}
"""Functions that ask for the type of their argument, with the outcomes for which they are true."""


def _of_question(asked: int) -> Callable[[list[int]], int]:
    def apply(arguments: list[int]) -> int:
        if len(arguments) != 1:
            return ERROR
        return (TRUE if arguments[0] & asked else 0) | (FALSE if arguments[0] & ~asked else 0)

    return apply


def _of_member(arguments: list[int]) -> int:
    if len(arguments) != 2:
        return ERROR
    item, items = arguments
    result = BOOLEAN if items & LIST else 0
    if (item | items) & UNDEFINED:
        result |= UNDEFINED
    if item & (ERROR | LIST | AD) or items & ~(LIST | UNDEFINED):
        result |= ERROR
    return result


def _of_strings(result: int, least: int, most: int) -> Callable[[list[int]], int]:
    """A function that has a certain result for strings, and anything for other arguments."""

    def apply(arguments: list[int]) -> int:
        if not least <= len(arguments) <= most:
            return ERROR
        return result if all(outcomes == STRING for outcomes in arguments) else ANYTHING

    return apply


def _of_number(result: int) -> Callable[[list[int]], int]:
    """A function that has a certain result for a number or boolean, and anything for another argument."""

    def apply(arguments: list[int]) -> int:
        if len(arguments) != 1:
            return ERROR
        return ANYTHING if arguments[0] & ~_NUMERIC else result

    return apply


def _of_size(arguments: list[int]) -> int:
    if len(arguments) != 1:
        return ERROR
    sized = arguments[0] & (STRING | LIST | AD)
    absent = arguments[0] & UNDEFINED
    return (
        (INTEGER if sized else 0)
        | absent
        | (ERROR if arguments[0] & ~(STRING | LIST | AD | UNDEFINED) else 0)
    )


_OF_CALL: Final[dict[str, Callable[[list[int]], int]]] = {
    **{name: _of_question(asked) for name, asked in QUESTIONS.items()},
    "member": _of_member,
    "size": _of_size,
    "time": lambda arguments: ERROR if arguments else INTEGER | ERROR,
    "random": lambda arguments: NUMBER | ERROR,
    "stringlistmember": _of_strings(BOOLEAN, 2, 3),
    "stringlistimember": _of_strings(BOOLEAN, 2, 3),
    "stringlistsize": _of_strings(INTEGER, 1, 2),
    "regexp": _of_strings(BOOLEAN | ERROR, 2, 3),
    "toupper": _of_strings(STRING, 1, 1),
    "tolower": _of_strings(STRING, 1, 1),
    "strcmp": _of_strings(INTEGER, 2, 2),
    "stricmp": _of_strings(INTEGER, 2, 2),
    "versioncmp": _of_strings(INTEGER, 2, 2),
    **dict.fromkeys(
        ("versiongt", "versionge", "versionlt", "versionle", "versioneq"), _of_strings(BOOLEAN, 2, 2)
    ),
    "version_in_range": _of_strings(BOOLEAN, 3, 3),
    "int": _of_number(INTEGER),
    "floor": _of_number(INTEGER),
    "ceiling": _of_number(INTEGER),
    "ceil": _of_number(INTEGER),
    "round": _of_number(INTEGER),
    "real": _of_number(REAL),
    "bool": _of_number(BOOLEAN),
}


def of_call(function: str, arguments: list[int]) -> int:
    """Outcomes of a function, by its name in lower case; anything where nothing better is known."""
    rule = _OF_CALL.get(function)
    return ANYTHING if rule is None else rule(arguments)


_ORDER: Final = frozenset({"==", "!=", "<", "<=", ">", ">="})
_IDENTITY: Final = frozenset({"=?=", "=!="})
_ARITHMETIC: Final = frozenset({"+", "-", "*", "/", "%"})


def of_operator(op: str, left: int, right: int, operand: Expression) -> int:
    """Outcomes of a binary operator; `operand` is its right side."""
    if op in _ORDER:
        return of_comparison(left, right)
    if op in _IDENTITY:
        outcomes = of_identity(left, right)
        return outcomes if op == "=?=" else NOT[outcomes]
    if op in _ARITHMETIC:
        nonzero = type(operand) is Literal and operand.value not in (0, False)
        return of_arithmetic(op, left, right, nonzero)
    return of_bits(left, right)


def of_logic(op: str, truths: list[int]) -> int:
    """Outcomes of `||` and `&&` for the truth values that each operand can have."""
    decisive, neutral = (TRUE, FALSE) if op == "||" else (FALSE, TRUE)
    result = 0
    passes = True
    is_undefined = False
    for truth in truths:
        result |= truth & (decisive | ERROR)
        is_undefined = is_undefined or bool(truth & UNDEFINED)
        if not truth & neutral:
            passes = False
            if not truth & UNDEFINED:
                # Nothing gets beyond this operand.
                return result
    return result | (neutral if passes else 0) | (UNDEFINED if is_undefined else 0)


def of_unary(op: str, outcomes: int) -> int:
    if op == "!":
        return NOT[TRUTHS[outcomes]]
    return of_complement(outcomes) if op == "~" else of_sign(outcomes)


def of_conditional(test: int, yes: int | None, no: int) -> int:
    """Outcomes of `test ? yes : no`, or of `test ?: no` without `yes`."""
    if yes is None:
        return test & ~UNDEFINED | (no if test & UNDEFINED else 0)
    truths = TRUTHS[test]
    result = truths & (UNDEFINED | ERROR)
    return result | (yes if truths & TRUE else 0) | (no if truths & FALSE else 0)
