"""Trees of ClassAds as text, to be read again or to be compared."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from pilotage.core.classads.lexer import RESERVED
from pilotage.core.classads.tree import (
    LEVEL,
    LEVEL_CONDITIONAL,
    LEVEL_ELVIS,
    LEVEL_POSTFIX,
    LEVEL_UNARY,
    Attribute,
    Call,
    Chain,
    ClassAd,
    Conditional,
    Error,
    Expression,
    ListOf,
    Literal,
    Logic,
    Scalar,
    Subscript,
    Unary,
    Undefined,
)

_MOST_INDENTED: Final = 20
"""Ads within each other; deeper ones stand in one line."""

_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_SPECIAL = re.compile(r"[\x00-\x1f\x7f\"'\\]")
_ESCAPES: Final = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\b": "\\b", "\f": "\\f", "\\": "\\\\"}


def unparse(tree: Expression) -> str:
    """Text that parses to an equal tree, with as few parentheses as that needs."""
    return _Printer().text(tree)


def canonical(tree: Expression) -> str:
    """Text that is equal for expressions that differ only in how they are written.

    Case of attribute and function names, spacing, needless parentheses and the order of attributes in an ad
    are folded. Strings are kept: `=?=` tells their case apart. The text parses to an expression of the same
    value in every context.
    """
    return _Canonical().text(tree)


def indented(ad: ClassAd) -> str:
    """The text of `unparse`, with each attribute of the ad, and of ads that are its values, in a line of its own."""
    return "\n".join(_lines(ad, 1))


def _lines(ad: ClassAd, depth: int) -> Iterator[str]:
    printer, margin = _Printer(), "  " * depth
    yield "["
    for name, value in ad.attributes:
        before = f"{margin}{printer.attribute(name)} = "
        if isinstance(value, ClassAd) and value.attributes and depth < _MOST_INDENTED:
            first, *rest = _lines(value, depth + 1)
            yield before + first
            yield from rest[:-1]
            yield f"{rest[-1]};"
        else:
            yield f"{before}{unparse(value)};"
    yield "  " * (depth - 1) + "]"


def quote(text: str) -> str:
    """A ClassAd string constant of this text."""
    return '"' + _SPECIAL.sub(lambda match: _escaped(match[0], '"'), text) + '"'


def scalar_text(value: Scalar) -> str:
    """A constant as it is written. Infinities and NaN have no constant: they are written as a call."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, Undefined):
        return "undefined"
    if isinstance(value, Error):
        return "error"
    if isinstance(value, float):
        return _real(value)
    return str(value)


def _real(value: float) -> str:
    if value != value:
        return 'real("NaN")'
    if value in (float("inf"), float("-inf")):
        return 'real("INF")' if value > 0 else 'real("-INF")'
    return repr(value)


def _escaped(char: str, quote_char: str) -> str:
    if char in "\"'":
        return "\\" + char if char == quote_char else char
    return _ESCAPES.get(char) or f"\\{ord(char):03o}"


class _Printer:
    """Prints a node for a place that binds at a level; looser nodes are put in parentheses."""

    def text(self, node: Expression, level: int = LEVEL_CONDITIONAL) -> str:
        own, text = self.render(node)
        return text if own >= level else f"({text})"

    def render(self, node: Expression) -> tuple[int, str]:
        match node:
            case Literal(value=value):
                return self.literal(value)
            case Attribute() | Subscript() | Call():
                return LEVEL_POSTFIX, self.postfix(node)
            case Unary(op=op, operand=operand):
                return LEVEL_UNARY, op + self.signed(operand)
            case Logic() | Chain():
                return self.chain(node)
            case Conditional(test=test, yes=yes, no=no):
                if yes is None:
                    return LEVEL_ELVIS, f"{self.text(test, LEVEL_ELVIS)} ?: {self.text(no, LEVEL_POSTFIX)}"
                return LEVEL_CONDITIONAL, f"{self.text(test, 1)} ? {self.text(yes, 1)} : {self.text(no)}"
            case ListOf(items=items):
                return LEVEL_POSTFIX, "{" + ", ".join(self.text(item) for item in items) + "}"
            case ClassAd(attributes=attributes):
                return LEVEL_POSTFIX, self.record(attributes)

    def literal(self, value: Scalar) -> tuple[int, str]:
        text = scalar_text(value)
        return LEVEL_UNARY if text[0] == "-" else LEVEL_POSTFIX, text

    def postfix(self, node: Attribute | Subscript | Call) -> str:
        if isinstance(node, Subscript):
            return f"{self.base(node.base)}[{self.text(node.index)}]"
        if isinstance(node, Call):
            return f"{self.name(node.name)}({', '.join(self.text(argument) for argument in node.arguments)})"
        before = "" if node.base is None else self.base(node.base)
        return f"{before}{'.' if before or node.absolute else ''}{self.attribute(node.name)}"

    def base(self, node: Expression) -> str:
        # A number before a dot would be read as a malformed real.
        bare_number = isinstance(node, Literal) and isinstance(node.value, int | float)
        text = self.text(node, LEVEL_POSTFIX)
        return f"({text})" if bare_number and text[0] != "(" else text

    def signed(self, operand: Expression) -> str:
        # `- 5` and `-5` are read as one constant, and `--a` is hard on the eye.
        text = self.text(operand, LEVEL_UNARY)
        return f"({text})" if isinstance(operand, Unary | Literal | Conditional) and text[0] != "(" else text

    def chain(self, node: Logic | Chain) -> tuple[int, str]:
        if isinstance(node, Logic):
            first, rest = node.operands[0], [(node.op, operand) for operand in node.operands[1:]]
        else:
            first, rest = node.first, list(node.rest)
        level = LEVEL[rest[0][0]]
        parts = [self.leading(first, level)]
        for op, operand in rest:
            parts += [op, self.text(operand, level + 1)]
        return level, " ".join(parts)

    def leading(self, node: Expression, level: int) -> str:
        return self.text(node, level + 1)

    def record(self, attributes: tuple[tuple[str, Expression], ...]) -> str:
        return (
            "["
            + "; ".join(f"{self.attribute(name)} = {self.text(value)}" for name, value in attributes)
            + "]"
        )

    def name(self, name: str) -> str:
        return name

    def attribute(self, name: str) -> str:
        name = self.name(name)
        if _BARE.match(name) and name.lower() not in RESERVED:
            return name
        return "'" + _SPECIAL.sub(lambda match: _escaped(match[0], "'"), name) + "'"


class _Canonical(_Printer):
    def name(self, name: str) -> str:
        return name.lower()

    def leading(self, node: Expression, level: int) -> str:
        # All binary operators nest to the left: parentheses there change nothing.
        return self.text(node, level)

    def record(self, attributes: tuple[tuple[str, Expression], ...]) -> str:
        return super().record(tuple(sorted(attributes, key=lambda pair: pair[0].lower())))
