"""The second pass of partial evaluation: an expression of unknown attributes made smaller, for its context.

Each rule returns a tree and the outcomes that it can have. The tree is the same as the original in the context,
for every ad that gives each unknown attribute a value of its kind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from pilotage.core.classads.evaluate import value_in
from pilotage.core.classads.functions_basic import VOLATILE
from pilotage.core.classads.partial import outcomes as of
from pilotage.core.classads.partial.atoms import redundant
from pilotage.core.classads.partial.contexts import (
    BELOW_NOT,
    DECISIONS,
    LITERALS,
    OF_OPERANDS,
    OF_TEST,
    TruthContext,
    constant_in,
)
from pilotage.core.classads.partial.inversion import solved
from pilotage.core.classads.partial.operators import negation, operation, truth_compared
from pilotage.core.classads.partial.unknowns import Unknowns, is_comparable
from pilotage.core.classads.tree import (
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
from pilotage.core.classads.values import BINARY, UNARY

Result: TypeAlias = tuple[Expression, int]

_BOOLEAN_OR_ABSENT: Final = of.BOOLEAN | of.UNDEFINED | of.ERROR


def simplify(node: Expression, context: TruthContext, unknowns: Unknowns) -> Result:
    """The simplest tree found that counts as `node` in the context, with its outcomes. Raises `OutOfSteps`."""
    unknowns.charge()
    if type(node) is Literal:
        constant = node if context is TruthContext.VALUE else constant_in(node.value, context)
        return constant, of.outcome_of(constant.value)
    tree, outcomes = _RULES[type(node)](node, context, unknowns)
    decided = DECISIONS[context][outcomes]
    return (tree, outcomes) if decided is None else (decided, of.outcome_of(decided.value))


def _attribute(node: Attribute, context: TruthContext, unknowns: Unknowns) -> Result:
    if unknowns.nodes.get(node.key) is node:
        return node, unknowns.outcomes[node.key]
    if node.base is None:
        return node, of.ANYTHING
    base, outcomes = simplify(node.base, TruthContext.VALUE, unknowns)
    absent = outcomes & (of.UNDEFINED | of.ERROR)
    if not outcomes & (of.LIST | of.AD):
        # Only ads and lists have attributes.
        absent |= of.ERROR if outcomes & ~of.UNDEFINED else 0
        return Attribute(node.name, base), absent
    return Attribute(node.name, base), of.ANYTHING


def _subscript(node: Subscript, context: TruthContext, unknowns: Unknowns) -> Result:
    base, _ = simplify(node.base, TruthContext.VALUE, unknowns)
    index, _ = simplify(node.index, TruthContext.VALUE, unknowns)
    return Subscript(base, index), of.ANYTHING


def _list(node: ListOf, context: TruthContext, unknowns: Unknowns) -> Result:
    items = [simplify(item, TruthContext.VALUE, unknowns)[0] for item in node.items]
    return ListOf(tuple(items)), of.LIST


def _ad(node: ClassAd, context: TruthContext, unknowns: Unknowns) -> Result:
    return node, of.AD


def _unary(node: Unary, context: TruthContext, unknowns: Unknowns) -> Result:
    if node.op != "!":
        operand, outcomes = simplify(node.operand, TruthContext.VALUE, unknowns)
        if type(operand) is Literal:
            return _constant(UNARY[node.op](operand.value), context)
        return Unary(node.op, operand), of.of_unary(node.op, outcomes)
    operand, outcomes = simplify(node.operand, BELOW_NOT[context], unknowns)
    tree, result = negation(operand, unknowns), of.of_unary("!", outcomes)
    if type(operand) is Unary and operand.op == "!":
        return _as_truth(tree, unknowns.outcomes_of(tree), context)
    return tree, result


def _constant(value: Any, context: TruthContext) -> Result:
    constant = constant_in(value, context)
    return constant, of.outcome_of(constant.value)


def _as_truth(tree: Expression, outcomes: int, context: TruthContext) -> Result:
    """The truth value of a tree; where the context tells a number from it, as an operation that converts."""
    telling = of.NUMBER if context == TruthContext.MATCH else ~_BOOLEAN_OR_ABSENT
    if context not in (TruthContext.MATCH, TruthContext.VALUE) or not outcomes & telling:
        return tree, outcomes
    return Logic("||", (LITERALS[of.FALSE], tree)), of.TRUTHS[outcomes]


def _logic(node: Logic, context: TruthContext, unknowns: Unknowns) -> Result:
    inner, last = OF_OPERANDS[node.op][context]
    end = len(node.operands) - 1
    operands = [
        simplify(operand, last if position == end else inner, unknowns)
        for position, operand in enumerate(node.operands)
    ]
    return join(node.op, operands, context, unknowns)


def join(op: str, operands: list[Result], context: TruthContext, unknowns: Unknowns) -> Result:
    """`||` or `&&` of simplified operands."""
    kept = _significant(op, _flat(op, operands, unknowns))
    if unknowns.repeated and len(kept) > 1:
        kept = _distinct(kept)
    decisive, neutral = (of.TRUE, of.FALSE) if op == "||" else (of.FALSE, of.TRUE)
    last = OF_OPERANDS[op][context][1]
    while kept and DECISIONS[last][kept[-1][1]] == LITERALS[neutral]:
        # A constant that has become the last counts less than one before others.
        kept.pop()
    if not kept:
        return LITERALS[neutral], neutral
    if len(kept) > 1:
        dropped = redundant(op, kept, context, unknowns)
        if dropped is None:
            return LITERALS[decisive], decisive
        if dropped:
            kept = [pair for pair in kept if pair[0] not in dropped]
    if len(kept) == 1:
        return _as_truth(*kept[0], context)
    return _written(op, kept)


def _significant(op: str, operands: list[Result]) -> list[Result]:
    """The operands that matter, up to the first constant that ends the evaluation."""
    neutral = of.FALSE if op == "||" else of.TRUE
    kept: list[Result] = []
    end: list[Result] = []
    is_undefined = False
    for tree, outcomes in operands:
        if type(tree) is not Literal:
            kept.append((tree, outcomes))
            continue
        truth = of.TRUTHS[outcomes]
        if truth == of.UNDEFINED:
            is_undefined = True
        elif truth != neutral:
            end = [(LITERALS[truth], truth)]
            break
    if is_undefined:
        kept.append((LITERALS[of.UNDEFINED], of.UNDEFINED))
    return kept + end


def _distinct(operands: list[Result]) -> list[Result]:
    """Each operand once, except for large ones, and such as call `random`: their values differ each time."""
    seen: set[Expression] = set()
    distinct: list[Result] = []
    for tree, outcomes in operands:
        if not is_comparable(tree):
            distinct.append((tree, outcomes))
        elif tree not in seen:
            seen.add(tree)
            distinct.append((tree, outcomes))
    return distinct


def _written(op: str, operands: list[Result]) -> Result:
    return (
        Logic(op, tuple([tree for tree, _ in operands])),
        of.of_logic(op, [of.TRUTHS[outcomes] for _, outcomes in operands]),
    )


def _flat(op: str, operands: list[Result], unknowns: Unknowns) -> list[Result]:
    if not any(type(tree) is Logic and tree.op == op for tree, _ in operands):
        return operands
    flat: list[Result] = []
    for tree, outcomes in operands:
        if type(tree) is Logic and tree.op == op:
            flat += [(operand, unknowns.outcomes_of(operand)) for operand in tree.operands]
        else:
            flat.append((tree, outcomes))
    return flat


def _chain(node: Chain, context: TruthContext, unknowns: Unknowns) -> Result:
    tree, outcomes = simplify(node.first, TruthContext.VALUE, unknowns)
    is_same = tree is node.first and type(tree) is not Literal and len(node.rest) == 1
    for position, (op, operand) in enumerate(node.rest, 1):
        right, right_outcomes = simplify(operand, TruthContext.VALUE, unknowns)
        if type(tree) is Literal and type(right) is Literal:
            value = BINARY[op](tree.value, right.value)
            tree, outcomes = Literal(value), of.outcome_of(value)
            continue
        if type(right) is Literal and type(right.value) is bool:
            below = context if position == len(node.rest) else TruthContext.VALUE
            truth = truth_compared(tree, outcomes, op, right.value, below, unknowns)
            if truth is not None:
                tree, outcomes, is_same = truth, unknowns.outcomes_of(truth), False
                continue
        outcomes = of.of_operator(op, outcomes, right_outcomes, right)
        decided = LITERALS.get(outcomes)
        is_same = is_same and right is operand and type(tree) is Attribute and decided is None
        if not is_same:
            tree = operation(tree, op, right, unknowns) if decided is None else decided
    if is_same:
        return node, outcomes
    if type(tree) is Literal:
        return _constant(tree.value, context)
    # Operators on conditionals and truth values leave trees of other types.
    if type(tree) is not Chain:
        return simplify(tree, context, unknowns)
    conditions = solved(tree, unknowns)
    if conditions is None:
        return tree, outcomes
    if isinstance(conditions, bool):
        return _constant(conditions, context)
    return join("&&", [(condition, of.BOOLEAN) for condition in conditions], context, unknowns)


def _conditional(node: Conditional, context: TruthContext, unknowns: Unknowns) -> Result:
    if node.yes is None:
        return _default(node, context, unknowns)
    test, tested = simplify(node.test, OF_TEST[context], unknowns)
    truth = of.TRUTHS[tested]
    if type(test) is Literal and not truth & of.BOOLEAN:
        return test, tested
    if truth == of.TRUE:
        return simplify(node.yes, context, unknowns)
    if truth == of.FALSE:
        return simplify(node.no, context, unknowns)
    yes = simplify(node.yes, context, unknowns)
    no = simplify(node.no, context, unknowns)
    return _choice((test, tested), yes, no, context, unknowns)


def _choice(test: Result, yes: Result, no: Result, context: TruthContext, unknowns: Unknowns) -> Result:
    """A conditional, or the `||` or `&&` that counts as it where a branch is a constant."""
    truth = of.TRUTHS[test[1]]
    is_sure = not truth & (of.UNDEFINED | of.ERROR)
    if is_sure and is_comparable(yes[0]) and yes[0] == no[0]:
        return yes
    rewritten = _as_logic(truth, yes, no, context)
    if rewritten is None or _needs_number(yes, no, context):
        return Conditional(test[0], yes[0], no[0]), of.of_conditional(test[1], yes[1], no[1])
    op, is_negated, branch = rewritten
    if is_negated:
        left = negation(test[0], unknowns)
        first = simplify(left, OF_OPERANDS[op][context][0], unknowns)
    else:
        first = simplify(test[0], OF_OPERANDS[op][context][0], unknowns)
    return join(op, [first, yes if branch else no], context, unknowns)


def _needs_number(yes: Result, no: Result, context: TruthContext) -> bool:
    """Whether a branch has a number that the context tells from its truth value."""
    if context == TruthContext.MATCH:
        return bool((yes[1] | no[1]) & of.NUMBER)
    return context == TruthContext.VALUE and bool((yes[1] | no[1]) & ~_BOOLEAN_OR_ABSENT)


def _as_logic(truth: int, yes: Result, no: Result, context: TruthContext) -> tuple[str, bool, bool] | None:
    """The operator, whether the test is negated, and whether the other operand is `yes`; None if none fits.

    With a test that may be undefined or an error, only some contexts allow it.
    """
    is_sure = not truth & (of.UNDEFINED | of.ERROR)
    never_undefined = not truth & of.UNDEFINED
    true_side = context in (TruthContext.IS_TRUE, TruthContext.MATCH)
    false_side = context == TruthContext.IS_FALSE
    # Each row: the constant branch, and when the operation counts as the conditional.
    if no[0] == LITERALS[of.FALSE] and (is_sure or true_side or (false_side and never_undefined)):
        return "&&", False, True
    if yes[0] == LITERALS[of.FALSE] and (is_sure or true_side or (false_side and never_undefined)):
        return "&&", True, False
    if yes[0] == LITERALS[of.TRUE] and (is_sure or false_side or (true_side and never_undefined)):
        return "||", False, False
    if no[0] == LITERALS[of.TRUE] and (is_sure or false_side or (true_side and never_undefined)):
        return "||", True, True
    return None


def _default(node: Conditional, context: TruthContext, unknowns: Unknowns) -> Result:
    """`test ?: no`."""
    test, tested = simplify(node.test, TruthContext.VALUE, unknowns)
    if not tested & of.UNDEFINED:
        return simplify(test, context, unknowns)
    if tested == of.UNDEFINED:
        return simplify(node.no, context, unknowns)
    no, outcomes = simplify(node.no, context, unknowns)
    return Conditional(test, None, no), of.of_conditional(tested, None, outcomes)


def _call(node: Call, context: TruthContext, unknowns: Unknowns) -> Result:
    arguments = [simplify(argument, TruthContext.VALUE, unknowns) for argument in node.arguments]
    call = Call(node.name, tuple([tree for tree, _ in arguments]))
    if node.key not in VOLATILE and all(type(tree) is Literal for tree in call.arguments):
        return _constant(value_in(call, unknowns.mine, unknowns), context)
    return call, of.of_call(node.key, [outcomes for _, outcomes in arguments])


_RULES: Final[dict[type, Callable[[Any, TruthContext, Unknowns], Result]]] = {
    Attribute: _attribute,
    Subscript: _subscript,
    Unary: _unary,
    Logic: _logic,
    Chain: _chain,
    Conditional: _conditional,
    Call: _call,
    ListOf: _list,
    ClassAd: _ad,
}
