"""Deliberate faults in the partial evaluator: the properties find a counter-example to every one."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from pilotage.core.classads import ERROR, UNDEFINED, Literal, Logic
from pilotage.core.classads.partial import (
    atoms,
    contexts,
    domain,
    inversion,
    operators,
    outcomes,
    satisfiability,
    simplify,
)
from pilotage.core.classads.partial.contexts import TruthContext
from pilotage.core.classads.partial.unknowns import Unknowns
from tests.unit.classads.partial_triples import counterexample, draw

MOST_TRIPLES = 8000
# The packages export functions of these names.
evaluate = importlib.import_module("pilotage.core.classads.evaluate")
host_conditions = importlib.import_module("pilotage.core.classads.partial.host_conditions")
Patch = pytest.MonkeyPatch


def replaced(module: Any, name: str, fault_in: Callable[..., Any]) -> Callable[[Patch], None]:
    """Patches a function by one that calls the original first."""

    def apply(patch: Patch) -> None:
        original = getattr(module, name)
        patch.setattr(module, name, lambda *arguments, **named: fault_in(original, *arguments, **named))

    return apply


def rule(module: Any, kind: type, fault_in: Callable[..., Any]) -> Callable[[Patch], None]:
    """Patches the rule of a node."""

    def apply(patch: Patch) -> None:
        original = module._RULES[kind]
        patch.setitem(module._RULES, kind, lambda *arguments: fault_in(original, *arguments))

    return apply


def entry(table: dict[Any, Any], key: Any, value: Any) -> Callable[[Patch], None]:
    return lambda patch: patch.setitem(table, key, value)


FAULTS: dict[str, Callable[[Patch], None]] = {
    "false || x is x, also for a number": replaced(
        simplify, "_as_truth", lambda original, tree, known, context: (tree, known)
    ),
    "an error on the left of || does not matter": entry(
        contexts.OF_OPERANDS,
        "||",
        {**contexts._OR, TruthContext.MATCH: (TruthContext.IS_TRUE, TruthContext.IS_TRUE)},
    ),
    "an error on the left of && does not matter": entry(
        contexts.OF_OPERANDS,
        "&&",
        {**contexts._AND, TruthContext.IS_FALSE: (TruthContext.IS_FALSE,) * 2},
    ),
    "a test that is undefined is false": lambda patch: patch.setattr(
        simplify, "OF_TEST", (TruthContext.IS_TRUE,) * len(TruthContext)
    ),
    "x ? true : y is x || y, also where x is undefined": replaced(
        simplify,
        "_as_logic",
        lambda original, truth, *others: original(truth & ~outcomes.UNDEFINED, *others),
    ),
    "branches of a conditional in the wrong order": replaced(
        simplify, "_choice", lambda original, test, yes, no, *others: original(test, no, yes, *others)
    ),
    "an unknown attribute is undefined": replaced(
        Unknowns, "_unknown", lambda original, *arguments: UNDEFINED
    ),
    "my.x looks into the target": replaced(
        evaluate,
        "_lookup",
        lambda original, node, scope, run, depth, fall_back: original(
            node, scope, run, depth, fall_back=fall_back or run.is_partial
        ),
    ),
    "time is folded": lambda patch: patch.setattr(evaluate, "VOLATILE", frozenset()),
    "a circle is an error": replaced(
        evaluate,
        "_enter",
        lambda original, node, key, scope, run, depth: (
            ERROR
            if run.is_partial and (id(node), id(scope.top), key) in run.active
            else original(node, key, scope, run, depth)
        ),
    ),
    "not below is above": entry(domain.NEGATED, "<", ">"),
    "5 < x is x < 5": entry(operators._FLIPPED, "<", "<"),
    "no real lies between two integers": replaced(
        domain.Interval, "is_empty", lambda original, interval: not interval.has_integer
    ),
    "strings compare with their case": lambda patch: patch.setattr(domain, "lower", lambda text: text),
    "=!= ignores case": replaced(
        domain.Domain, "_exclude", lambda original, own, value: own._require_comparison("!=", value)
    ),
    "isUndefined of an unknown attribute is false": entry(
        outcomes._OF_CALL, "isundefined", lambda arguments: outcomes.FALSE
    ),
    "|| and && are one operator": replaced(
        simplify,
        "_flat",
        lambda original, op, operands, known: [
            (part, known.outcomes_of(part))
            for tree, _ in operands
            for part in (tree.operands if type(tree) is Logic else (tree,))
        ],
    ),
    "constants that are errors are dropped": replaced(
        simplify,
        "_significant",
        lambda original, op, operands: original(op, [pair for pair in operands if pair[0] != Literal(ERROR)]),
    ),
    "division by zero is a number": replaced(
        outcomes, "of_arithmetic", lambda original, *arguments: original(*arguments) & ~outcomes.ERROR
    ),
    "values of different types compare": replaced(
        outcomes, "of_comparison", lambda original, *arguments: outcomes.BOOLEAN
    ),
    "=?= is never false": replaced(
        outcomes, "of_identity", lambda original, *arguments: original(*arguments) & ~outcomes.FALSE
    ),
    "an alternative is forgotten": replaced(
        satisfiability, "_alternatives", lambda original, tree, wanted: original(tree, wanted)[:1]
    ),
    "an alternative of the conditions is forgotten": replaced(
        host_conditions, "_smallest", lambda original, alternatives: original(alternatives)[:1]
    ),
    "the stronger condition is redundant": replaced(
        atoms,
        "_narrowed",
        lambda original, known, group: original(
            known, [atom._replace(wanted=not atom.wanted) for atom in group]
        ),
    ),
    "x == false is !x, also for a number": replaced(
        simplify,
        "truth_compared",
        lambda original, tree, known, *others: original(tree, outcomes.BOOLEAN, *others),
    ),
    "x ?: y is x": replaced(
        simplify,
        "_default",
        lambda original, node, context, known: simplify.simplify(node.test, context, known),
    ),
    "a negative factor keeps the direction": lambda patch: patch.setattr(
        inversion.Operation, "direction", property(lambda operation: 1)
    ),
    "integers do not overflow": lambda patch: patch.setattr(
        inversion.Operation, "wraps", lambda operation, value: False
    ),
    "every integer is a quantity": replaced(
        Unknowns,
        "is_quantity",
        lambda original, known, node: known.is_unknown(node) and known.outcomes[node.key] == outcomes.INTEGER,
    ),
    "a bound is looser by one": replaced(
        inversion, "_first", lambda original, is_true: original(is_true) - 1
    ),
    "an inequality is an equality": replaced(
        inversion,
        "_conditions",
        lambda original, operations, op, bound: original(operations, "==" if op == "!=" else op, bound),
    ),
    "no solution of one equation means none for the other": replaced(
        inversion,
        "_conditions",
        lambda original, *arguments: False if (answer := original(*arguments)) is True else answer,
    ),
    "a chain is not nested to the left": rule(
        simplify,
        type(Logic("||", ())),
        lambda original, node, context, known: original(Logic(node.op, node.operands[::-1]), context, known),
    ),
}


@pytest.fixture(scope="module")
def triples() -> list[Any]:
    return [draw(Random(f"fault {number}")) for number in range(MOST_TRIPLES)]


@pytest.fixture(autouse=True)
def _nothing_remembered() -> Iterator[None]:
    """No solution of one fault is used for another, or after the last."""
    inversion._conditions.cache_clear()
    yield
    inversion._conditions.cache_clear()


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found(name: str, triples: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    FAULTS[name](monkeypatch)
    for number, triple in enumerate(triples):
        if counterexample(triple, Random(number), ads=6) is not None:
            print(f"found by triple {number}")
            return
    pytest.fail(f"no counter-example in {MOST_TRIPLES} triples")
