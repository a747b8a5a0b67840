"""The tree of a ClassAd expression: frozen values that compare by structure.

Chains of one precedence level (`a - b + c`, `a || b || c`) are one flat node. So the depth of a long disjunction of
sites, and of its evaluation, does not grow with its length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NoReturn, TypeAlias, final, get_args

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1


@final
class Undefined:
    """The value of an attribute nobody defined. It has no truth: `bool()` of it raises."""

    __slots__ = ()

    def __bool__(self) -> NoReturn:
        raise TypeError("UNDEFINED is neither true nor false; compare with `is`")

    def __repr__(self) -> str:
        return "UNDEFINED"

    def __reduce__(self) -> str:
        return "UNDEFINED"


@final
class Error:
    """The value of an expression that makes no sense. It has no truth: `bool()` of it raises."""

    __slots__ = ()

    def __bool__(self) -> NoReturn:
        raise TypeError("ERROR is neither true nor false; compare with `is`")

    def __repr__(self) -> str:
        return "ERROR"

    def __reduce__(self) -> str:
        return "ERROR"


UNDEFINED: Final = Undefined()
ERROR: Final = Error()

Scalar: TypeAlias = int | float | str | bool | Undefined | Error


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """A constant. Integers lie within 64 bits; equality tells `1`, `1.0` and `true` apart."""

    value: Scalar

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Literal):
            return NotImplemented
        return type(self.value) is type(other.value) and repr(self.value) == repr(other.value)

    def __hash__(self) -> int:
        return hash((type(self.value), repr(self.value)))


@dataclass(frozen=True, slots=True)
class Attribute:
    """`name`, `.name` (absolute) or `base.name`. Names are kept as written and compared without case."""

    name: str
    base: Expression | None = None
    absolute: bool = False
    key: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", self.name.lower())


@dataclass(frozen=True, slots=True)
class Subscript:
    """`base[index]`: of a list by integer, of an ad by attribute name."""

    base: Expression
    index: Expression


@dataclass(frozen=True, slots=True)
class Unary:
    """One of `- + ! ~` before an operand."""

    op: str
    operand: Expression


@dataclass(frozen=True, slots=True)
class Logic:
    """`||` or `&&` over two or more operands, from left to right."""

    op: str
    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Chain:
    """Binary operators of one precedence level, applied from left to right."""

    first: Expression
    rest: tuple[tuple[str, Expression], ...]


@dataclass(frozen=True, slots=True)
class Conditional:
    """`test ? yes : no`; without `yes`, `test ?: no`: the test itself unless it is undefined.

    The second form binds tighter than any other operator: `-x ?: 3` is `-(x ?: 3)`.
    """

    test: Expression
    yes: Expression | None
    no: Expression


@dataclass(frozen=True, slots=True)
class Call:
    """A function applied to arguments. Names are kept as written and compared without case."""

    name: str
    arguments: tuple[Expression, ...]
    key: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", self.name.lower())


@dataclass(frozen=True, slots=True)
class ListOf:
    """`{a, b}`."""

    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class ClassAd:
    """`[a = 1; b = 2]`: attributes in the order written, each name once."""

    attributes: tuple[tuple[str, Expression], ...] = ()
    index: dict[str, Expression] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "index", {name.lower(): value for name, value in self.attributes})

    def __hash__(self) -> int:
        return hash(self.attributes)

    def get(self, name: str) -> Expression | None:
        """The expression of an attribute, its name taken without case."""
        return self.index.get(name.lower())

    def extended(self, attributes: Sequence[tuple[str, Expression]]) -> ClassAd:
        """The ad with further attributes, none of which it has. Faster than a new ad, since it copies the index."""
        extended = object.__new__(ClassAd)
        object.__setattr__(extended, "attributes", (*self.attributes, *attributes))
        index = {**self.index, **{name.lower(): value for name, value in attributes}}
        object.__setattr__(extended, "index", index)
        return extended


Expression: TypeAlias = (
    Literal | Attribute | Subscript | Unary | Logic | Chain | Conditional | Call | ListOf | ClassAd
)
NODES: Final = frozenset(get_args(Expression))
"""The types of nodes."""

# Binary operators that are strict and nest to the left, by how tightly they bind.
LEVEL: Final[dict[str, int]] = {
    "||": 1,
    "&&": 2,
    "|": 3,
    "^": 4,
    "&": 5,
    **dict.fromkeys(("==", "!=", "=?=", "=!="), 6),
    **dict.fromkeys(("<", "<=", ">", ">="), 7),
    **dict.fromkeys(("<<", ">>", ">>>"), 8),
    **dict.fromkeys(("+", "-"), 9),
    **dict.fromkeys(("*", "/", "%"), 10),
}
LEVEL_CONDITIONAL: Final = 0
LEVEL_UNARY: Final = 11
LEVEL_ELVIS: Final = 12
LEVEL_POSTFIX: Final = 13


def conjuncts(expression: Expression) -> Iterator[Expression]:
    """The operands of the conjunctions at the top, in the order written: each must be true."""
    stack = [expression]
    while stack:
        node = stack.pop()
        if isinstance(node, Logic) and node.op == "&&":
            stack.extend(reversed(node.operands))
        else:
            yield node


def nodes_of(tree: Expression) -> Iterator[Expression]:
    """All nodes of a tree, each once for each place where it stands."""
    stack = [tree]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(children(node))


def children(node: Expression) -> tuple[Expression, ...]:
    """The sub-expressions directly below a node, in the order written."""
    match node:
        case Attribute(base=base):
            return () if base is None else (base,)
        case Subscript(base=base, index=index):
            return (base, index)
        case Unary(operand=operand):
            return (operand,)
        case Logic(operands=below) | Call(arguments=below) | ListOf(items=below):
            return below
        case Chain(first=first, rest=rest):
            return (first, *(operand for _, operand in rest))
        case Conditional(test=test, yes=yes, no=no):
            return (test, no) if yes is None else (test, yes, no)
        case ClassAd(attributes=attributes):
            return tuple(value for _, value in attributes)
        case _:
            return ()
