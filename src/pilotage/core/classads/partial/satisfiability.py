"""Whether a tree over unknown attributes can have a truth value: a bounded search through its alternatives."""

from __future__ import annotations

from typing import Final, TypeAlias

from pilotage.core.classads.evaluate import OutOfSteps
from pilotage.core.classads.partial.atoms import Atom, atom_of, is_sound
from pilotage.core.classads.partial.domain import Domain
from pilotage.core.classads.partial.unknowns import Unknowns, is_comparable
from pilotage.core.classads.tree import (
    Attribute,
    Call,
    Chain,
    Conditional,
    Expression,
    Literal,
    Logic,
    Unary,
)
from pilotage.core.classads.values import truth

MAX_STEPS: Final = 2_000

Domains: TypeAlias = dict[Expression | str, Domain]
"""The values left of each term. The key of an unknown attribute is its name in lower case."""

Goals: TypeAlias = "tuple[Expression, bool, Goals] | None"
"""A linked list of trees, each with the truth value that it must have."""


def can_be(tree: Expression, wanted: bool, unknowns: Unknowns, steps: int = MAX_STEPS) -> bool:
    """False only if no values of the unknown attributes give the tree this truth value.

    True where the search does not end within the steps.
    """
    before = unknowns.steps
    unknowns.steps = min(before, steps)
    limit = unknowns.steps
    try:
        return _search(tree, wanted, unknowns)
    except (OutOfSteps, RecursionError):
        return True
    finally:
        unknowns.steps = before - (limit - max(unknowns.steps, 0))


def _search(tree: Expression, wanted: bool, unknowns: Unknowns) -> bool:
    open_branches: list[tuple[Goals, Goals, Domains]] = [((tree, wanted, None), None, {})]
    while open_branches:
        goals, postponed, domains = open_branches.pop()
        result = _pursue(goals, postponed, domains, unknowns, open_branches)
        if result:
            return True
    return False


def _pursue(
    goals: Goals,
    postponed: Goals,
    domains: Domains,
    unknowns: Unknowns,
    open_branches: list[tuple[Goals, Goals, Domains]],
) -> bool:
    """Follow one branch. True if all its goals hold together; alternatives are pushed for later.

    Conditions are taken first and alternatives last, so that a contradiction is found before the branch is split.
    """
    while goals is not None or postponed is not None:
        unknowns.charge()
        if goals is None:
            assert postponed is not None
            tree, wanted, postponed = postponed
            for alternative in _alternatives(tree, wanted):
                extended: Goals = None
                for part, truth_of_part in alternative:
                    extended = (part, truth_of_part, extended)
                open_branches.append((extended, postponed, _copied(domains)))
            unknowns.charge(len(domains))
            return False
        tree, wanted, goals = goals
        while type(tree) is Unary and tree.op == "!":
            tree, wanted = tree.operand, not wanted
        if type(tree) is Literal:
            if truth(tree.value) is not wanted:
                return False
        elif type(tree) is Logic and (tree.op == "&&") is wanted:
            for operand in reversed(tree.operands):
                goals = (operand, wanted, goals)
        elif type(tree) is Logic or type(tree) is Conditional:
            postponed = (tree, wanted, postponed)
        elif not _holds(tree, wanted, domains, unknowns):
            return False
    return True


def _copied(domains: Domains) -> Domains:
    return {term: domain.copy() for term, domain in domains.items()}


def _alternatives(tree: Expression, wanted: bool) -> list[list[tuple[Expression, bool]]]:
    """Sets of conditions of which one must hold for the tree to have the truth value."""
    if type(tree) is Logic:
        return [[(operand, wanted)] for operand in reversed(tree.operands)]
    assert type(tree) is Conditional
    if tree.yes is None:
        absent: Expression = Call("isUndefined", (tree.test,))
        return [[(absent, True), (tree.no, wanted)], [(tree.test, wanted)]]
    return [[(tree.test, False), (tree.no, wanted)], [(tree.test, True), (tree.yes, wanted)]]


def _holds(tree: Expression, wanted: bool, domains: Domains, unknowns: Unknowns) -> bool:
    """Narrow the domains by a condition. False if it contradicts the conditions so far."""
    atom = atom_of(tree, wanted)
    if atom is not None and type(atom.term) is Attribute and atom.term.key not in unknowns.repeated:
        return True
    if atom is None or not isinstance(atom.term, Attribute | Chain | Call):
        return _holds_as_truth(tree, wanted, domains, unknowns)
    if type(atom.term) is not Attribute and not is_comparable(atom.term):
        return True
    return _narrow(atom, domains, unknowns)


def _holds_as_truth(tree: Expression, wanted: bool, domains: Domains, unknowns: Unknowns) -> bool:
    if isinstance(tree, Call | Chain) and is_comparable(tree):
        return _narrow(Atom(tree, "truth", None, wanted), domains, unknowns)
    return True


def _narrow(atom: Atom, domains: Domains, unknowns: Unknowns) -> bool:
    term = atom.term
    key = term.key if type(term) is Attribute and unknowns.is_unknown(term) else term
    domain = domains.get(key)
    if domain is None:
        domain = domains[key] = Domain(unknowns.outcomes_of(term))
    if not is_sound(atom, domain.outcomes, unknowns):
        return True
    return domain.require(atom.op, atom.value, atom.wanted)
