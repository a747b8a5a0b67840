"""The attributes that a sub-expression names, with their values, as short texts."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from pilotage.core.classads import UNDEFINED, Attribute, ClassAd, Expression, Literal, evaluate, unparse
from pilotage.core.classads.tree import children
from pilotage.core.glue.schema import nearest_name

MOST_NAMES: Final = 8
"""Attributes shown for one sub-expression."""
MOST_TEXT: Final = 200
"""Characters of a sub-expression or a condition."""
MOST_VALUE: Final = 80
"""Characters of a value."""

_TARGET: Final = frozenset({"target", "other"})
_MY: Final = frozenset({"my", "self"})


@dataclass(frozen=True, slots=True)
class SeenAttribute:
    """An attribute that a sub-expression names, with its value there."""

    name: str
    """The name as written, without `other.` or `target.`."""
    value: str = ""
    """A ClassAd constant, perhaps cut; empty where the attribute is absent."""
    nearest: str = ""
    """The name most similar to that of an absent attribute, in the ad, else in the GLUE schema."""
    is_unknown: bool = False
    """It is absent because its value is not known yet: each node has its own."""

    def __str__(self) -> str:
        if self.value:
            return f"{self.name} = {self.value}"
        nearest = f"; nearest: {self.nearest}" if self.nearest else ""
        return f"{self.name}: {'not known before a node is' if self.is_unknown else 'no such attribute'}{nearest}"


@dataclass(frozen=True, slots=True)
class Scope:
    """The two ads that the names of an expression mean, and whether the target is complete."""

    my: ClassAd
    target: ClassAd | None
    is_partial: bool = False
    """Names that the target lacks are unknown, not undefined."""


def seen_attributes(node: Expression, scope: Scope, steps: int) -> tuple[SeenAttribute, ...]:
    """The attributes that a node names, each once, in the order written."""
    if isinstance(node, Literal):
        return ()
    names: dict[str, Attribute] = {}
    for attribute in attributes_of(node):
        names.setdefault(_shown_name(attribute).lower(), attribute)
    return tuple(_seen(attribute, scope, steps) for attribute in list(names.values())[:MOST_NAMES])


def attributes_of(node: Expression) -> Iterator[Attribute]:
    """The attributes below a node, in the order written; of `a.b.c` the whole."""
    if isinstance(node, Attribute):
        yield node
    elif not isinstance(node, ClassAd):
        for below in children(node):
            yield from attributes_of(below)


def is_unknown(node: Attribute, scope: Scope) -> bool:
    """Whether a name means an attribute of the target that is not known yet."""
    if not scope.is_partial or scope.target is None or definition_of(node, scope) is not None:
        return False
    return _searched_ad(node, scope) is scope.target


def definition_of(node: Attribute, scope: Scope) -> tuple[Expression, Scope] | None:
    """The expression behind a name, and the scope of its own names; None if there is none."""
    base, my, target = node.base, scope.my, scope.target
    if node.absolute or (base is not None and not (isinstance(base, Attribute) and base.base is None)):
        return None
    prefix = base.key if isinstance(base, Attribute) else ""
    if (not prefix or prefix in _MY) and (own := my.get(node.name)) is not None:
        return own, scope
    if target is not None and (not prefix or prefix in _TARGET):
        theirs = target.get(node.name)
        if theirs is not None:
            return theirs, Scope(target, my)
    return None


def value_text(value: Any) -> str:
    """A value of an evaluation as a ClassAd constant, cut to `MOST_VALUE` characters."""
    if isinstance(value, ClassAd):
        return shorten(unparse(value), MOST_VALUE)
    if isinstance(value, tuple):
        return _list_text(value)
    return shorten(unparse(Literal(value)), MOST_VALUE)


def shorten(text: str, most: int = MOST_TEXT) -> str:
    """Text of at most `most` characters: the middle of a longer one is left out."""
    if len(text) <= most:
        return text
    half = (most - 5) // 2
    return f"{text[:half]} ... {text[-half:]}"


def _seen(attribute: Attribute, scope: Scope, steps: int) -> SeenAttribute:
    name = shorten(_shown_name(attribute))
    value = evaluate(attribute, scope.my, scope.target, steps=steps)
    searched = None
    if value is UNDEFINED and definition_of(attribute, scope) is None:
        searched = _searched_ad(attribute, scope)
    if searched is None:
        return SeenAttribute(name, value_text(value))
    nearest = _nearest(attribute.name, tuple(known for known, _ in searched.attributes))
    nearest = nearest or nearest_name(attribute.name)
    return SeenAttribute(name, nearest=nearest, is_unknown=is_unknown(attribute, scope))


def _searched_ad(node: Attribute, scope: Scope) -> ClassAd | None:
    """The ad that should define a name; None for a selection from a value."""
    base = node.base
    if base is None:
        return scope.my if scope.target is None or node.absolute else scope.target
    if isinstance(base, Attribute) and base.base is None:
        if base.key in _TARGET:
            return scope.target
        if base.key in _MY:
            return scope.my
    return None


def _shown_name(node: Attribute) -> str:
    base = node.base
    if isinstance(base, Attribute) and base.base is None and base.key in _TARGET:
        return unparse(Attribute(node.name))
    return unparse(node)


@lru_cache(maxsize=1024)
def _nearest(name: str, names: tuple[str, ...]) -> str:
    if len(name) > MOST_VALUE:
        return ""
    folded = {known.lower(): known for known in names if len(known) <= MOST_VALUE}
    near = difflib.get_close_matches(name.lower(), folded, 1, cutoff=0.8)
    return folded[near[0]] if near else ""


def _list_text(items: tuple[Any, ...]) -> str:
    """The first items that fit, and the number of the others."""
    shown: list[str] = []
    length = 0
    for item in items:
        text = value_text(item)
        length += len(text) + 2
        if shown and length > MOST_VALUE:
            return "{" + ", ".join(shown) + f", and {len(items) - len(shown)} more" + "}"
        shown.append(text)
    return "{" + ", ".join(shown) + "}"
