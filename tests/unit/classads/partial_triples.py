"""Random triples of an expression, ads known in part and kinds of what is unknown, and what must hold for each.

A triple is drawn from a plain source of chance, which is fast enough for hundreds of thousands of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import floor, isfinite, nextafter
from random import Random
from typing import Any

from pilotage.core.classads import (
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
    evaluate,
    parse_expression,
    unparse,
)
from pilotage.core.classads.partial import Kind, can_be_true, host_conditions
from pilotage.core.classads.partial import outcomes as of
from pilotage.core.classads.partial.host_conditions import HostCondition
from pilotage.core.classads.partial.reduction import partial as partially_evaluated
from pilotage.core.classads.tree import children

KINDS = {
    "i": Kind.INTEGER,
    "j": Kind.INTEGER,
    "q": Kind.QUANTITY,
    "r": Kind.QUANTITY,
    "n": Kind.NUMBER,
    "m": Kind.NUMBER,
    "s": Kind.STRING,
    "t": Kind.STRING,
    "b": Kind.BOOLEAN,
    "c": Kind.BOOLEAN,
    "l": Kind.STRINGS,
    "a": Kind.ANY,
}
NUMBERS = (0, 1, 2, 3, 4, 5, -1, 2.5, 3.0, 3.5, 0.0)
BIG = (2**53 + 1, 2**63 - 1, -(2**63), float(2**53), 1e300, 2**62, 9.3e18)
LARGE = (2**42, 2**42 - 1, -(2**42))
FACTORS = (1, 2, 3, -1, -2, 5, 7, 0.5, 2.5, -1.5, 0, 3, 2, 1024, 2**20, 2**21, -(2**63), 2**62, 1e300, 0.1)
STRINGS = ("x", "X", "x", "X", "y", "xy", "", "1")
OTHERS = (UNDEFINED, ERROR)
ORDER = ("<", "<=", ">", ">=", "==", "!=")
DEFINED = ("K", "Known", "MyList", "Kt", "Mine", "Mine")


@dataclass(frozen=True)
class Triple:
    expression: Expression
    my: ClassAd
    target: ClassAd
    kinds: dict[str, Kind]

    def __str__(self) -> str:
        kinds = {name: str(kind) for name, kind in self.kinds.items()}
        return f"{unparse(self.expression)} @@ {unparse(self.my)} @@ {unparse(self.target)} @@ {kinds}"


class _Chance:
    """Every call of `random()` gives the same."""

    def random(self) -> float:
        return 0.4


class Drawing:
    """One draw. Mostly expressions of sense: a residual of nonsense is false.

    Few attributes are used often, so that conditions on one of them meet.
    """

    def __init__(self, rng: Random, declared: float) -> None:
        self.rng = rng
        self.declared = declared
        self.often = rng.sample(sorted(KINDS), 3)

    def triple(self) -> Triple:
        rng = self.rng
        target = {name: self.known(2) for name in ("K", "Known", "Kt") if rng.random() < 0.8}
        my = {name: self.known(2) for name in ("K", "MyList", "Mine") if rng.random() < 0.8}
        for name, kind in KINDS.items():
            if rng.random() < 0.25:
                target[name] = self.value(kind) if rng.random() < 0.9 else Literal(rng.choice(OTHERS))
            elif rng.random() < 0.05:
                my[name] = self.value(kind)
        kinds = {name: kind for name, kind in KINDS.items() if rng.random() < self.declared}
        return Triple(
            self.boolean(rng.choice((2, 3, 4))),
            ClassAd(tuple(my.items())),
            ClassAd(tuple(target.items())),
            kinds,
        )

    def value(self, kind: Kind) -> Expression:
        return constant(value_of(self.rng, of_kind(kind)))

    def known(self, depth: int) -> Expression:
        """An attribute of an ad: mostly constants, sometimes an expression of unknown ones."""
        choice = self.rng.random()
        if choice < 0.3:
            return Literal(self.rng.choice((*NUMBERS, *STRINGS, True, False, *OTHERS)))
        if choice < 0.45:
            return ListOf(tuple(Literal(self.rng.choice(STRINGS)) for _ in range(self.rng.randrange(4))))
        if choice < 0.55:
            return ClassAd(
                (("p", self.number(1)), ("i", Literal(3))) if choice < 0.5 else (("q", self.boolean(1)),)
            )
        return self.boolean(depth) if choice < 0.8 else self.number(depth)

    def boolean(self, depth: int) -> Expression:
        rng = self.rng
        if depth <= 0 or rng.random() < 0.12:
            return rng.choice((self.truth_name, self.condition, self.condition, self.pair))()
        choice = rng.random()
        if choice < 0.45:
            count = rng.choice((2, 2, 3, 4))
            return Logic(rng.choice(("||", "&&")), tuple(self.boolean(depth - 1) for _ in range(count)))
        if choice < 0.55:
            return Unary("!", self.boolean(depth - 1))
        if choice < 0.7:
            return Conditional(self.boolean(depth - 1), self.boolean(depth - 1), self.boolean(depth - 1))
        if choice < 0.75:
            return Conditional(self.boolean(depth - 1), None, self.boolean(depth - 1))
        if choice < 0.78:
            return Call("ifThenElse", tuple(self.boolean(depth - 1) for _ in range(3)))
        if choice < 0.82:
            other = self.any(depth - 1) if rng.random() < 0.4 else Literal(rng.random() < 0.5)
            op = rng.choice((*ORDER, "==", "!=", "=?=", "=!="))
            return self.compared(self.boolean(depth - 1), op, other)
        if choice < 0.85:
            return self.any(depth)
        return self.pair() if choice < 0.94 else self.condition()

    def pair(self) -> Expression:
        """Two conditions on one attribute, which often decide each other."""
        rng = self.rng
        kind = rng.choice(("ij", "qr", "nm", "st", "st"))
        name, constants = self.name(kind), STRINGS if kind == "st" else NUMBERS
        ops = ("==", "=?=", "=!=", *ORDER)
        conditions = [Chain(name, ((rng.choice(ops), Literal(rng.choice(constants))),)) for _ in range(2)]
        return Logic(rng.choice(("||", "&&", "&&")), tuple(conditions))

    def condition(self) -> Expression:
        rng = self.rng
        choice = rng.random()
        op = rng.choice(ORDER)
        if choice < 0.12:
            bounds = (*NUMBERS, *NUMBERS, 7, 12, 1023, 1024, -9, *LARGE, *BIG)
            return self.compared(self.solvable(), op, Literal(rng.choice(bounds)))
        if choice < 0.45:
            return self.compared(self.number(1), op, Literal(rng.choice(NUMBERS)))
        if choice < 0.6:
            return self.compared(self.name("st"), op, Literal(rng.choice(STRINGS)))
        if choice < 0.68:
            literal = Literal(rng.choice((*NUMBERS, *STRINGS, True, False, *OTHERS, *BIG)))
            left = self.name("ijnstbla")
            if rng.random() < 0.3:
                left = Conditional(
                    self.truth_name(), Literal(rng.choice(NUMBERS)), Literal(rng.choice(NUMBERS))
                )
            return self.compared(left, rng.choice(("=?=", "=!=", op)), literal)
        if choice < 0.78:
            item = self.name("stn") if rng.random() < 0.3 else Literal(rng.choice(STRINGS))
            items = rng.choice(
                (self.name("l"), self.name("l"), self.list(), self.list(), Attribute("MyList"))
            )
            return Call(rng.choice(("member", "member", "member", "identicalMember")), (item, items))
        if choice < 0.84:
            return self.compared(self.number(1), op, self.number(1))
        if choice < 0.92:
            return Call(
                rng.choice(("isUndefined", "isUndefined", "isError", "isString", "isInteger")), (self.any(0),)
            )
        return self.call()

    def call(self) -> Expression:
        rng = self.rng
        return rng.choice(
            (
                lambda: Call("stringListMember", (Literal(rng.choice(STRINGS)), self.name("st"))),
                lambda: Call("regexp", (Literal(rng.choice(("x", "^y", "("))), self.name("st"))),
                lambda: Call("anyCompare", (Literal(rng.choice(ORDER)), self.list(), self.number(0))),
                lambda: self.compared(Call("size", (self.any(0),)), rng.choice(ORDER), Literal(1)),
                lambda: self.compared(Call("time", ()), rng.choice(ORDER), Literal(rng.choice((50, 200)))),
                lambda: self.compared(Call("random", ()), rng.choice(ORDER), Literal(0.4)),
                lambda: self.compared(Call("toUpper", (self.name("st"),)), "==", Literal("X")),
                lambda: self.compared(Subscript(self.list(), Literal(rng.randrange(3))), "==", Literal("x")),
                lambda: Call("versionGE", (self.name("st"), Literal("1"))),
            )
        )()

    def number(self, depth: int) -> Expression:
        rng = self.rng
        if depth <= 0 or rng.random() < 0.6:
            return self.name("ijnmqr") if rng.random() < 0.85 else Literal(rng.choice(NUMBERS))
        choice = rng.random()
        if choice < 0.6:
            ops = rng.choice(("+-", "*/%"))
            rest = tuple((rng.choice(ops), self.number(depth - 1)) for _ in range(rng.choice((1, 1, 2))))
            return Chain(self.number(depth - 1), rest)
        if choice < 0.7:
            operand = self.number(depth - 1)
            return operand if isinstance(operand, Literal) else Unary("-", operand)
        if choice < 0.85:
            return Conditional(self.boolean(depth - 1), self.number(depth - 1), self.number(depth - 1))
        return Conditional(self.number(depth - 1), None, self.number(depth - 1))

    def solvable(self) -> Expression:
        """Arithmetic with constants over one attribute, often of a kind that does not overflow."""
        rng = self.rng
        tree = self.name(rng.choice(("ijnmqr", "qr")))
        for _ in range(rng.choice((1, 1, 2, 3))):
            if rng.random() < 0.15:
                tree = Unary(rng.choice("--+"), tree)
                continue
            op, constant = rng.choice("++--**//%"), Literal(rng.choice(FACTORS[: rng.choice((8, 13, 20))]))
            level = tree.rest if isinstance(tree, Chain) and rng.random() < 0.3 else ()
            if level and isinstance(tree, Chain) and (op in "+-") is (level[-1][0] in "+-"):
                tree = Chain(tree.first, (*level, (op, constant)))
            elif rng.random() < 0.3:
                tree = Chain(constant, ((op, tree),))
            else:
                tree = Chain(tree, ((op, constant),))
        return tree

    def list(self) -> Expression:
        items = [Literal(self.rng.choice(STRINGS)) for _ in range(self.rng.randrange(3))]
        return ListOf((*items, self.name("ists")) if self.rng.random() < 0.6 else tuple(items))

    def any(self, depth: int) -> Expression:
        choice = self.rng.random()
        if choice < 0.35:
            return self.name("".join(KINDS))
        if choice < 0.5:
            return Literal(self.rng.choice((*NUMBERS, *STRINGS, True, False, *OTHERS)))
        if choice < 0.65:
            return Attribute(self.rng.choice(("p", "q", "i", "z")), self.defined())
        return self.number(depth) if choice < 0.85 else self.list()

    def truth_name(self) -> Expression:
        return self.name("bbcna") if self.rng.random() < 0.75 else self.defined()

    def defined(self) -> Expression:
        rng = self.rng
        return rng.choice(
            (
                lambda: Attribute(rng.choice(DEFINED)),
                lambda: Attribute(rng.choice(DEFINED), Attribute(rng.choice(("my", "other", "TARGET")))),
            )
        )()

    def name(self, choices: str) -> Expression:
        often = [name for name in self.often if name in choices]
        name = self.rng.choice(often if often and self.rng.random() < 0.7 else choices)
        if self.rng.random() < 0.1:
            name = name.upper()
        scope = self.rng.random()
        if scope < 0.5:
            return Attribute(name, Attribute("other"))
        return Attribute(name) if scope < 0.95 else Attribute(name, Attribute("my"))

    def compared(self, left: Expression, op: str, right: Expression) -> Expression:
        if self.rng.random() < 0.1:
            left, right = right, left
        return Chain(left, ((op, right),))


def draw(rng: Random, declared: float = 0.8) -> Triple:
    """`declared` is the share of attributes with a declared kind; a full ad may lack the others."""
    return Drawing(rng, declared).triple()


def of_kind(kind: Kind) -> int:
    from pilotage.core.classads.partial.unknowns import OUTCOMES_OF

    return OUTCOMES_OF[kind]


def value_of(rng: Random, outcomes: int, near: Sequence[int | float] = (), most: int = 2**63 - 1) -> Any:
    """A value that has one of these outcomes. Integers are at most `most`; some numbers are beside one of `near`."""

    def whole() -> int:
        integers = [n for n in (*NUMBERS, *NUMBERS, *BIG, *LARGE) if isinstance(n, int)]
        number = rng.choice(integers)
        if near and rng.random() < 0.5:
            number = floor(rng.choice(near)) + rng.choice((-1, 0, 1, 2))
        return max(-most, min(most, number))

    def real() -> float:
        if near and rng.random() < 0.5:
            number = float(rng.choice(near))
            return rng.choice((number, nextafter(number, -1e308), nextafter(number, 1e308), number + 0.5))
        return float(rng.choice((*NUMBERS, *NUMBERS, *BIG)))

    makers: dict[int, Callable[[], Any]] = {
        of.TRUE: lambda: True,
        of.FALSE: lambda: False,
        of.INTEGER: whole,
        of.REAL: real,
        of.STRING: lambda: rng.choice(STRINGS),
        of.UNDEFINED: lambda: UNDEFINED,
        of.ERROR: lambda: ERROR,
        of.LIST: lambda: tuple(rng.choice(STRINGS) for _ in range(rng.randrange(3))),
        of.AD: lambda: ClassAd((("p", Literal(1)),)),
    }
    return rng.choice([make for outcome, make in makers.items() if outcomes & outcome])()


def constant(value: Any) -> Expression:
    if isinstance(value, tuple):
        return ListOf(tuple(Literal(item) for item in value))
    return value if isinstance(value, ClassAd) else Literal(value)


def truth_in(expression: Expression, my: ClassAd, target: ClassAd) -> bool:
    return evaluate(expression, my, target, now=100.0, rng=_Chance()) is True


Judge = Callable[[Expression, ClassAd, ClassAd], bool]


def counterexample(
    triple: Triple, rng: Random, ads: int = 8, judge: Judge = truth_in, names: tuple[str, ...] = tuple(KINDS)
) -> str | None:
    """A reason why partial evaluation is wrong for this triple, found in full ads drawn at random."""
    partial = partially_evaluated(triple.expression, triple.my, triple.target, triple.kinds)
    tree = partial.tree
    # Not the outcomes that the evaluator supposes: a full ad may lack each undeclared attribute.
    met = () if partial.unknowns is None else partial.unknowns.outcomes
    outcomes = {name: of_kind(triple.kinds.get(name, Kind.ANY)) for name in met}
    # A name that `my` defines is `my`'s own, also where the target uses it, unless it is declared.
    quantities = {name for name, kind in triple.kinds.items() if kind is Kind.QUANTITY}
    near = _near(tree)
    rest = [name for name in names if name not in triple.my.index]
    declared = {name: of_kind(kind) for name, kind in triple.kinds.items()}
    unknown = {**dict.fromkeys(rest, of.ANYTHING), **declared}
    unknown = {name: known for name, known in unknown.items() if name not in triple.target.index} | outcomes
    # The kinds of the residual are those that the expression was reduced with.
    kinds = {
        name: Kind.QUANTITY if name in quantities else _kind_of(known) for name, known in unknown.items()
    }
    possible = can_be_true(tree, kinds)
    alternatives = host_conditions(tree, kinds)
    read_back = parse_expression(unparse(tree))
    for _ in range(ads):
        drawn = {
            name: value_of(rng, known, near, 2**42 if name in quantities else 2**63 - 1)
            for name, known in unknown.items()
        }
        values = {
            name: constant(value)
            for name, value in drawn.items()
            # An absent attribute is undefined, unless `my` has one of its name.
            if value is not UNDEFINED or name in triple.my.index or rng.random() < 0.5
        }
        full = ClassAd((*triple.target.attributes, *values.items()))
        expected = judge(triple.expression, triple.my, full)
        for wrong, got in (
            ("residual", judge(tree, triple.my, full)),
            ("text of the residual", judge(read_back, triple.my, full)),
            ("host conditions", expected if alternatives is None else holds(alternatives, full)),
            ("can be true", expected and possible),
        ):
            if got is not expected:
                return (
                    f"{wrong} says {got}, not {expected}\n{triple}\nresidual {unparse(tree)}\n"
                    f"conditions {alternatives}\nvalues {unparse(ClassAd(tuple(values.items())))}"
                )
    return None


def _near(tree: Expression) -> tuple[int | float, ...]:
    """The numbers of a tree and their neighbours: a wrong bound shows beside it."""
    numbers: set[int | float] = set()
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, Literal) and type(node.value) in (int, float):
            numbers.add(node.value)  # type: ignore[arg-type]
        stack.extend(children(node))
    return tuple(sorted(number for number in numbers if isfinite(number)))


def _kind_of(outcomes: int) -> Kind:
    return next(kind for kind in Kind if of_kind(kind) == outcomes)


def holds(alternatives: tuple[tuple[HostCondition, ...], ...], host: ClassAd) -> bool:
    """Whether one alternative holds on a host, by the evaluator's own comparison."""
    return any(
        all(_condition_holds(condition, host) for condition in alternative) for alternative in alternatives
    )


def _condition_holds(condition: HostCondition, host: ClassAd) -> bool:
    attribute: Expression = Attribute(condition.attribute, Attribute("other"))
    value = Literal(condition.value)
    if condition.operator == "member":
        tree: Expression = Call("member", (value, attribute))
    elif condition.operator == "not-member":
        tree = Unary("!", Call("member", (value, attribute)))
    else:
        tree = Chain(attribute, ((condition.operator, value),))
    return evaluate(tree, None, host) is True
