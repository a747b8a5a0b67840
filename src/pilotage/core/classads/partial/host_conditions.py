"""A residual as alternatives of conditions on single attributes, the form that batch systems understand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from pilotage.core.classads.evaluate import OutOfSteps
from pilotage.core.classads.partial import outcomes as of
from pilotage.core.classads.partial.atoms import Atom, consistent
from pilotage.core.classads.partial.domain import NEGATED
from pilotage.core.classads.partial.reduction import MAX_STEPS, reduced
from pilotage.core.classads.partial.unknowns import Kind, Unknowns
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
)
from pilotage.core.classads.values import truth


@dataclass(frozen=True, slots=True, eq=False)
class HostCondition:
    """`attribute operator value` is true of the host.

    Operators: `< <= > >= == != =?= =!=` as in ClassAds, and `member` and `not-member`: the attribute is a list
    that has, or lacks, the value. `attribute` is written as in the expression.
    Equality tells `1`, `1.0` and `true` apart, as `=?=` does.
    """

    attribute: str
    operator: str
    value: int | float | str | bool

    def _key(self) -> tuple[str, str, type, int | float | str | bool]:
        return self.attribute, self.operator, type(self.value), self.value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HostCondition) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


Alternative: TypeAlias = tuple[HostCondition, ...]
_UNCONDITIONAL: Final[tuple[Alternative, ...]] = ((),)
_NO_KINDS: Final[Mapping[str, Kind]] = {}


class _Unsuitable(Exception):
    """The residual has other conditions, or too many alternatives."""


def host_conditions(
    residual: Expression, kinds: Mapping[str, Kind] = _NO_KINDS, most: int = 64
) -> tuple[Alternative, ...] | None:
    """Alternatives of which one must hold, each a conjunction; together they are true where the residual is.

    `((),)` is always true and `()` never. None: the residual has conditions of other forms, such as a comparison
    of two attributes, or more than `most` alternatives. `kinds` must be the kinds that the residual was made with.
    """
    if type(residual) is Literal:
        return _UNCONDITIONAL if residual.value is True else ()
    partial = reduced(residual, kinds, MAX_STEPS)
    if type(partial.tree) is Literal:
        return _UNCONDITIONAL if partial.tree.value is True else ()
    if partial.unknowns is None:
        return None
    try:
        expansion = _Expansion(partial.unknowns, most)
        return _smallest(expansion.matches(partial.tree))
    except (_Unsuitable, OutOfSteps, RecursionError):
        return None


class _Expansion:
    """The disjunctive form of one residual, within a number of alternatives."""

    def __init__(self, unknowns: Unknowns, most: int) -> None:
        self.unknowns = unknowns
        self.most = most

    def matches(self, tree: Expression) -> list[Alternative]:
        """The alternatives under which the value of the tree is true itself: no number is."""
        if type(tree) is Attribute:
            condition = self._condition(tree, True)
            return [(condition if condition.value is True else HostCondition(tree.name, "=?=", True),)]
        if type(tree) is Conditional and tree.yes is not None:
            tests = self.alternatives(tree.test, True), self.alternatives(tree.test, False)
            branches = self.matches(tree.yes), self.matches(tree.no)
            return self._any_of([self._product(pair) for pair in zip(tests, branches, strict=True)])
        return self.alternatives(tree, True)

    def alternatives(self, tree: Expression, wanted: bool) -> list[Alternative]:
        """The alternatives under which the truth value of the tree is `wanted`."""
        self.unknowns.charge()
        match tree:
            case Literal(value=value):
                return [()] if truth(value) is wanted else []
            case Unary(op="!", operand=operand):
                return self.alternatives(operand, not wanted)
            case Logic(op=op, operands=operands) if (op == "&&") is wanted:
                return self._all_of([(operand, wanted) for operand in operands])
            case Logic(operands=operands):
                if any(of.TRUTHS[self.unknowns.outcomes_of(left)] & of.ERROR for left in operands[:-1]):
                    # An error on the left decides before an alternative on the right.
                    raise _Unsuitable
                return self._any_of([self.alternatives(operand, wanted) for operand in operands])
            case Conditional(test=test, yes=yes, no=no) if yes is not None:
                return self._any_of(
                    [self._all_of([(test, True), (yes, wanted)]), self._all_of([(test, False), (no, wanted)])]
                )
            case Call(key="member", arguments=(Attribute() as attribute, ListOf(items=items))):
                return self._in_list(attribute, items, wanted)
            case _:
                return [(self._condition(tree, wanted),)]

    def _any_of(self, parts: Iterable[list[Alternative]]) -> list[Alternative]:
        union = list(dict.fromkeys(alternative for part in parts for alternative in part))
        if self.most < len(union) <= 4 * self.most:
            union = list(_smallest(union))
        if len(union) > self.most:
            raise _Unsuitable
        return union

    def _all_of(self, parts: list[tuple[Expression, bool]]) -> list[Alternative]:
        return self._product([self.alternatives(tree, wanted) for tree, wanted in parts])

    def _product(self, parts: Iterable[list[Alternative]]) -> list[Alternative]:
        product: list[Alternative] = [()]
        # The smallest parts first: a contradiction then costs least.
        for part in sorted(parts, key=len):
            self.unknowns.charge(len(product) * len(part))
            joined = (self._merged((*left, *right)) for left in product for right in part)
            product = self._any_of([[alternative for alternative in joined if alternative is not None]])
        return product

    def _merged(self, conditions: Alternative) -> Alternative | None:
        """Conditions without repetitions and such as follow from others; None if they contradict each other."""
        self.unknowns.charge(len(conditions))
        kept = list(dict.fromkeys(conditions))
        by_attribute: dict[str, list[HostCondition]] = {}
        for condition in kept:
            by_attribute.setdefault(condition.attribute, []).append(condition)
        for name, group in by_attribute.items():
            outcomes = self.unknowns.outcomes[name.lower()]
            atoms = [(_atom_of(condition), _is_boolean(outcomes, condition)) for condition in group]
            left = consistent(outcomes, atoms)
            if left is None:
                return None
            for condition, (atom, _) in zip(group, atoms, strict=True):
                if not any(atom is other for other in left):
                    kept.remove(condition)
        return tuple(kept)

    def _condition(self, tree: Expression, wanted: bool) -> HostCondition:
        match tree:
            case Attribute() if self.unknowns.is_unknown(tree):
                if not self.unknowns.outcomes[tree.key] & ~of.BOOLEAN:
                    return HostCondition(tree.name, "==", wanted)
                return HostCondition(tree.name, "!=" if wanted else "==", 0)
            case Chain(first=first, rest=((op, Literal(value=value)),)) if op in NEGATED and (
                self.unknowns.is_unknown(first)
            ):
                assert type(first) is Attribute
                if isinstance(value, int | float | str) and value == value:
                    return HostCondition(first.name, op if wanted else NEGATED[op], value)
            case Call(key="member", arguments=(Literal(value=value), items)) if self.unknowns.is_unknown(
                items
            ):
                assert type(items) is Attribute
                if isinstance(value, int | float | str):
                    return HostCondition(items.name, "member" if wanted else "not-member", value)
        raise _Unsuitable

    def _in_list(
        self, attribute: Attribute, items: tuple[Expression, ...], wanted: bool
    ) -> list[Alternative]:
        """`member(X, {"a", "b"})`: X is equal to an item, or differs from all."""
        values = [item.value for item in items if type(item) is Literal]
        constants = [value for value in values if isinstance(value, int | float | str)]
        if not self.unknowns.is_unknown(attribute) or len(constants) < len(items):
            raise _Unsuitable
        if wanted:
            return self._any_of([[(HostCondition(attribute.name, "==", value),)] for value in constants])
        outcomes = self.unknowns.outcomes[attribute.key]
        if outcomes & ~(of.NUMBER | of.BOOLEAN | of.STRING) or any(
            of.of_comparison(outcomes, of.outcome_of(value)) & ~of.BOOLEAN for value in constants
        ):
            raise _Unsuitable
        return [tuple(HostCondition(attribute.name, "!=", value) for value in constants)]


def _atom_of(condition: HostCondition) -> Atom:
    is_negated = condition.operator == "not-member"
    operator = "member" if is_negated else condition.operator
    return Atom(Attribute(condition.attribute), operator, condition.value, not is_negated)


def _is_boolean(outcomes: int, condition: HostCondition) -> bool:
    """Whether the condition is true or false for all values of an attribute."""
    if condition.operator in ("member", "not-member"):
        return outcomes == of.LIST
    if condition.operator in ("=?=", "=!="):
        return not outcomes & (of.LIST | of.AD)
    return not of.of_comparison(outcomes, of.outcome_of(condition.value)) & ~of.BOOLEAN


def _smallest(alternatives: list[Alternative]) -> tuple[Alternative, ...]:
    """The alternatives without any that asks for all that another asks for, and more."""
    sets = [frozenset(alternative) for alternative in alternatives]
    kept = []
    for position, own in enumerate(sets):
        if not any(
            other < own or (other == own and earlier < position) for earlier, other in enumerate(sets)
        ):
            kept.append(alternatives[position])
    return tuple(kept)
