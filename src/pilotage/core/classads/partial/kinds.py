"""Kinds of unknown attributes, and kinds that follow from how an expression uses an attribute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final

from pilotage.core.classads.partial.outcomes import (
    ANYTHING,
    BOOLEAN,
    FALSE,
    INTEGER,
    LIST,
    NUMBER,
    STRING,
    TRUE,
    outcome_of,
)
from pilotage.core.classads.tree import (
    Attribute,
    Call,
    Chain,
    Conditional,
    Expression,
    ListOf,
    Literal,
    Logic,
    Unary,
    children,
)

LARGEST_QUANTITY: Final = 2**42
"""It times 2^20 still fits into 64 bits, as for bytes of a size in megabytes."""


class Kind(StrEnum):
    """The declared type of an unknown attribute: every full ad gives it a value of this type.

    INTEGER and NUMBER (an integer or a real) are never infinite and never NaN. STRINGS is a list of strings.
    QUANTITY is an integer of at most `LARGEST_QUANTITY`, negative or not, so that sums with it do not overflow.
    ANY stands for every value, undefined and error included: the attribute may be absent.
    """

    INTEGER = "integer"
    QUANTITY = "quantity"
    NUMBER = "number"
    STRING = "string"
    BOOLEAN = "boolean"
    STRINGS = "strings"
    ANY = "any"


OUTCOMES_OF: Final[Mapping[Kind, int]] = {
    Kind.INTEGER: INTEGER,
    Kind.QUANTITY: INTEGER,
    Kind.NUMBER: NUMBER,
    Kind.STRING: STRING,
    Kind.BOOLEAN: BOOLEAN,
    Kind.STRINGS: LIST,
    Kind.ANY: ANYTHING,
}

_COMPARISONS: Final = frozenset({"==", "!=", "<", "<=", ">", ">="})
_ARITHMETIC: Final = frozenset({"+", "-", "*", "/", "%"})
_BITS: Final = frozenset({"|", "^", "&", "<<", ">>", ">>>"})
_IDENTITY: Final = frozenset({"=?=", "=!="})
# The kind of each argument of a function; None says nothing about it. A call not named here makes it ANY.
_ARGUMENTS: Final[Mapping[str, tuple[Kind | None, ...]]] = {
    "regexp": (Kind.STRING, Kind.STRING, Kind.STRING),
    "stringlistmember": (Kind.STRING, Kind.STRING, Kind.STRING),
    "stringlistimember": (Kind.STRING, Kind.STRING, Kind.STRING),
    "stringlistsize": (Kind.STRING, Kind.STRING),
    "substr": (Kind.STRING, Kind.INTEGER, Kind.INTEGER),
    "floor": (Kind.NUMBER,),
    "ceiling": (Kind.NUMBER,),
    "ceil": (Kind.NUMBER,),
    "round": (Kind.NUMBER,),
    "quantize": (Kind.NUMBER, None),
    "pow": (Kind.NUMBER, Kind.NUMBER),
    "toupper": (Kind.STRING,),
    "tolower": (Kind.STRING,),
    "strcmp": (Kind.STRING, Kind.STRING),
    "stricmp": (Kind.STRING, Kind.STRING),
    "versioncmp": (Kind.STRING, Kind.STRING),
    "versiongt": (Kind.STRING, Kind.STRING),
    "versionge": (Kind.STRING, Kind.STRING),
    "versionlt": (Kind.STRING, Kind.STRING),
    "versionle": (Kind.STRING, Kind.STRING),
    "versioneq": (Kind.STRING, Kind.STRING),
    "version_in_range": (Kind.STRING, Kind.STRING, Kind.STRING),
    "strcat": (None,) * 20,
}


def kinds_by_use(expression: Expression, unknown: Mapping[str, Attribute]) -> dict[str, Kind]:
    """The kind of each unknown attribute as the expression uses it; keys are names in lower case.

    Compared with a number or calculated with, it is a number. Strings and booleans follow in the same way, and
    the second argument of `member` is a list of strings. Uses that disagree make it ANY. So does each use that
    has a defined value for an absent attribute, such as `isUndefined` and `=?=`: it asks for absence.
    """
    uses: dict[str, Kind] = {}
    for attribute, kind in _uses(expression, unknown):
        known = uses.setdefault(attribute, kind)
        if known is not kind:
            numeric = {known, kind} == {Kind.INTEGER, Kind.NUMBER}
            uses[attribute] = Kind.INTEGER if numeric else Kind.ANY
    return {name: uses.get(name, Kind.ANY) for name in unknown}


def _uses(tree: Expression, unknown: Mapping[str, Attribute]) -> Iterator[tuple[str, Kind]]:
    """Each unknown attribute with a kind, once for each use that tells one."""
    stack: list[tuple[Expression, Kind | None]] = [(tree, Kind.BOOLEAN)]
    while stack:
        node, kind = stack.pop()
        if type(node) is Attribute:
            if unknown.get(node.key) is node:
                if kind is not None:
                    yield node.key, kind
                continue
            # A selection from an unknown attribute.
            stack.extend((below, Kind.ANY) for below in children(node))
        else:
            stack.extend(_kinds_below(node, kind))


def _kinds_below(node: Expression, kind: Kind | None) -> list[tuple[Expression, Kind | None]]:
    """The operands of a node, each with the kind that the node asks of it."""
    match node:
        case Logic(operands=operands):
            return [(operand, Kind.BOOLEAN) for operand in operands]
        case Unary(op=op, operand=operand):
            return [(operand, {"!": Kind.BOOLEAN, "~": Kind.INTEGER}.get(op, Kind.NUMBER))]
        case Conditional(test=test, yes=yes, no=no):
            return (
                [(test, Kind.ANY), (no, kind)]
                if yes is None
                else [(test, Kind.BOOLEAN), (yes, kind), (no, kind)]
            )
        case Chain():
            return _kinds_in_chain(node)
        case Call():
            return _kinds_of_arguments(node)
        case _:
            return [(below, Kind.ANY) for below in children(node)]


def _kinds_in_chain(node: Chain) -> list[tuple[Expression, Kind | None]]:
    op, right = node.rest[0]
    pairs = [(node.first, _kind_beside(op, right)), (right, _kind_beside(op, node.first))]
    # The left side of each further operator is a result.
    return pairs + [
        (right, None if op in _COMPARISONS else _kind_beside(op, right)) for op, right in node.rest[1:]
    ]


def _kind_beside(op: str, other: Expression) -> Kind | None:
    if op in _IDENTITY:
        return Kind.ANY
    if op in _ARITHMETIC:
        return Kind.NUMBER
    if op in _BITS:
        return Kind.INTEGER
    return _kind_like(other)


def _kind_like(other: Expression) -> Kind | None:
    """The kind of an attribute that is compared with this."""
    if not isinstance(other, Literal):
        return Kind.NUMBER if isinstance(other, Chain) and other.rest[0][0] in _ARITHMETIC else None
    outcome = outcome_of(other.value)
    if outcome & NUMBER:
        return Kind.NUMBER
    if outcome & (TRUE | FALSE):
        return Kind.BOOLEAN
    return Kind.STRING if outcome & STRING else None


def _kinds_of_arguments(call: Call) -> list[tuple[Expression, Kind | None]]:
    if call.key == "member" and len(call.arguments) == 2:
        item, items = call.arguments
        return [(item, _kind_of_items(items)), (items, Kind.STRINGS)]
    kinds = _ARGUMENTS.get(call.key, ())
    if len(kinds) < len(call.arguments):
        return [(argument, Kind.ANY) for argument in call.arguments]
    return list(zip(call.arguments, kinds, strict=False))


def _kind_of_items(items: Expression) -> Kind | None:
    kinds = {_kind_like(item) for item in items.items} if isinstance(items, ListOf) else set()
    return kinds.pop() if len(kinds) == 1 else None
