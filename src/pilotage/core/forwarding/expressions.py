"""A residual as an expression of a batch system that reads ClassAds itself. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from pilotage.core.classads import (
    Attribute,
    Call,
    Chain,
    Conditional,
    Expression,
    ListOf,
    Literal,
    Logic,
    Unary,
    references,
    unparse,
)
from pilotage.core.forwarding.rules import AttributeRule, Rule

TARGET = Attribute("TARGET")
"""The ad of a machine, as the batch system names it."""

MAX_CHARACTERS = 8000
"""Characters of the expression of one part."""

_FUNCTIONS = frozenset({"member", "tolower", "toupper", "isundefined"})
"""Functions that both languages have with one meaning."""

_OPERATORS = frozenset({"==", "!=", "=?=", "=!=", "<", "<=", ">", ">=", "+", "-", "*"})
_LINE = re.compile(r"[ !#%-\[\]-~\"]*")
"""A text that a submit description takes as it is: it has no `$`, which begins a macro, and no `\\`."""


def native_expression(part: Expression, rules: Mapping[str, Rule]) -> str | None:
    """The text of a part of a residual over the machines' own attributes; None: it cannot be said with one meaning.

    `rules`: by attribute in lower case.
    """
    names = {name: rule.name for name, rule in rules.items() if isinstance(rule, AttributeRule)}
    if any(reference.name not in names for reference in references(part)):
        return None
    renamed = _renamed(part, names)
    text = "" if renamed is None else unparse(renamed)
    return text if text and len(text) <= MAX_CHARACTERS and _LINE.fullmatch(text) else None


def _renamed(node: Expression, names: Mapping[str, str]) -> Expression | None:
    """The expression over the attributes of the machine; None: it has a part without a common meaning."""
    match node:
        case Literal():
            return node
        case Attribute(base=base, absolute=False) if base is None or _is_host(base):
            return Attribute(names[node.key], TARGET) if node.key in names else None
        case Unary(operand=operand):
            inner = _renamed(operand, names)
            return None if inner is None else replace(node, operand=inner)
        case Logic(operands=operands):
            below = _all_renamed(operands, names)
            return None if below is None else replace(node, operands=below)
        case Call(arguments=arguments) if node.key in _FUNCTIONS:
            below = _all_renamed(arguments, names)
            return None if below is None else replace(node, arguments=below)
        case ListOf(items=items):
            below = _all_renamed(items, names)
            return None if below is None else replace(node, items=below)
        case Chain(first=first, rest=rest) if all(operator in _OPERATORS for operator, _ in rest):
            below = _all_renamed((first, *(operand for _, operand in rest)), names)
            if below is None:
                return None
            operators = [operator for operator, _ in rest]
            return replace(node, first=below[0], rest=tuple(zip(operators, below[1:], strict=True)))
        case Conditional(test=test, yes=yes, no=no) if yes is not None:
            below = _all_renamed((test, yes, no), names)
            return None if below is None else Conditional(*below)
    return None


def _all_renamed(nodes: tuple[Expression, ...], names: Mapping[str, str]) -> tuple[Expression, ...] | None:
    renamed = [changed for node in nodes if (changed := _renamed(node, names)) is not None]
    return tuple(renamed) if len(renamed) == len(nodes) else None


def _is_host(base: Expression) -> bool:
    return isinstance(base, Attribute) and base.base is None and base.key in ("other", "target")
