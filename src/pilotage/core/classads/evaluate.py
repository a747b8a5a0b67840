"""The value of an expression in an ad, perhaps matched with another: three-valued, pure, bounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pilotage.core.classads.functions import FUNCTIONS, PAIRWISE
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
    children,
)
from pilotage.core.classads.values import BINARY, UNARY, Record, TextTooLong, Value, truth

# Depths count Python frames: an expression nests, and an attribute may name another, and so on.
MAX_EVALUATION_DEPTH: Final = 320
MAX_STEPS: Final = 100_000
# Characters that are worked through for one step.
TEXT_PER_STEP: Final = 4

_EMPTY: Final = ClassAd()


class OutOfSteps(Exception):
    """An evaluation has used up its limits: its value is ERROR. Never leaves this module."""


class Run:
    """One evaluation: its clock and source of chance, and the steps left to it."""

    __slots__ = ("active", "now", "rng", "steps")

    def __init__(self, now: float | None, rng: Chance | None, steps: int) -> None:
        self.now = now
        self.rng = rng
        self.steps = steps
        self.active: set[tuple[int, int, str]] = set()

    def charge(self, steps: int) -> None:
        self.steps -= steps
        if self.steps < 0:
            raise OutOfSteps

    def visit(self, depth: int, parts: int = 1) -> None:
        """Account for a node with this many parts at this depth."""
        self.steps -= parts
        if self.steps < 0 or depth > MAX_EVALUATION_DEPTH:
            raise OutOfSteps


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
    ERROR, without `rng`, `random()`. Attributes that define each other in a circle are UNDEFINED.

    `steps` bounds the work: nodes visited, items and characters that operators and functions go through. The
    same expression in the same ads takes the same steps everywhere. An evaluation that needs more, or nests too
    deep, is ERROR as a whole. It never raises.
    """
    mine = Record(my if my is not None else _EMPTY)
    if target is not None:
        theirs = Record(target)
        mine.other, theirs.other = theirs, mine
    try:
        return _plain(_eval(expression, mine, Run(now, rng, steps), 0))
    except (OutOfSteps, RecursionError):
        # RecursionError: only where the caller itself is nested very deep.
        return ERROR


def matches(left: ClassAd, right: ClassAd, *, now: float | None = None, rng: Chance | None = None) -> bool:
    """Whether each ad's `Requirements` is true of the other; an absent one is not true."""
    for ad, other in ((left, right), (right, left)):
        requirements = ad.index.get("requirements")
        if requirements is None or evaluate(requirements, ad, other, now=now, rng=rng) is not True:
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
    # As `visit`, without a call: most nodes are attributes.
    run.steps -= 1
    if run.steps < 0 or depth > MAX_EVALUATION_DEPTH:
        raise OutOfSteps
    if node.base is not None:
        return _select(_RULES[type(node.base)](node.base, scope, run, depth + 1), node.key, run, depth + 1)
    if node.absolute:
        # Matched ads hang below a nameless pair, which defines nothing.
        top = scope.top
        expression = None if top.other is not None else top.ad.index.get(node.key)
        return UNDEFINED if expression is None else _enter(expression, node.key, top, run, depth + 1)
    return _lookup(node.key, scope, run, depth + 1, fall_back=True)


def _select(base: Any, key: str, run: Run, depth: int) -> Any:
    if isinstance(base, Record):
        return _lookup(key, base, run, depth + 1, fall_back=False)
    if base is UNDEFINED:
        return UNDEFINED
    if isinstance(base, tuple):
        run.visit(depth, len(base))
        return tuple(_select(item, key, run, depth + 2) for item in base)
    return ERROR


def _lookup(key: str, scope: Record, run: Run, depth: int, *, fall_back: bool) -> Any:
    at: Record | None = scope
    while at is not None:
        expression = at.ad.index.get(key)
        if expression is not None:
            if type(expression) is Literal:
                return expression.value
            return _enter(expression, key, at, run, depth + 1)
        at = at.parent
    special = SPECIAL_NAMES.get(key)
    if special is not None:
        return special(scope) or UNDEFINED
    other = scope.other if fall_back else None
    expression = None if other is None else other.ad.index.get(key)
    if other is None or expression is None:
        return UNDEFINED
    return _enter(expression, key, other, run, depth + 1)


SPECIAL_NAMES: Final[dict[str, Callable[[Record], Record | None]]] = {
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
    run.visit(depth)
    mark = (id(node), id(scope.top), key)
    if mark in run.active:
        return UNDEFINED
    run.active.add(mark)
    value = _RULES[type(node)](node, scope, run, depth + 1)
    run.active.discard(mark)
    return value


def _subscript(node: Subscript, scope: Record, run: Run, depth: int) -> Any:
    run.visit(depth)
    base = _RULES[type(node.base)](node.base, scope, run, depth + 1)
    index = _RULES[type(node.index)](node.index, scope, run, depth + 1)
    if base is ERROR or index is ERROR:
        return ERROR
    if base is UNDEFINED or index is UNDEFINED:
        return UNDEFINED
    if isinstance(base, tuple) and type(index) is int:
        return base[index] if 0 <= index < len(base) else ERROR
    if isinstance(base, Record) and isinstance(index, str):
        expression = base.ad.index.get(index.lower())
        return UNDEFINED if expression is None else _enter(expression, index.lower(), base, run, depth + 1)
    return ERROR


def _unary(node: Unary, scope: Record, run: Run, depth: int) -> Any:
    run.visit(depth)
    return UNARY[node.op](_RULES[type(node.operand)](node.operand, scope, run, depth + 1))


def _logic(node: Logic, scope: Record, run: Run, depth: int) -> Any:
    # `decisive` settles it; an ERROR does so too, but not when it stands to the right of the decisive value.
    run.visit(depth, len(node.operands))
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
    run.visit(depth, len(node.rest))
    value = _RULES[type(node.first)](node.first, scope, run, depth + 1)
    for op, operand in node.rest:
        right = _RULES[type(operand)](operand, scope, run, depth + 1)
        if type(value) is str and type(right) is str:
            run.charge((len(value) + len(right)) // TEXT_PER_STEP)
        value = BINARY[op](value, right)
    return value


def _conditional(node: Conditional, scope: Record, run: Run, depth: int) -> Any:
    run.visit(depth)
    test = _RULES[type(node.test)](node.test, scope, run, depth + 1)
    if node.yes is None:
        return _RULES[type(node.no)](node.no, scope, run, depth + 1) if test is UNDEFINED else test
    test = truth(test)
    if not isinstance(test, bool):
        return test
    chosen = node.yes if test else node.no
    return _RULES[type(chosen)](chosen, scope, run, depth + 1)


def _call(node: Call, scope: Record, run: Run, depth: int) -> Any:
    run.visit(depth, 1 + len(node.arguments))
    if node.key == LAZY_CHOICE:
        return choose(
            node.arguments, lambda argument: _RULES[type(argument)](argument, scope, run, depth + 3)
        )
    function = FUNCTIONS.get(node.key)
    if function is None:
        return ERROR
    arguments = [_RULES[type(argument)](argument, scope, run, depth + 2) for argument in node.arguments]
    run.charge(work_of_call(node.key, arguments))
    try:
        return function(arguments, run)
    except TextTooLong:
        return ERROR


def work_of_call(function: str, arguments: list[Any]) -> int:
    """The steps that a function takes for these arguments: it goes through each of them once.

    One of PAIRWISE compares an argument with each item of a list.
    """
    steps = _extent(arguments)
    if function in PAIRWISE:
        length = max((len(value) for value in arguments if isinstance(value, tuple)), default=0)
        steps += length * (
            1 + max((len(v) for v in arguments if isinstance(v, str)), default=0) // TEXT_PER_STEP
        )
    return steps


def _extent(values: list[Any]) -> int:
    """Items, nodes and characters of values, counted in steps."""
    steps = 0
    stack: list[Any] = list(values)
    while stack:
        value = stack.pop()
        if isinstance(value, str):
            steps += len(value) // TEXT_PER_STEP
            continue
        steps += 1
        if isinstance(value, tuple):
            stack.extend(value)
        elif isinstance(value, Record):
            stack.append(value.ad)
        elif isinstance(value, Expression):
            stack.append(value.value) if isinstance(value, Literal) else stack.extend(children(value))
    return steps


def _list(node: ListOf, scope: Record, run: Run, depth: int) -> Any:
    run.visit(depth, len(node.items))
    return tuple([_RULES[type(item)](item, scope, run, depth + 2) for item in node.items])


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
