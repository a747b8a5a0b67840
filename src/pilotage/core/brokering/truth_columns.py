"""The truth of an expression in many ads at once, where each attribute that it names is known.

Logic, conditionals and `member` work on columns. Any other part is evaluated once for each group of ads whose
values count alike. The truth equals the evaluator's, as tests show.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pilotage.core.brokering.ad_columns import AdColumns
from pilotage.core.brokering.match import STEPS
from pilotage.core.brokering.numbered_ads import SCOPES, Dependencies, NumberedAd, Part, own_key
from pilotage.core.classads import (
    UNDEFINED,
    Attribute,
    Call,
    ClassAd,
    Conditional,
    Expression,
    Literal,
    Logic,
    Unary,
    evaluate,
)
from pilotage.core.classads.values import lower, truth

Codes = NDArray[np.int8]
CodesInSteps: TypeAlias = Generator[None, None, Codes]

FALSE: Final = 0
TRUE: Final = 1
_UNDEFINED: Final = 2
_ERROR: Final = 3
_NOT: Final = np.array([TRUE, FALSE, _UNDEFINED, _ERROR], dtype=np.int8)
_EMPTY: Final = ClassAd()
MOST_FORMULAS: Final = 16
"""Different expressions of one attribute that are worked through as columns."""


def code_of(value: Any, *, exact: bool) -> int:
    """The code of a value: of its truth as an operand of `&&`, or `exact`, where only `true` itself is TRUE."""
    if exact:
        return TRUE if value is True else FALSE
    value = truth(value)
    if isinstance(value, bool):
        return TRUE if value else FALSE
    return _UNDEFINED if value is UNDEFINED else _ERROR


class TruthColumns:
    """Evaluates expressions over all ads of `columns`, each matched with one partner."""

    def __init__(
        self,
        columns: AdColumns,
        partner: NumberedAd,
        part_of: Callable[[Expression], Part],
        memory: dict[Any, Any],
        now: float,
        *,
        of_partner: bool,
        inside: frozenset[str] = frozenset(),
    ) -> None:
        """`of_partner`: the expressions are attributes of the partner, and the columns are the other side.

        `memory` keeps columns that are complete, for this `columns` and `now`. `inside`: the attributes of the
        columns that the expressions define.
        """
        self._columns, self._partner, self._part_of = columns, partner, part_of
        self._memory, self._now, self._of_partner = memory, now, of_partner
        self._open = inside
        self.computed = 0

    def column(self, expression: Expression, *, exact: bool = True) -> CodesInSteps:
        """The code for each ad. Pauses after each evaluation."""
        match expression:
            case Literal(value=value):
                return np.full(len(self._columns.ads), code_of(value, exact=exact), dtype=np.int8)
            case Logic():
                return (yield from self._logic(expression))
            case Unary(op="!", operand=operand):
                return _NOT[(yield from self.column(operand, exact=False))]
            case Conditional(yes=yes) if yes is not None:
                return (yield from self._conditional(expression, yes, exact=exact))
            case Attribute() if (formulas := self._formulas(expression)) is not None:
                return (yield from self._of_formulas(*formulas, exact=exact))
            case _:
                return (yield from self._atom(expression, exact=exact))

    def _formulas(self, node: Attribute) -> tuple[str, Mapping[int, Expression]] | None:
        """The expressions that an attribute of the columns has, by number; None: they are constants, or many."""
        name = self._name_in_columns(node)
        if name is None or name in self._open or not self._columns.has_formulas(name):
            return None
        formulas = self._columns.formulas(name)
        return (name, formulas) if len(formulas) <= MOST_FORMULAS else None

    def _of_formulas(self, name: str, formulas: Mapping[int, Expression], *, exact: bool) -> CodesInSteps:
        """The codes of an attribute: its expressions belong to the ads of the columns."""
        inner = TruthColumns(
            *(self._columns, self._partner, self._part_of, self._memory, self._now),
            of_partner=False,
            inside=self._open | {name},
        )
        numbers = np.array(self._columns.column(name), dtype=np.int64)
        result = np.full(len(numbers), FALSE if exact else _UNDEFINED, dtype=np.int8)
        for number, expression in formulas.items():
            codes = yield from inner.column(expression, exact=exact)
            members = numbers == number
            result[members] = codes[members]
        self.computed += inner.computed
        return result

    def _logic(self, node: Logic) -> CodesInSteps:
        decisive = TRUE if node.op == "||" else FALSE
        result = np.full(len(self._columns.ads), 1 - decisive, dtype=np.int8)
        is_open = np.ones(len(result), dtype=np.bool_)
        for operand in node.operands:
            codes = yield from self.column(operand, exact=False)
            # An error to the left of the decisive value is the result.
            ends = is_open & ((codes == decisive) | (codes == _ERROR))
            result[ends] = codes[ends]
            is_open &= ~ends
            result[is_open & (codes == _UNDEFINED)] = _UNDEFINED
            if not is_open.any():
                break
        return result

    def _conditional(self, node: Conditional, yes: Expression, *, exact: bool) -> CodesInSteps:
        result = (yield from self.column(node.test, exact=False)).copy()
        chosen, other = result == TRUE, result == FALSE
        if exact:
            result[:] = FALSE
        for members, branch in ((chosen, yes), (other, node.no)):
            if members.any():
                codes = yield from self.column(branch, exact=exact)
                result[members] = codes[members]
        return result

    def _atom(self, expression: Expression, *, exact: bool) -> CodesInSteps:
        part = self._part_of(expression)
        needs = self._columns.closure(part.needs, self._partner)
        key = (id(part), self._of_partner, exact, own_key(self._partner, needs))
        known: tuple[Part, Codes] | None = self._memory.get(key)
        if known is not None:
            return known[1]
        codes = None
        if isinstance(expression, Call) and expression.key == "member" and len(expression.arguments) == 2:
            codes = yield from self._member(*expression.arguments, exact=exact)
        if codes is None:
            codes = yield from self._by_groups(part, needs, exact=exact)
        self._memory[key] = part, codes
        return codes

    def _by_groups(self, part: Part, needs: Dependencies, *, exact: bool) -> CodesInSteps:
        grouping, mine = self._columns.grouping(needs), own_key(self._partner, needs)
        answers = part.answers if not needs.is_volatile else {}
        codes = np.empty(len(grouping.keys), dtype=np.int8)
        for number, group in enumerate(grouping.keys):
            key = (self._of_partner, exact, grouping.names, group, mine)
            code = answers.get(key)
            if code is None:
                ad, partner = self._columns.ads[grouping.examples[number]].ad, self._partner.ad
                my, target = (partner, ad) if self._of_partner else (ad, partner)
                value = evaluate(part.expression, my, target, now=self._now, steps=STEPS)
                code = answers[key] = code_of(value, exact=exact)
                self.computed += 1
                yield
            codes[number] = code
        return codes[grouping.groups]

    def _member(
        self, item: Expression, items: Expression, *, exact: bool
    ) -> Generator[None, None, Codes | None]:
        """`member(item, items)` where `items` is a list in each ad, and `item` is a text of the partner."""
        name = self._name_in_columns(items)
        if name is None or any(map(self._columns.defines, self._names_of(item))):
            return None
        my, target = (self._partner.ad, _EMPTY) if self._of_partner else (_EMPTY, self._partner.ad)
        value = evaluate(item, my, target, now=self._now, steps=STEPS)
        lists = yield from self._columns.lists(name)
        if not isinstance(value, str) or lists is None:
            return None
        codes = np.where(lists.is_list, FALSE, FALSE if exact else _UNDEFINED).astype(np.int8)
        codes[lists.places.get(lower(value), _NOWHERE)] = TRUE
        return codes

    def _names_of(self, expression: Expression) -> frozenset[str]:
        needs = self._columns.closure(self._part_of(expression).needs, self._partner)
        # An ad as a whole counts as an attribute that each ad has.
        return needs.names - SCOPES if not needs.needs_whole_ad and not needs.is_volatile else _ANY_NAME

    def _name_in_columns(self, expression: Expression) -> str | None:
        """The attribute of the columns that an expression is; None: it is something else."""
        if not isinstance(expression, Attribute) or expression.absolute:
            return None
        base = expression.base
        if base is None:
            return expression.key if expression.key not in self._partner.numbers else None
        scopes = ("other", "target") if self._of_partner else ("my",)
        is_scope = isinstance(base, Attribute) and base.base is None and base.key in scopes
        return expression.key if is_scope else None


_NOWHERE: Final = np.zeros(0, dtype=np.int64)
_ANY_NAME: Final = frozenset({"*"})
