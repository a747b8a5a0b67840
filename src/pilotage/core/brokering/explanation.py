"""The sub-expressions that made a requirement refuse an ad, with the values that they saw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pilotage.core.brokering.seen_attributes import (
    Scope,
    SeenAttribute,
    attributes_of,
    definition_of,
    is_unknown,
    seen_attributes,
    shorten,
    value_text,
)
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
from pilotage.core.classads.partial import Kind, can_be_true, residual
from pilotage.core.classads.values import truth

MOST_REFUSALS: Final = 12
"""Sub-expressions named in one explanation."""
MOST_DEPTH: Final = 60
DEFAULT_STEPS: Final = 20_000
"""The steps of a match: an evaluation that needs more is an error."""

_TRUE: Final = Literal(True)


@dataclass(frozen=True, slots=True)
class SubExpressionRefusal:
    """A sub-expression that said no."""

    expression: str
    outcome: str
    """Its value: false, undefined, error, or a value that is no truth value; below `!` also true.

    With attributes that are not known yet: "never true", or "never false".
    """
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
class _TreePlace:
    """A node on the way from the requirement to the sub-expressions."""

    node: Expression
    scope: Scope
    wanted: bool = True
    """The truth that the requirement needs of this node; `!` turns it around."""
    is_match: bool = True
    """The node's value is the value of the match, so a number does not count as true."""
    where: tuple[str, ...] = ()
    within: tuple[str, ...] = ()
    depth: int = 0

    def below(self, node: Expression, **changes: Any) -> _TreePlace:
        return replace(self, node=node, depth=self.depth + 1, **changes)


def explain_refusal(
    expression: Expression,
    my: ClassAd,
    target: ClassAd | None,
    *,
    kinds: Mapping[str, Kind] | None = None,
    most: int = MOST_REFUSALS,
    steps: int = DEFAULT_STEPS,
) -> tuple[SubExpressionRefusal, ...]:
    """The sub-expressions that keep an expression of `my` from being true of `target`; none if it is true.

    Of a conjunction the first operand that is not true counts, of a disjunction each one, of a conditional the
    branch that was taken. An attribute that an ad defines by an expression is followed into it.

    With `kinds` the target is not complete: a name that it lacks is unknown, as in `residual`. The sub-expressions
    cannot be true there. There are none if the expression can be true. Texts are bounded, and the
    work is at most `steps` for each level of nesting.
    """
    scope = Scope(my, target, is_partial=kinds is not None)
    whole = _TreePlace(expression, scope)
    walk = _Walk(most, steps, kinds)
    if walk.is_met(whole):
        return ()
    if kinds is None and walk.is_out_of_steps(whole):
        outcome = f"error: it takes more than {steps} steps or nests too deep"
        return (SubExpressionRefusal(shorten(unparse(expression)), outcome),)
    walk.visit(whole)
    if not walk.refusals:
        # Attributes that lead to each other in a circle have other values where the walk enters the circle.
        walk.add(whole)
    return tuple(walk.refusals)


@dataclass(slots=True)
class _Walk:
    most: int
    steps: int
    kinds: Mapping[str, Kind] | None
    refusals: list[SubExpressionRefusal] = field(default_factory=list)

    def value(self, place: _TreePlace, node: Expression | None = None) -> Any:
        scope = place.scope
        return evaluate(place.node if node is None else node, scope.my, scope.target, steps=self.steps)

    def is_out_of_steps(self, place: _TreePlace) -> bool:
        """Even `isError` has no answer for an evaluation that was cut off."""
        return self.value(place) is ERROR and self.value(place, Call("isError", (place.node,))) is ERROR

    def is_met(self, place: _TreePlace) -> bool:
        """Whether a node has the truth that is needed of it, or may have it on some node."""
        if place.scope.is_partial:
            return self.is_possible(place, place.wanted)
        value = self.value(place)
        return (value if place.is_match else truth(value)) is place.wanted

    def is_possible(self, place: _TreePlace, wanted: bool) -> bool:
        """Whether some values of the unknown attributes give a node this truth."""
        node, scope = place.node, place.scope
        if not wanted:
            node = Unary("!", node)
        elif not place.is_match:
            node = Logic("&&", (node, _TRUE))
        kinds = self.kinds or {}
        return can_be_true(residual(node, scope.my, scope.target or ClassAd(), kinds), kinds)

    def visit(self, place: _TreePlace) -> None:
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

    def logic(self, place: _TreePlace, node: Logic) -> None:
        operands = [place.below(operand, is_match=False) for operand in node.operands]
        if (node.op == "&&") is place.wanted:
            # All operands are needed: the first that is not met decides.
            operands = [operand for operand in operands if not self.is_met(operand)][:1]
            if not operands:
                # Unknown attributes allow each operand, and not all of them: a contradiction.
                self.add(place)
        for operand in operands:
            self.visit(operand)

    def choice(self, place: _TreePlace) -> None:
        """A conditional or `ifThenElse`: the branch that was taken, or the test if it took none."""
        test, yes, no = _parts_of_choice(place.node)
        if test is None or no is None or (yes is None and place.scope.is_partial):
            self.add(place)
        elif yes is None:
            taken = no if self.value(place, test) is UNDEFINED else test
            self.visit(place.below(taken))
        else:
            at = place.below(test, is_match=False)
            outcomes = [outcome for outcome in (True, False) if self.takes(at, outcome)]
            if not outcomes:
                self.add(replace(at, wanted=True))
            for outcome in outcomes:
                condition = self.condition(at, outcome, is_open=len(outcomes) == 2)
                self.visit(place.below(yes if outcome else no, where=(*place.where, condition)))

    def takes(self, test: _TreePlace, outcome: bool) -> bool:
        """Whether the test of a conditional has this truth, or may have it."""
        if test.scope.is_partial:
            return self.is_possible(test, outcome)
        return truth(self.value(test)) is outcome

    def condition(self, test: _TreePlace, outcome: bool, *, is_open: bool) -> str:
        text = shorten(unparse(test.node))
        if is_open:
            return text if outcome else f"!({text})"
        values = ", ".join(map(str, seen_attributes(test.node, test.scope, self.steps)))
        return f"{text} is {'true' if outcome else 'false'}" + (f" ({values})" if values else "")

    def attribute(self, place: _TreePlace, node: Attribute) -> None:
        """An attribute that is defined by an expression: the sub-expressions of its definition."""
        definition = definition_of(node, place.scope)
        is_constant = definition is None or isinstance(definition[0], Literal | ListOf | ClassAd)
        if definition is None or is_constant or place.scope.is_partial or node.name in place.within:
            self.add(place)
        else:
            expression, scope = definition
            self.visit(place.below(expression, scope=scope, within=(*place.within, node.name)))

    def add(self, place: _TreePlace) -> None:
        refusal = SubExpressionRefusal(
            shorten(unparse(place.node)),
            self.outcome(place),
            place.wanted,
            seen_attributes(place.node, place.scope, self.steps),
            place.where,
            place.within,
        )
        if refusal not in self.refusals:
            self.refusals.append(refusal)

    def outcome(self, place: _TreePlace) -> str:
        if any(is_unknown(attribute, place.scope) for attribute in attributes_of(place.node)):
            return "never true" if place.wanted else "never false"
        return value_text(self.value(place))


def _parts_of_choice(node: Expression) -> tuple[Expression | None, Expression | None, Expression | None]:
    """Test, branch if true (None: the test itself) and other branch; all None if the node is no choice."""
    if isinstance(node, Conditional):
        return node.test, node.yes, node.no
    if isinstance(node, Call) and node.key == "ifthenelse" and len(node.arguments) == 3:
        test, yes, no = node.arguments
        return test, yes, no
    return None, None, None
