"""The value of an expression in an ad, perhaps matched with another: three-valued, pure, bounded.

One walk serves plain and partial evaluation. A *partial value* is a value where all is known, else the tree that
remains. The tree refers to unknown attributes alone, as `other.NAME`. Plain evaluation has no trees as values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from pilotage.core.classads.functions import FUNCTIONS, work_of_call
from pilotage.core.classads.functions_basic import LAZY_CHOICE, VOLATILE, Chance
from pilotage.core.classads.tree import (
    ERROR,
    NODES,
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
from pilotage.core.classads.values import (
    BINARY,
    TEXT_PER_STEP,
    UNARY,
    Record,
    TextTooLong,
    Value,
    truth,
    written,
)

# Depths count Python frames: an expression nests, and an attribute may name another, and so on.
MAX_EVALUATION_DEPTH: Final = 320
MAX_STEPS: Final = 100_000

_EMPTY: Final = ClassAd()


class OutOfSteps(Exception):
    """An evaluation has used up its limits: its value is ERROR. Never leaves this package."""


class Run:
    """One evaluation: its clock and source of chance, and the steps left to it."""

    __slots__ = ("active", "is_partial", "now", "rng", "steps")

    def __init__(
        self, now: float | None, rng: Chance | None, steps: int, *, is_partial: bool = False
    ) -> None:
        self.now = now
        self.rng = rng
        self.steps = steps
        self.is_partial = is_partial
        self.active: set[tuple[int, int, str]] = set()

    def missing(
        self, name: str, key: str, scope: Record, *, is_open: bool = False, source: Attribute | None = None
    ) -> Any:
        """The value of a name that is not defined in `scope`.

        `is_open`: nor in the other ad, which was searched too. `source`: the node that names it in the other ad.
        """
        return UNDEFINED

    def takes_from_other(self, key: str, scope: Record) -> bool:
        """Whether a bare name that `scope` lacks may have the definition of the other ad."""
        return True

    def charge(self, steps: int = 1) -> None:
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
    try:
        return _plain(value_in(expression, matched(my, target), Run(now, rng, steps)))
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


def matched(my: ClassAd | None, target: ClassAd | None) -> Record:
    """The record of `my`, matched with the target."""
    mine = Record(my if my is not None else _EMPTY)
    if target is not None:
        theirs = Record(target)
        mine.other, theirs.other = theirs, mine
    return mine


def value_in(node: Expression, scope: Record, run: Run) -> Any:
    """The value of an expression in an ad, partial if the run is; raises `OutOfSteps`."""
    return _RULES[type(node)](node, scope, run, 0)


def _literal(node: Literal, scope: Record, run: Run, depth: int) -> Any:
    return node.value


def _attribute(node: Attribute, scope: Record, run: Run, depth: int) -> Any:
    # As `visit`, without a call: most nodes are attributes.
    run.steps -= 1
    if run.steps < 0 or depth > MAX_EVALUATION_DEPTH:
        raise OutOfSteps
    base = node.base
    if base is not None:
        other = scope.other
        if (
            other is not None
            and type(base) is Attribute
            and base.key in _OF_OTHER
            and base.base is None
            and not base.absolute
            and base.key not in scope.ad.index
        ):
            # By far the most frequent: an attribute of the other ad.
            expression = other.ad.index.get(node.key)
            if type(expression) is Literal:
                return expression.value
            if expression is None and node.key not in SPECIAL_NAMES:
                return run.missing(node.name, node.key, other, source=node)
        return _select(_RULES[type(base)](base, scope, run, depth + 1), node, run, depth + 1)
    if node.absolute:
        # Matched ads hang below a nameless pair, which defines nothing.
        top = scope.top
        expression = None if top.other is not None else top.ad.index.get(node.key)
        return UNDEFINED if expression is None else _enter(expression, node.key, top, run, depth + 1)
    return _lookup(node, scope, run, depth + 1, fall_back=True)


def _select(base: Any, node: Attribute, run: Run, depth: int) -> Any:
    if isinstance(base, Record):
        return _lookup(node, base, run, depth + 1, fall_back=False)
    if base is UNDEFINED:
        return UNDEFINED
    if isinstance(base, tuple):
        run.visit(depth, len(base))
        return _listed([_select(item, node, run, depth + 2) for item in base], run)
    return Attribute(node.name, base) if type(base) in NODES else ERROR


def _lookup(node: Attribute, scope: Record, run: Run, depth: int, *, fall_back: bool) -> Any:
    key = node.key
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
    other = scope.other if fall_back else None
    if other is None:
        return run.missing(node.name, key, scope)
    expression = other.ad.index.get(key)
    if expression is not None and run.takes_from_other(key, scope):
        return _enter(expression, key, other, run, depth + 1)
    return run.missing(node.name, key, scope, is_open=True)


_OF_OTHER: Final = frozenset({"other", "target"})
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


def _subscript(node: Subscript, scope: Record, run: Run, depth: int) -> Any:
    run.visit(depth)
    base = _RULES[type(node.base)](node.base, scope, run, depth + 1)
    index = _RULES[type(node.index)](node.index, scope, run, depth + 1)
    if base is ERROR or index is ERROR:
        return ERROR
    if run.is_partial and (type(base) in NODES or type(index) in NODES):
        return Subscript(written(base), written(index))
    if base is UNDEFINED or index is UNDEFINED:
        return UNDEFINED
    if isinstance(base, tuple) and type(index) is int:
        return base[index] if 0 <= index < len(base) else ERROR
    if isinstance(base, Record) and isinstance(index, str):
        key = index.lower()
        expression = base.ad.index.get(key)
        if expression is not None:
            return _enter(expression, key, base, run, depth + 1)
        return UNDEFINED if base.parent is not None else run.missing(index, key, base)
    return ERROR


def _unary(node: Unary, scope: Record, run: Run, depth: int) -> Any:
    run.visit(depth)
    operand = _RULES[type(node.operand)](node.operand, scope, run, depth + 1)
    value = UNARY[node.op](operand)
    return Unary(node.op, operand) if value is ERROR and type(operand) in NODES else value


def _logic(node: Logic, scope: Record, run: Run, depth: int) -> Any:
    # `decisive` settles it; an ERROR does so too, but not when it stands to the right of the decisive value.
    run.visit(depth, len(node.operands))
    decisive = node.op == "||"
    result: Value = not decisive
    remaining: list[Expression] = []
    for operand in node.operands:
        value = _RULES[type(operand)](operand, scope, run, depth + 1)
        if type(value) is not bool:
            if type(value) in NODES:
                # A chain of one operator is flat, wherever its parts come from.
                remaining += value.operands if type(value) is Logic and value.op == node.op else (value,)
                continue
            value = truth(value)
        if value is decisive or value is ERROR:
            return _remaining_logic(node.op, remaining, result, value) if remaining else value
        if value is UNDEFINED:
            result = UNDEFINED
    return _remaining_logic(node.op, remaining, result) if remaining else result


def _remaining_logic(op: str, remaining: list[Expression], *constants: Value) -> Expression:
    """Operands that remain, and the truth of the others, of which an undefined one counts, or the last."""
    neutral = op == "&&"
    remaining += [Literal(value) for value in constants if value is not neutral]  # type: ignore[arg-type]
    if len(remaining) == 1:
        remaining.insert(0, Literal(neutral))
    return Logic(op, tuple(remaining))


def _chain(node: Chain, scope: Record, run: Run, depth: int) -> Any:
    run.visit(depth, len(node.rest))
    first = node.first
    value = first.value if type(first) is Literal else _RULES[type(first)](first, scope, run, depth + 1)
    for position, (op, operand) in enumerate(node.rest):
        if type(operand) is Literal:
            right: Any = operand.value
        else:
            right = _RULES[type(operand)](operand, scope, run, depth + 1)
        if run.is_partial and (type(value) in NODES or type(right) in NODES):
            return _remaining_chain(node, position, value, right, scope, run, depth)
        if type(value) is str and type(right) is str:
            run.charge((len(value) + len(right)) // TEXT_PER_STEP)
        value = BINARY[op](value, right)
    return value


def _remaining_chain(
    node: Chain, start: int, value: Any, right: Any, scope: Record, run: Run, depth: int
) -> Expression:
    """A chain from its first operator on of which an operand is a tree; `value` is its left operand."""
    op, operand = node.rest[start]
    if value is node.first and len(node.rest) == 1 and (right is operand or type(operand) is Literal):
        return node
    later = [(op, _tree(operand, scope, run, depth + 1)) for op, operand in node.rest[start + 1 :]]
    return Chain(written(value), ((op, written(right)), *later))


def _tree(node: Expression, scope: Record, run: Run, depth: int) -> Expression:
    return written(_RULES[type(node)](node, scope, run, depth))


def _conditional(node: Conditional, scope: Record, run: Run, depth: int) -> Any:
    run.visit(depth)
    test = _RULES[type(node.test)](node.test, scope, run, depth + 1)
    if run.is_partial and type(test) in NODES:
        yes = None if node.yes is None else _tree(node.yes, scope, run, depth + 1)
        return Conditional(test, yes, _tree(node.no, scope, run, depth + 1))
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
        if len(node.arguments) != 3:
            return ERROR
        return _conditional(Conditional(*node.arguments), scope, run, depth + 1)
    function = FUNCTIONS.get(node.key)
    if function is None:
        return ERROR
    arguments = [_RULES[type(argument)](argument, scope, run, depth + 2) for argument in node.arguments]
    if run.is_partial and (node.key in VOLATILE or _has_tree(arguments)):
        return Call(node.name, tuple([written(argument) for argument in arguments]))
    run.charge(work_of_call(node.key, arguments))
    try:
        return function(arguments, run)
    except TextTooLong:
        return ERROR


def _list(node: ListOf, scope: Record, run: Run, depth: int) -> Any:
    run.visit(depth, len(node.items))
    return _listed([_RULES[type(item)](item, scope, run, depth + 2) for item in node.items], run)


def _listed(items: list[Any], run: Run) -> Any:
    if run.is_partial and _has_tree(items):
        return ListOf(tuple([written(item) for item in items]))
    return tuple(items)


def _has_tree(values: Iterable[Any]) -> bool:
    return any(type(value) in NODES for value in values)


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
