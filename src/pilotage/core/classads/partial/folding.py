"""The first pass of partial evaluation: names resolved, known parts computed, attributes inlined.

A *partial value* is a value of the evaluator where all is known, else the tree that remains. The tree refers to
unknown attributes alone, as `other.NAME`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pilotage.core.classads.evaluate import (
    SPECIAL_NAMES,
    TEXT_PER_STEP,
    work_of_call,
)
from pilotage.core.classads.functions import FUNCTIONS
from pilotage.core.classads.functions_basic import LAZY_CHOICE, VOLATILE
from pilotage.core.classads.partial.folding_run import TREES, Folding, Irreducible, Partial, written
from pilotage.core.classads.tree import (
    ERROR,
    UNDEFINED,
    Attribute,
    Call,
    Chain,
    ClassAd,
    Conditional,
    Expression,
    ListOf,
    Literal,
    Logic,
    Subscript,
    Unary,
)
from pilotage.core.classads.values import BINARY, UNARY, Record, TextTooLong, truth

_FALSE, _TRUE = Literal(False), Literal(True)


def fold(node: Expression, run: Folding) -> Partial:
    """The partial value of an expression in `my`; raises `Irreducible` or `OutOfSteps`.

    It is wrong if `run.is_ambiguous`.
    """
    return _RULES[type(node)](node, run.mine, run, 0)


def _literal(node: Literal, scope: Record, run: Folding, depth: int) -> Partial:
    return node.value


def _attribute(node: Attribute, scope: Record, run: Folding, depth: int) -> Partial:
    run.visit(depth)
    base = node.base
    if (
        type(base) is Attribute
        and base.base is None
        and scope is run.mine
        and not base.absolute
        and base.key in run.target_names
    ):
        # By far the most frequent: an attribute of the target, named in `my`.
        expression = run.theirs.ad.index.get(node.key)
        if type(expression) is Literal:
            return expression.value
        if expression is None and node.key not in SPECIAL_NAMES:
            return run.unknown_attribute(node.name, node.key, node)
    return _resolved(node, scope, run, depth)


def _resolved(node: Attribute, scope: Record, run: Folding, depth: int) -> Partial:
    outermost = scope is run.mine and not run.active
    try:
        if node.base is not None:
            base = _RULES[type(node.base)](node.base, scope, run, depth + 1)
            return _select(base, node, node.key, run, depth + 1)
        if node.absolute:
            # Matched ads hang below a nameless pair, which defines nothing.
            return UNDEFINED
        return _lookup(node.name, node.key, scope, run, depth + 1, fall_back=True)
    except Irreducible:
        if not outermost:
            raise
        run.active.clear()
        return run.keep(node, scope)


def _select(base: Partial, node: Attribute, key: str, run: Folding, depth: int) -> Partial:
    if isinstance(base, Record):
        return _lookup(node.name, key, base, run, depth + 1, fall_back=False)
    if type(base) in TREES:
        return Attribute(node.name, base)
    if base is UNDEFINED:
        return UNDEFINED
    if isinstance(base, tuple):
        run.visit(depth, len(base))
        items = [_select(item, node, key, run, depth + 2) for item in base]
        if not any(type(item) in TREES for item in items):
            return tuple(items)
        return ListOf(tuple([item if type(item) in TREES else written(item) for item in items]))
    return ERROR


def _lookup(name: str, key: str, scope: Record, run: Folding, depth: int, *, fall_back: bool) -> Partial:
    at: Record | None = scope
    while at is not None:
        expression = at.ad.index.get(key)
        if expression is not None:
            return _enter(expression, key, at, run, depth + 1)
        at = at.parent
    special = SPECIAL_NAMES.get(key)
    if special is not None:
        return special(scope) or UNDEFINED
    # Only the outermost ads look into each other.
    fall_back = fall_back and scope.other is not None
    if scope.top is run.theirs:
        return _missing_in_target(name, key, run, depth, fall_back=fall_back)
    if not fall_back:
        if run.is_complete:
            return UNDEFINED
        raise Irreducible
    expression = run.theirs.ad.index.get(key)
    if expression is None:
        return run.unknown_attribute(name, key)
    return _enter(expression, key, run.theirs, run, depth + 1)


def _missing_in_target(name: str, key: str, run: Folding, depth: int, *, fall_back: bool) -> Partial:
    """A name that the target uses and lacks: it is unknown unless `my` defines it."""
    expression = run.mine.ad.index.get(key) if fall_back and key not in run.declared else None
    if expression is None:
        return run.unknown_attribute(name, key)
    run.borrowed.add(key)
    return _enter(expression, key, run.mine, run, depth + 1)


def _enter(node: Expression, key: str, scope: Record, run: Folding, depth: int) -> Partial:
    if type(node) is Literal:
        return node.value
    run.visit(depth)
    mark = (id(node), id(scope.top), key)
    if mark in run.active:
        return UNDEFINED
    run.active.add(mark)
    value = _RULES[type(node)](node, scope, run, depth + 1)
    run.active.discard(mark)
    return value


def _subscript(node: Subscript, scope: Record, run: Folding, depth: int) -> Partial:
    run.visit(depth)
    base = _RULES[type(node.base)](node.base, scope, run, depth + 1)
    index = _RULES[type(node.index)](node.index, scope, run, depth + 1)
    if base is ERROR or index is ERROR:
        return ERROR
    if type(index) is int and type(base) is ListOf:
        items = base.items
        return _value_of(items[index]) if 0 <= index < len(items) else ERROR
    if type(base) in TREES or type(index) in TREES:
        return Subscript(run.tree(base, node.base, scope), run.tree(index, node.index, scope))
    if base is UNDEFINED or index is UNDEFINED:
        return UNDEFINED
    if isinstance(base, tuple) and type(index) is int:
        return base[index] if 0 <= index < len(base) else ERROR
    if isinstance(base, Record) and isinstance(index, str):
        expression = base.ad.index.get(index.lower())
        if expression is not None:
            return _enter(expression, index.lower(), base, run, depth + 1)
        if base is run.theirs:
            return run.unknown_attribute(index, index.lower()) if run.is_complete else run.keep(node, scope)
        return UNDEFINED
    return ERROR


def _value_of(node: Expression) -> Partial:
    return node.value if type(node) is Literal else node


def _unary(node: Unary, scope: Record, run: Folding, depth: int) -> Partial:
    run.visit(depth)
    operand = _RULES[type(node.operand)](node.operand, scope, run, depth + 1)
    return Unary(node.op, operand) if type(operand) in TREES else UNARY[node.op](operand)


def _logic(node: Logic, scope: Record, run: Folding, depth: int) -> Partial:
    run.visit(depth, len(node.operands))
    op = node.op
    decisive = op == "||"
    remaining: list[Expression] = []
    is_undefined = False
    end: Any = None
    for operand in node.operands:
        value = _RULES[type(operand)](operand, scope, run, depth + 1)
        if type(value) in TREES:
            # A chain of one operator is flat, wherever its parts come from.
            remaining += value.operands if type(value) is Logic and value.op == op else (value,)
            continue
        value = truth(value)
        if value is decisive or value is ERROR:
            end = value
            break
        is_undefined = is_undefined or value is UNDEFINED
    if not remaining:
        return end if end is not None else (UNDEFINED if is_undefined else not decisive)
    if is_undefined:
        remaining.append(Literal(UNDEFINED))
    if end is not None:
        remaining.append(Literal(end))
    if len(remaining) == 1:
        remaining.insert(0, _FALSE if decisive else _TRUE)
    return Logic(op, tuple(remaining))


def _chain(node: Chain, scope: Record, run: Folding, depth: int) -> Partial:
    run.visit(depth, len(node.rest))
    first = node.first
    value = _RULES[type(first)](first, scope, run, depth + 1)
    if len(node.rest) == 1:
        op, operand = node.rest[0]
        right = _RULES[type(operand)](operand, scope, run, depth + 1)
        if type(value) not in TREES and type(right) not in TREES:
            if type(value) is str and type(right) is str:
                run.charge((len(value) + len(right)) // TEXT_PER_STEP)
            return BINARY[op](value, right)
        if value is first and (right is operand or type(operand) is Literal):
            return node
        return Chain(run.tree(value, first, scope), ((op, run.tree(right, operand, scope)),))
    return _long_chain(node, value, scope, run, depth)


def _long_chain(node: Chain, value: Partial, scope: Record, run: Folding, depth: int) -> Partial:
    rest: list[tuple[str, Expression]] = []
    source: Expression = node.first
    for position, (op, operand) in enumerate(node.rest):
        right = _RULES[type(operand)](operand, scope, run, depth + 1)
        if not rest and type(value) not in TREES and type(right) not in TREES:
            if type(value) is str and type(right) is str:
                run.charge((len(value) + len(right)) // TEXT_PER_STEP)
            value = BINARY[op](value, right)
            source = Chain(node.first, node.rest[: position + 1])
            continue
        if not rest:
            value = run.tree(value, source, scope)
        rest.append((op, run.tree(right, operand, scope)))
    return Chain(value, tuple(rest)) if rest else value


def _conditional(node: Conditional, scope: Record, run: Folding, depth: int) -> Partial:
    run.visit(depth)
    test = _RULES[type(node.test)](node.test, scope, run, depth + 1)
    if type(test) not in TREES:
        if node.yes is None:
            return _RULES[type(node.no)](node.no, scope, run, depth + 1) if test is UNDEFINED else test
        test = truth(test)
        if not isinstance(test, bool):
            return test
        chosen = node.yes if test else node.no
        return _RULES[type(chosen)](chosen, scope, run, depth + 1)
    yes = None if node.yes is None else _branch(node.yes, scope, run, depth)
    return Conditional(test, yes, _branch(node.no, scope, run, depth))


def _branch(node: Expression, scope: Record, run: Folding, depth: int) -> Expression:
    return run.tree(_RULES[type(node)](node, scope, run, depth + 1), node, scope)


def _call(node: Call, scope: Record, run: Folding, depth: int) -> Partial:
    run.visit(depth, 1 + len(node.arguments))
    if node.key == LAZY_CHOICE:
        if len(node.arguments) != 3:
            return ERROR
        test, yes, no = node.arguments
        return _conditional(Conditional(test, yes, no), scope, run, depth + 1)
    function = FUNCTIONS.get(node.key)
    if function is None:
        return ERROR
    arguments = [_RULES[type(argument)](argument, scope, run, depth + 2) for argument in node.arguments]
    if node.key in VOLATILE or any(type(argument) in TREES for argument in arguments):
        pairs = zip(arguments, node.arguments, strict=True)
        return Call(node.name, tuple([run.tree(value, source, scope) for value, source in pairs]))
    run.charge(work_of_call(node.key, arguments))
    try:
        return function(arguments, run)
    except TextTooLong:
        return ERROR


def _list(node: ListOf, scope: Record, run: Folding, depth: int) -> Partial:
    run.visit(depth, len(node.items))
    items = [_RULES[type(item)](item, scope, run, depth + 2) for item in node.items]
    if not any(type(item) in TREES for item in items):
        return tuple(items)
    pairs = zip(items, node.items, strict=True)
    return ListOf(tuple([run.tree(item, source, scope) for item, source in pairs]))


def _record(node: ClassAd, scope: Record, run: Folding, depth: int) -> Partial:
    return Record(node, scope)


_RULES: Final[dict[type, Callable[[Any, Record, Folding, int], Partial]]] = {
    Literal: _literal,
    Attribute: _attribute,
    Subscript: _subscript,
    Unary: _unary,
    Logic: _logic,
    Chain: _chain,
    Conditional: _conditional,
    Call: _call,
    ListOf: _list,
    ClassAd: _record,
}
