"""The sub-expressions that made a requirement refuse an ad, with the values that they saw."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

from pilotage.core.classads import (
    ERROR,
    UNDEFINED,
    Attribute,
    Call,
    ClassAd,
    Conditional,
    Expression,
    ListOf,
    Literal,
    Logic,
    Unary,
    evaluate,
    unparse,
)
from pilotage.core.classads.tree import children
from pilotage.core.classads.values import truth

MOST_REFUSALS: Final = 12
"""Sub-expressions named in one explanation."""
MOST_NAMES: Final = 8
"""Attributes shown for one sub-expression."""
MOST_DEPTH: Final = 60
MOST_TEXT: Final = 200
"""Characters of a sub-expression or a condition."""
MOST_VALUE: Final = 80
"""Characters of a value."""
DEFAULT_STEPS: Final = 20_000
"""As at a match: an evaluation that needs more is an error."""

_SCOPES: Final = frozenset({"target", "other"})


@dataclass(frozen=True, slots=True)
class SeenAttribute:
    """An attribute that a sub-expression names, with its value there."""

    name: str
    """As written, without `other.` or `target.`."""
    value: str = ""
    """As a ClassAd constant, perhaps cut; empty where the attribute is absent."""
    nearest: str = ""
    """Of an absent attribute: the most similar name that the ad has."""

    @property
    def is_absent(self) -> bool:
        return not self.value

    def __str__(self) -> str:
        if self.value:
            return f"{self.name} = {self.value}"
        nearest = f"; nearest: {self.nearest}" if self.nearest else ""
        return f"{self.name}: no such attribute{nearest}"


@dataclass(frozen=True, slots=True)
class SubExpressionRefusal:
    """A sub-expression that said no."""

    expression: str
    outcome: str
    """Its value: false, undefined, error, or a value that is no truth value; below `!` also true."""
    needed: bool = True
    """The value that the requirement needs: false below `!`."""
    seen: tuple[SeenAttribute, ...] = ()
    where: tuple[str, ...] = ()
    """The tests of conditionals that chose its branch, with their outcomes."""
    within: tuple[str, ...] = ()
    """The attributes whose definitions lead to it, such as AuthorizationCheck."""

    def __str__(self) -> str:
        values = f" ({', '.join(map(str, self.seen))})" if self.seen else ""
        within = f"{' > '.join(self.within)}: " if self.within else ""
        where = f", where {' and '.join(self.where)}" if self.where else ""
        needed = "" if self.needed else ", and must be false"
        return f"{within}{self.expression} is {self.outcome}{values}{needed}{where}"


@dataclass(frozen=True, slots=True)
class _Place:
    """A node on the way from the requirement to the sub-expressions, and the ads that its names mean."""

    node: Expression
    my: ClassAd
    target: ClassAd | None
    wanted: bool = True
    """The truth that the requirement needs of this node; `!` turns it around."""
    is_match: bool = True
    """The node's value is the value of the match, so a number does not count as true."""
    where: tuple[str, ...] = ()
    within: tuple[str, ...] = ()
    depth: int = 0

    def below(self, node: Expression, **changes: Any) -> _Place:
        return replace(self, node=node, depth=self.depth + 1, **changes)


def explain_refusal(
    expression: Expression,
    my: ClassAd,
    target: ClassAd | None,
    *,
    most: int = MOST_REFUSALS,
    steps: int = DEFAULT_STEPS,
) -> tuple[SubExpressionRefusal, ...]:
    """The sub-expressions that keep an expression of `my` from being true of `target`; none if it is true.

    Of a conjunction the first operand that is not true counts, of a disjunction each one, of a conditional the
    branch that was taken. An attribute that an ad defines by an expression is followed into it. The texts are
    bounded, and the work is at most `steps` for each level of nesting.
    """
    walk = _Walk(most, steps)
    if evaluate(Call("isError", (expression,)), my, target, steps=steps) is ERROR:
        # Even `isError` has no answer for an evaluation that was cut off.
        return (
            SubExpressionRefusal(_shorten(unparse(expression)), f"error: it takes more than {steps} steps"),
        )
    walk.visit(_Place(expression, my, target))
    return tuple(walk.refusals)


@dataclass(slots=True)
class _Walk:
    most: int
    steps: int
    refusals: list[SubExpressionRefusal] = field(default_factory=list)

    def value(self, place: _Place, node: Expression | None = None) -> Any:
        return evaluate(place.node if node is None else node, place.my, place.target, steps=self.steps)

    def is_met(self, place: _Place) -> bool:
        value = self.value(place)
        return (value if place.is_match else truth(value)) is place.wanted

    def visit(self, place: _Place) -> None:
        """Add the refusals of a node that may be met or not."""
        if len(self.refusals) >= self.most or self.is_met(place):
            return
        node = place.node
        if place.depth >= MOST_DEPTH:
            self.add(place)
        elif isinstance(node, Unary) and node.op == "!":
            self.visit(place.below(node.operand, wanted=not place.wanted, is_match=False))
        elif isinstance(node, Logic):
            self.logic(place, node)
        elif isinstance(node, Conditional | Call):
            self.choice(place)
        elif isinstance(node, Attribute):
            self.attribute(place, node)
        else:
            self.add(place)

    def logic(self, place: _Place, node: Logic) -> None:
        operands = [place.below(operand, is_match=False) for operand in node.operands]
        if (node.op == "&&") is place.wanted:
            # All operands are needed: the first that is not met decides.
            operands = [operand for operand in operands if not self.is_met(operand)][:1]
        for operand in operands:
            self.visit(operand)

    def choice(self, place: _Place) -> None:
        """A conditional or `ifThenElse`: the branch that was taken, or the test if it took none."""
        node = place.node
        test, yes, no = _parts_of_choice(node)
        if test is None or no is None:
            self.add(place)
        elif yes is None:
            taken = no if self.value(place, test) is UNDEFINED else test
            self.visit(place.below(taken))
        else:
            at = place.below(test, is_match=False)
            outcome = truth(self.value(at))
            if not isinstance(outcome, bool):
                self.add(at)
                return
            self.visit(place.below(yes if outcome else no, where=(*place.where, self.condition(at))))

    def attribute(self, place: _Place, node: Attribute) -> None:
        """An attribute that is defined by an expression: the sub-expressions of its definition."""
        resolved = _definition(node, place.my, place.target)
        definition, my, target = resolved or (None, place.my, place.target)
        if (
            definition is None
            or isinstance(definition, Literal | ListOf | ClassAd)
            or node.name in place.within
        ):
            self.add(place)
        else:
            self.visit(place.below(definition, my=my, target=target, within=(*place.within, node.name)))

    def condition(self, place: _Place) -> str:
        values = ", ".join(map(str, self.seen(place)))
        outcome = value_text(self.value(place))
        return f"{_shorten(unparse(place.node))} is {outcome}" + (f" ({values})" if values else "")

    def add(self, place: _Place) -> None:
        refusal = SubExpressionRefusal(
            _shorten(unparse(place.node)),
            value_text(self.value(place)),
            place.wanted,
            self.seen(place),
            place.where,
            place.within,
        )
        if refusal not in self.refusals:
            self.refusals.append(refusal)

    def seen(self, place: _Place) -> tuple[SeenAttribute, ...]:
        """The attributes that a node names, each once, in the order written."""
        if isinstance(place.node, Literal):
            return ()
        names: dict[str, Attribute] = {}
        for attribute in _attributes(place.node):
            names.setdefault(_shown_name(attribute).lower(), attribute)
        return tuple(self.seen_attribute(place, attribute) for attribute in list(names.values())[:MOST_NAMES])

    def seen_attribute(self, place: _Place, attribute: Attribute) -> SeenAttribute:
        name = _shorten(_shown_name(attribute))
        value = self.value(place, attribute)
        searched = None
        if value is UNDEFINED and _definition(attribute, place.my, place.target) is None:
            searched = _searched_ad(attribute, place)
        if searched is not None:
            return SeenAttribute(
                name, nearest=_nearest(attribute.name, tuple(n for n, _ in searched.attributes))
            )
        return SeenAttribute(name, value_text(value))


def _parts_of_choice(node: Expression) -> tuple[Expression | None, Expression | None, Expression | None]:
    """Test, branch if true (None: the test itself) and other branch; all None if the node is no choice."""
    if isinstance(node, Conditional):
        return node.test, node.yes, node.no
    if isinstance(node, Call) and node.key == "ifthenelse" and len(node.arguments) == 3:
        test, yes, no = node.arguments
        return test, yes, no
    return None, None, None


def _definition(
    node: Attribute, my: ClassAd, target: ClassAd | None
) -> tuple[Expression, ClassAd, ClassAd | None] | None:
    """The expression behind a name, and the ads in which its own names are looked up; None if there is none."""
    base = node.base
    if node.absolute or (base is not None and not (isinstance(base, Attribute) and base.base is None)):
        return None
    scope = base.key if isinstance(base, Attribute) else ""
    if scope in ("", "my", "self") and (own := my.get(node.name)) is not None:
        return own, my, target
    if target is not None and (scope in _SCOPES or scope == ""):
        theirs = target.get(node.name)
        if theirs is not None:
            return theirs, target, my
    return None


def _searched_ad(node: Attribute, place: _Place) -> ClassAd | None:
    """The ad that should define a name; None for a selection from a value."""
    base = node.base
    if base is None:
        return place.my if place.target is None or node.absolute else place.target
    if isinstance(base, Attribute) and base.base is None:
        if base.key in _SCOPES:
            return place.target
        if base.key in ("my", "self"):
            return place.my
    return None


def _attributes(node: Expression) -> Iterator[Attribute]:
    """The attributes below a node, in the order written; of `a.b.c` the whole."""
    if isinstance(node, Attribute):
        yield node
    elif not isinstance(node, ClassAd):
        for below in children(node):
            yield from _attributes(below)


def _shown_name(node: Attribute) -> str:
    base = node.base
    if isinstance(base, Attribute) and base.base is None and base.key in _SCOPES:
        return unparse(Attribute(node.name))
    return unparse(node)


@lru_cache(maxsize=1024)
def _nearest(name: str, names: tuple[str, ...]) -> str:
    if len(name) > MOST_VALUE:
        return ""
    folded = {known.lower(): known for known in names if len(known) <= MOST_VALUE}
    near = difflib.get_close_matches(name.lower(), folded, 1, cutoff=0.8)
    return folded[near[0]] if near else ""


def value_text(value: Any) -> str:
    """A value of an evaluation as a ClassAd constant, cut to `MOST_VALUE` characters."""
    if isinstance(value, ClassAd):
        return _shorten(unparse(value), MOST_VALUE)
    if isinstance(value, tuple):
        return _list_text(value)
    return _shorten(unparse(Literal(value)), MOST_VALUE)


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


def _shorten(text: str, most: int = MOST_TEXT) -> str:
    """Text of at most `most` characters: the middle of a longer one is left out."""
    if len(text) <= most:
        return text
    half = (most - 5) // 2
    return f"{text[:half]} ... {text[-half:]}"
