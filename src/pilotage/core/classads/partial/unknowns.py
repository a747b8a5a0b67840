"""Unknown attributes: their kinds, and the state of one partial evaluation that meets them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from pilotage.core.classads.evaluate import Run, matched
from pilotage.core.classads.partial import outcomes as of
from pilotage.core.classads.tree import (
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
    Unary,
    nodes_of,
)
from pilotage.core.classads.values import Irreducible, Record

LARGEST_QUANTITY: Final = 2**42
"""It times 2^20 still fits into 64 bits, as for bytes of a size in megabytes."""


class Kind(StrEnum):
    """The declared type of an unknown attribute: every full ad gives it a value of this type.

    INTEGER and NUMBER (an integer or a real) are never infinite and never NaN. STRINGS is a list of strings.
    QUANTITY is an integer of at most `LARGEST_QUANTITY`, negative or not, so that sums with it do not overflow.
    ANY stands for every value, undefined and error included: the attribute may be absent.
    """

    INTEGER = "integer"
    QUANTITY = "quantity"
    NUMBER = "number"
    STRING = "string"
    BOOLEAN = "boolean"
    STRINGS = "strings"
    ANY = "any"


OUTCOMES_OF: Final[Mapping[Kind, int]] = {
    Kind.INTEGER: of.INTEGER,
    Kind.QUANTITY: of.INTEGER,
    Kind.NUMBER: of.NUMBER,
    Kind.STRING: of.STRING,
    Kind.BOOLEAN: of.BOOLEAN,
    Kind.STRINGS: of.LIST,
    Kind.ANY: of.ANYTHING,
}


_SCOPES: Final = (Attribute("other"), Attribute("target"))


class Unknowns(Run):
    """One partial evaluation: its ads, the unknown attributes that it met, and the steps left.

    `nodes` has the one node that stands for an unknown attribute, and `outcomes` the values that it can have, by
    lower-case name. Names in `repeated` stand in the tree more than once.
    """

    __slots__ = (
        "borrowed",
        "is_complete",
        "kinds",
        "mine",
        "nodes",
        "outcomes",
        "prefix",
        "repeated",
        "theirs",
    )

    def __init__(
        self,
        my: ClassAd | None,
        target: ClassAd,
        kinds: Mapping[str, Kind],
        steps: int,
        *,
        is_complete: bool = True,
    ) -> None:
        """Not `is_complete`: the expression is a residual, so its names are of the target and say so."""
        super().__init__(None, None, steps, is_partial=True)
        self.mine = matched(my, target)
        self.theirs: Record = self.mine.other  # type: ignore[assignment]
        self.kinds = kinds
        self.is_complete = is_complete
        self.nodes: dict[str, Attribute] = {}
        self.outcomes: dict[str, int] = {}
        self.repeated: set[str] = set()
        # None: `my` hides both names of the target.
        self.prefix = next((scope for scope in _SCOPES if scope.key not in self.mine.ad.index), None)
        # Names that the target lacks and takes from `my`; a full ad must not define them.
        self.borrowed: set[str] = set()

    def missing(
        self, name: str, key: str, scope: Record, *, is_open: bool = False, source: Attribute | None = None
    ) -> Any:
        if scope.top is self.theirs or (is_open and self.is_complete):
            return self._unknown(name, key, source)
        if self.is_complete:
            return UNDEFINED
        raise Irreducible

    def takes_from_other(self, key: str, scope: Record) -> bool:
        """A name that the target uses and lacks is unknown if it is declared, else that of `my`."""
        if scope is self.mine:
            return True
        if key in self.kinds:
            return False
        self.borrowed.add(key)
        return True

    def _unknown(self, name: str, key: str, source: Attribute | None) -> Attribute:
        """The one node that stands for an unknown attribute of the target; `source` can be it."""
        node = self.nodes.get(key)
        if node is not None:
            self.repeated.add(key)
            return node
        if source is None:
            if self.prefix is None:
                raise Irreducible
            source = Attribute(name, self.prefix)
        node = self.nodes[key] = source
        self.outcomes[key] = OUTCOMES_OF[self.kinds.get(key, Kind.ANY)]
        return node

    def is_unknown(self, node: Expression) -> bool:
        return type(node) is Attribute and self.nodes.get(node.key) is node

    def is_quantity(self, node: Expression) -> bool:
        return self.is_unknown(node) and self.kinds.get(node.key) is Kind.QUANTITY  # type: ignore[union-attr]

    def outcomes_of(self, node: Expression) -> int:
        """All outcomes that the tree can have, or more."""
        self.charge()
        if type(node) is Literal:
            return of.outcome_of(node.value)
        if isinstance(node, Chain):
            outcomes = self.outcomes_of(node.first)
            for op, right in node.rest:
                outcomes = of.of_operator(op, outcomes, self.outcomes_of(right), right)
            return outcomes
        return self._outcomes_of_others(node)

    def _outcomes_of_others(self, node: Expression) -> int:
        match node:
            case Attribute():
                return self.outcomes[node.key] if self.nodes.get(node.key) is node else of.ANYTHING
            case Logic(op=op, operands=operands):
                return of.of_logic(op, [of.TRUTHS[self.outcomes_of(operand)] for operand in operands])
            case Unary(op=op, operand=operand):
                return of.of_unary(op, self.outcomes_of(operand))
            case Conditional(test=test, yes=yes, no=no):
                below = None if yes is None else self.outcomes_of(yes)
                return of.of_conditional(self.outcomes_of(test), below, self.outcomes_of(no))
            case Call(key=key, arguments=arguments):
                return of.of_call(key, [self.outcomes_of(argument) for argument in arguments])
            case ListOf():
                return of.LIST
            case ClassAd():
                return of.AD
            case _:
                return of.ANYTHING


# Nodes of a tree that is compared with others. Larger ones are compared with none: it would cost too much.
MOST_COMPARED: Final = 64


def is_comparable(tree: Expression) -> bool:
    """Whether the tree is small, and two evaluations of it can't differ."""
    return not any(
        count > MOST_COMPARED or (type(node) is Call and node.key == "random")
        for count, node in enumerate(nodes_of(tree), 1)
    )
