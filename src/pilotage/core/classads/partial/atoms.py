"""Conditions on one term: how they are found in a tree, and which of several are contradictory or redundant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from pilotage.core.classads.partial import outcomes as of
from pilotage.core.classads.partial.contexts import TRUE_SIDE, TruthContext
from pilotage.core.classads.partial.domain import NEGATED, Domain
from pilotage.core.classads.partial.unknowns import Unknowns
from pilotage.core.classads.tree import Attribute, Call, Chain, Expression, Literal, Unary

_ORDER: Final = frozenset({"<", "<=", ">", ">="})
# Atoms of one attribute that are compared with each other; more are left as they are.
_MOST_IN_GROUP: Final = 8


class Atom(NamedTuple):
    """A condition on a term that `Domain.require` understands."""

    term: Expression
    op: str
    value: Any
    wanted: bool


def atom_of(tree: Expression, wanted: bool = True) -> Atom | None:
    """The condition that the truth value of the tree is true (or false), None if it is of no known form."""
    while type(tree) is Unary and tree.op == "!":
        tree, wanted = tree.operand, not wanted
    if type(tree) is Chain:
        op, operand = tree.rest[0]
        if len(tree.rest) == 1 and type(operand) is Literal and op in NEGATED:
            return Atom(tree.first, op, operand.value, wanted)
        return None
    match tree:
        case Call(key="member", arguments=(Literal(value=value), items)) if isinstance(
            value, int | float | str
        ):
            return Atom(items, "member", value, wanted)
        case Call(key=key, arguments=(argument,)) if key in of.QUESTIONS:
            return Atom(argument, "type", of.QUESTIONS[key], wanted)
        case Attribute():
            return Atom(tree, "truth", None, wanted)
        case _:
            return None


def is_sound(atom: Atom, outcomes: int, unknowns: Unknowns) -> bool:
    """Whether the term's domain may be narrowed by the atom, for a term of these outcomes.

    A result of arithmetic can be NaN. Then a comparison that is false tells nothing.
    """
    if atom.wanted or atom.op not in _ORDER:
        return True
    return unknowns.is_unknown(atom.term) or not outcomes & of.REAL


def redundant(
    op: str, operands: list[tuple[Expression, int]], context: TruthContext, unknowns: Unknowns
) -> list[Expression] | None:
    """Operands of `||` or `&&` that can be dropped; None if the operands decide the whole.

    Of `B > 3 && B > 5` the first is dropped, and `B > 3 && B < 2` is decided.
    """
    if not unknowns.repeated:
        return []
    wanted = op == "&&"
    one_sided = context in TRUE_SIDE if wanted else context == TruthContext.IS_FALSE
    if not one_sided and any(of.TRUTHS[outcomes] & of.ERROR for _, outcomes in operands):
        return []
    groups: dict[str, list[tuple[Expression, Atom, int]]] = {}
    for tree, outcomes in operands:
        atom = atom_of(tree, wanted)
        if atom is None or type(atom.term) is not Attribute or atom.term.key not in unknowns.repeated:
            continue
        if unknowns.is_unknown(atom.term) and (one_sided or not outcomes & ~of.BOOLEAN):
            groups.setdefault(atom.term.key, []).append((tree, atom, outcomes))
    dropped: list[Expression] = []
    for name, group in groups.items():
        unknowns.charge(len(group))
        kept = consistent(
            unknowns.outcomes[name], [(atom, not known & ~of.BOOLEAN) for _, atom, known in group]
        )
        if kept is None:
            return None
        dropped += [tree for tree, atom, _ in group if not any(atom is other for other in kept)]
    return dropped


def consistent(outcomes: int, atoms: Sequence[tuple[Atom, bool]]) -> list[Atom] | None:
    """Conditions on a term of these outcomes without such as follow from the others; None: they contradict each other.

    Each comes with whether it is true or false for all values of the term. Only such a condition can be left out.
    """
    left = [atom for atom, _ in atoms]
    if len(left) == 1:
        return left
    if not _narrowed(outcomes, left).is_possible:
        return None
    if len(left) > _MOST_IN_GROUP:
        return left
    for atom, is_boolean in atoms:
        others = [other for other in left if other is not atom]
        if is_boolean and others:
            domain = _narrowed(outcomes, others)
            if not domain.require(atom.op, atom.value, not atom.wanted):
                left = others
    return left


def _narrowed(outcomes: int, atoms: Iterable[Atom]) -> Domain:
    domain = Domain(outcomes)
    for atom in atoms:
        domain.require(atom.op, atom.value, atom.wanted)
    return domain
