"""The value of an expression in an ad, perhaps matched with another: three-valued, pure, bounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pilotage.core.classads.functions import FUNCTIONS
from pilotage.core.classads.functions_basic import LAZY_CHOICE, Chance, choose
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
from pilotage.core.classads.values import BINARY, UNARY, Record, TextTooLong, Value, truth

# An attribute may name another, and so on: this many deep. Each step nests at most MAX_DEPTH nodes.
MAX_EVALUATION_DEPTH: Final = 200
MAX_STEPS: Final = 100_000

_EMPTY: Final = ClassAd()


class Run:
    """One evaluation: what it may ask of the world, and what is left of its limits."""

    __slots__ = ("active", "now", "rng", "steps")

    def __init__(self, now: float | None, rng: Chance | None, steps: int) -> None:
        self.now = now
        self.rng = rng
        self.steps = steps
        self.active: set[tuple[int, int, str]] = set()


def evaluate(
    expression: Expression,
    my: ClassAd | None = None,
    target: ClassAd | None = None,
    *,
    now: float | None = None,
    rng: Chance | None = None,
    steps: int = MAX_STEPS,
) -> Any:
    """The value of an expression as one of `my`'s attributes would have it.

    A name is looked up in `my`, then in `target`; `my.x`, `target.x` and `other.x` say which. The result is
    an int, float, str, bool, UNDEFINED, ERROR, a tuple of values or a `ClassAd`. Without `now`, `time()` is
    ERROR, without `rng`, `random()`. Attributes that define each other in a circle are UNDEFINED; an
    evaluation that takes too many steps is ERROR. It never raises and never recurses deeper than its limits.
    """
    mine = Record(my if my is not None else _EMPTY)
    if target is not None:
        theirs = Record(target)
        mine.other, theirs.other = theirs, mine
    return _plain(_eval(expression, mine, Run(now, rng, steps), 0))


def matches(left: ClassAd, right: ClassAd, *, now: float | None = None, rng: Chance | None = None) -> bool:
    """Whether each ad's `Requirements` is true of the other; an absent one is not true."""
    for one, other in ((left, right), (right, left)):
        requirements = one.index.get("requirements")
        if requirements is None or evaluate(requirements, one, other, now=now, rng=rng) is not True:
            return False
    return True


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        return value.ad
    if isinstance(value, tuple):
        return tuple(_plain(item) for item in value)
    return value


def _eval(node: Expression, scope: Record, run: Run, depth: int) -> Any:
    return _RULES[type(node)](node, scope, run, depth)


def _literal(node: Literal, scope: Record, run: Run, depth: int) -> Any:
    return node.value


def _attribute(node: Attribute, scope: Record, run: Run, depth: int) -> Any:
    if node.base is not None:
        return _select(_RULES[type(node.base)](node.base, scope, run, depth + 1), node.key, run, depth)
    if node.absolute:
        # Matched ads hang below a nameless pair, which defines nothing.
        top = scope.top
        found = None if top.other is not None else top.ad.index.get(node.key)
        return UNDEFINED if found is None else _enter(found, node.key, top, run, depth)
    return _lookup(node.key, scope, run, depth, fall_back=True)


def _select(base: Any, key: str, run: Run, depth: int) -> Any:
    if isinstance(base, Record):
        return _lookup(key, base, run, depth, fall_back=False)
    if base is UNDEFINED:
        return UNDEFINED
    if isinstance(base, tuple):
        return tuple(_select(item, key, run, depth) for item in base)
    return ERROR


def _lookup(key: str, scope: Record, run: Run, depth: int, *, fall_back: bool) -> Any:
    at: Record | None = scope
    while at is not None:
        found = at.ad.index.get(key)
        if found is not None:
            if type(found) is Literal:
                return found.value
            return _enter(found, key, at, run, depth)
        at = at.parent
    special = _SPECIAL.get(key)
    if special is not None:
        return special(scope) or UNDEFINED
    other = scope.other if fall_back else None
    found = None if other is None else other.ad.index.get(key)
    if other is None or found is None:
        return UNDEFINED
    return _enter(found, key, other, run, depth)


_SPECIAL: Final[dict[str, Callable[[Record], Record | None]]] = {
    "my": lambda scope: scope,
    "target": lambda scope: scope.top.other,
    "other": lambda scope: scope.top.other,
    "self": lambda scope: scope,
    "parent": lambda scope: scope.parent,
    "root": lambda scope: None if scope.top.other is not None else scope.top,
    "toplevel": lambda scope: None if scope.top.other is not None else scope.top,
}


def _enter(node: Expression, key: str, scope: Record, run: Run, depth: int) -> Any:
    """The value of an attribute found, which may turn out to be on its way already."""
    run.steps -= 1
    if run.steps < 0 or depth > MAX_EVALUATION_DEPTH:
        return ERROR
    mark = (id(node), id(scope.top), key)
    if mark in run.active:
        return UNDEFINED
    run.active.add(mark)
    value = _RULES[type(node)](node, scope, run, depth + 2)
    run.active.discard(mark)
    return value


def _subscript(node: Subscript, scope: Record, run: Run, depth: int) -> Any:
    base = _RULES[type(node.base)](node.base, scope, run, depth + 1)
    index = _RULES[type(node.index)](node.index, scope, run, depth + 1)
    if base is ERROR or index is ERROR:
        return ERROR
    if base is UNDEFINED or index is UNDEFINED:
        return UNDEFINED
    if isinstance(base, tuple) and type(index) is int:
        return base[index] if 0 <= index < len(base) else ERROR
    if isinstance(base, Record) and isinstance(index, str):
        found = base.ad.index.get(index.lower())
        return UNDEFINED if found is None else _enter(found, index.lower(), base, run, depth)
    return ERROR


def _unary(node: Unary, scope: Record, run: Run, depth: int) -> Any:
    return UNARY[node.op](_RULES[type(node.operand)](node.operand, scope, run, depth + 1))


def _logic(node: Logic, scope: Record, run: Run, depth: int) -> Any:
    # `decisive` settles it; an ERROR does so too, but not when it stands to the right of the decisive value.
    run.steps -= len(node.operands)
    if run.steps < 0:
        return ERROR
    decisive = node.op == "||"
    result: Value = not decisive
    for operand in node.operands:
        value = truth(_RULES[type(operand)](operand, scope, run, depth + 1))
        if value is decisive or value is ERROR:
            return value
        if value is UNDEFINED:
            result = UNDEFINED
    return result


def _chain(node: Chain, scope: Record, run: Run, depth: int) -> Any:
    run.steps -= len(node.rest)
    if run.steps < 0:
        return ERROR
    value = _RULES[type(node.first)](node.first, scope, run, depth + 1)
    for op, operand in node.rest:
        value = BINARY[op](value, _RULES[type(operand)](operand, scope, run, depth + 1))
    return value


def _conditional(node: Conditional, scope: Record, run: Run, depth: int) -> Any:
    test = _RULES[type(node.test)](node.test, scope, run, depth + 1)
    if node.yes is None:
        return _RULES[type(node.no)](node.no, scope, run, depth + 1) if test is UNDEFINED else test
    test = truth(test)
    if not isinstance(test, bool):
        return test
    return _eval(node.yes if test else node.no, scope, run, depth + 1)


def _call(node: Call, scope: Record, run: Run, depth: int) -> Any:
    run.steps -= 1 + len(node.arguments)
    if run.steps < 0:
        return ERROR
    if node.key == LAZY_CHOICE:
        return choose(node.arguments, lambda one: _RULES[type(one)](one, scope, run, depth + 1))
    function = FUNCTIONS.get(node.key)
    if function is None:
        return ERROR
    try:
        return function([_RULES[type(one)](one, scope, run, depth + 1) for one in node.arguments], run)
    except TextTooLong:
        return ERROR


def _list(node: ListOf, scope: Record, run: Run, depth: int) -> Any:
    run.steps -= len(node.items)
    if run.steps < 0:
        return ERROR
    return tuple(_RULES[type(item)](item, scope, run, depth + 1) for item in node.items)


def _record(node: ClassAd, scope: Record, run: Run, depth: int) -> Any:
    return Record(node, scope)


_RULES: Final[dict[type, Callable[[Any, Record, Run, int], Any]]] = {
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
