"""Functions over arguments of which some are known."""

from __future__ import annotations

from typing import Any

from pilotage.core.classads.functions import FUNCTIONS
from pilotage.core.classads.functions_basic import VOLATILE
from pilotage.core.classads.partial import outcomes as of
from pilotage.core.classads.partial.contexts import TruthContext, constant_in
from pilotage.core.classads.partial.unknowns import Unknowns
from pilotage.core.classads.tree import ERROR, Call, Expression, ListOf, Literal
from pilotage.core.classads.values import BINARY, TextTooLong


def simplified_call(
    call: Call, arguments: list[tuple[Expression, int]], context: TruthContext, unknowns: Unknowns
) -> tuple[Expression, int]:
    """A call of simplified arguments, with its outcomes."""
    trees = [tree for tree, _ in arguments]
    if call.key == "size" and len(trees) == 1 and type(trees[0]) is ListOf:
        return _constant(len(trees[0].items), context)
    if call.key == "member" and len(trees) == 2 and type(trees[1]) is ListOf:
        answer = _member(trees[0], trees[1], arguments[0][1])
        if isinstance(answer, bool):
            return _constant(answer, context)
        if answer is not None:
            return Call(call.name, (trees[0], answer)), of.of_call("member", [arguments[0][1], of.LIST])
    if call.key not in VOLATILE:
        values = _values(trees)
        if values is not None and call.key in FUNCTIONS:
            return _constant(_value(call.key, values, unknowns), context)
    return Call(call.name, tuple(trees)), of.of_call(call.key, [outcomes for _, outcomes in arguments])


def _constant(value: Any, context: TruthContext) -> tuple[Expression, int]:
    constant = constant_in(value, context)
    return constant, of.outcome_of(constant.value)


def _value(function: str, arguments: list[Any], unknowns: Unknowns) -> Any:
    try:
        return FUNCTIONS[function](arguments, unknowns)
    except TextTooLong:
        return ERROR


def _values(trees: list[Expression]) -> list[Any] | None:
    """The values of constants; None unless all are scalars."""
    values: list[Any] = []
    for tree in trees:
        if type(tree) is not Literal:
            return None
        values.append(tree.value)
    return values


def _member(item: Expression, items: ListOf, outcomes: int) -> bool | ListOf | None:
    """Whether known items decide, else the list without known items that differ; None where nothing is known."""
    if type(item) is not Literal or outcomes & (of.UNDEFINED | of.ERROR):
        return None
    left: list[Expression] = []
    for candidate in items.items:
        if type(candidate) is not Literal:
            left.append(candidate)
        elif BINARY["=="](candidate.value, item.value) is True:
            return True
    if not left:
        return False
    return ListOf(tuple(left)) if len(left) < len(items.items) else None
