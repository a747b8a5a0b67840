"""References of an expression, and likely mistakes in an ad."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pilotage.core.classads.functions import NAMES
from pilotage.core.classads.functions_patterns import OPTIONS_PLACE
from pilotage.core.classads.patterns import check_pattern
from pilotage.core.classads.printer import unparse
from pilotage.core.classads.tree import (
    Attribute,
    Call,
    ClassAd,
    Expression,
    ListOf,
    Literal,
    children,
    nodes_of,
)

_SCOPES = {"my": "my", "target": "target", "other": "target"}
_SPECIAL = frozenset({*_SCOPES, "self", "parent", "root", "toplevel"})


class AttributeReference(NamedTuple):
    """An attribute an expression depends on: `scope` is `my`, `target`, `.` (absolute) or empty (either).

    Both names are in lower case. Of `a.b.c` only `a` is named; of `other.a.b`, `a` of the target.
    """

    scope: str
    name: str


@dataclass(frozen=True, slots=True)
class Suspicion:
    """Something legal that is probably not meant. `path` leads to it: `info.CloseStorageElements[0].name`."""

    path: str
    message: str


def references(expression: Expression) -> frozenset[AttributeReference]:
    """The attributes an expression needs from outside itself."""
    references: set[AttributeReference] = set()
    stack: list[tuple[Expression, frozenset[str]]] = [(expression, frozenset())]
    while stack:
        node, local = stack.pop()
        if isinstance(node, ClassAd):
            local |= node.index.keys()
        elif isinstance(node, Attribute):
            scope = _scope_of(node, local)
            if scope is not None:
                references.add(AttributeReference(scope, node.key))
                continue
            if node.base is None and node.key not in local and node.key not in _SPECIAL:
                references.add(AttributeReference("", node.key))
        stack.extend((below, local) for below in children(node))
    return frozenset(references)


def _scope_of(node: Attribute, local: frozenset[str]) -> str | None:
    base = node.base
    if node.absolute:
        return "."
    if isinstance(base, Attribute) and base.base is None and not base.absolute and base.key not in local:
        return _SCOPES.get(base.key)
    return None


def check_call(call: Call) -> None:
    """Raises `InvalidInput` for a call of `regexp` and the like whose pattern is a constant that can't be used."""
    place = OPTIONS_PLACE.get(call.key)
    if place is None or not 1 < len(call.arguments) <= place + 1:
        return
    constants = [argument.value if isinstance(argument, Literal) else None for argument in call.arguments]
    pattern, options = constants[0], "".join(text for text in constants[place:] if isinstance(text, str))
    if isinstance(pattern, str):
        check_pattern(call.name, pattern, options)


def suspicions(ad: ClassAd) -> tuple[Suspicion, ...]:
    """Unquoted host names (`gridftp05.cern.ch` selects attributes and is undefined) and unknown functions."""
    suspicious: list[Suspicion] = []
    stack: list[tuple[str, Expression, frozenset[str]]] = [("", ad, _SPECIAL)]
    while stack:
        path, node, known = stack.pop()
        if isinstance(node, ClassAd):
            inner = known | node.index.keys()
            before = f"{path}." if path else ""
            stack.extend((before + name, value, inner) for name, value in node.attributes)
        elif isinstance(node, ListOf):
            stack.extend((f"{path}[{at}]", item, known) for at, item in enumerate(node.items))
        else:
            suspicious += _of_value(path, node, known)
    return tuple(sorted(suspicious, key=lambda suspicion: suspicion.path))


def _of_value(path: str, node: Expression, known: frozenset[str]) -> list[Suspicion]:
    suspicious: list[Suspicion] = []
    if isinstance(node, Attribute) and node.base is not None:
        root: Expression = node
        while isinstance(root, Attribute) and root.base is not None:
            root = root.base
        if isinstance(root, Attribute) and not root.absolute and root.key not in known:
            text = unparse(node)
            message = f'{text} selects from {root.name!r}, which nothing defines: quote it? "{text}"'
            suspicious.append(Suspicion(path, message))
    suspicious += [
        Suspicion(path, f"there is no function {below.name!r}: the value will be an error")
        for below in nodes_of(node)
        if isinstance(below, Call) and below.key not in NAMES
    ]
    return suspicious
