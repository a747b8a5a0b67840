"""Random expressions and ads, in the normal form the parser gives."""

from __future__ import annotations

from hypothesis import strategies as st

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
)

NAMES = ("a", "b", "c", "D", "x", "y")
LEVELS = (
    ("|",),
    ("^",),
    ("&",),
    ("==", "!=", "=?=", "=!="),
    ("<", "<=", ">", ">="),
    ("<<", ">>", ">>>"),
    ("+", "-"),
    ("*", "/", "%"),
)
TEXTS = (
    "",
    "a",
    "A",
    "b",
    "ab",
    "a,b",
    "a, B c",
    "1",
    "2.5",
    "1x",
    "true",
    "1.10",
    "1.9",
    "a.c",
    "é",
    'q"\\\n',
)
# Without split: selecting from its result brings the oracle down (a segmentation fault of classad2 25.14).
FUNCTIONS = {
    "isUndefined": 1,
    "isError": 1,
    "isString": 1,
    "isInteger": 1,
    "isReal": 1,
    "isBoolean": 1,
    "isList": 1,
    "isClassad": 1,
    "member": 2,
    "identicalMember": 2,
    "anyCompare": 3,
    "allCompare": 3,
    "strcat": 2,
    "substr": 3,
    "size": 1,
    "toUpper": 1,
    "toLower": 1,
    "strcmp": 2,
    "stricmp": 2,
    "int": 1,
    "real": 1,
    "string": 1,
    "bool": 1,
    "floor": 1,
    "ceiling": 1,
    "round": 1,
    "quantize": 2,
    "pow": 2,
    "ifThenElse": 3,
    "min": 1,
    "max": 1,
    "sum": 1,
    "avg": 1,
    "regexp": 2,
    "stringListMember": 2,
    "stringListIMember": 2,
    "stringListSize": 1,
    "join": 2,
    "versionGT": 2,
    "versionGE": 2,
    "versionLT": 2,
    "versionLE": 2,
    "versionEQ": 2,
    "version_in_range": 3,
    "noSuchFunction": 1,
}

scalars = st.one_of(
    st.integers(-5, 5),
    st.sampled_from((-(2**63), 2**63 - 1, 2**53 + 1, 2**31, 64, 100)),
    st.sampled_from((0.0, -0.0, 0.5, -1.5, 2.0, 2.5, 1e300, -1e300, 1e-300, 3.7, 9.3e18)),
    st.floats(allow_nan=False, allow_infinity=False, width=32),
    st.sampled_from(TEXTS),
    st.booleans(),
    st.just(UNDEFINED),
    st.just(ERROR),
)
literals = scalars.map(Literal)
operations = st.sampled_from(("<", "<=", "==", "!=", ">=", ">", "is", "isnt", "IS", "=?=")).map(Literal)


def plain_names(scopes: tuple[str, ...]) -> st.SearchStrategy[Expression]:
    bare = st.sampled_from(NAMES).map(Attribute)
    scoped = st.builds(
        lambda scope, name: Attribute(name, Attribute(scope)), st.sampled_from(scopes), st.sampled_from(NAMES)
    )
    return st.one_of(
        bare, bare, scoped, st.sampled_from(NAMES).map(lambda name: Attribute(name, absolute=True))
    )


@st.composite
def chains(draw: st.DrawFn, inner: st.SearchStrategy[Expression]) -> Expression:
    ops = draw(st.sampled_from(LEVELS))
    rest = draw(st.lists(st.tuples(st.sampled_from(ops), inner), min_size=1, max_size=3))
    return Chain(draw(inner), tuple(rest))


@st.composite
def calls(draw: st.DrawFn, inner: st.SearchStrategy[Expression]) -> Expression:
    name = draw(st.sampled_from(sorted(FUNCTIONS)))
    arguments = [draw(inner) for _ in range(FUNCTIONS[name])]
    if name in ("anyCompare", "allCompare"):
        arguments[0] = draw(operations)
    if draw(st.integers(0, 19)) == 0:
        arguments = arguments[1:]
    return Call(name, tuple(arguments))


def unary(op: str, operand: Expression) -> Expression:
    # The parser reads a minus before a number as one constant.
    if op == "-" and isinstance(operand, Literal) and type(operand.value) in (int, float):
        return operand
    return Unary(op, operand)


def records(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[ClassAd]:
    return st.dictionaries(st.sampled_from(NAMES), inner, max_size=4).map(
        lambda found: ClassAd(tuple(found.items()))
    )


def _grow(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    return st.one_of(
        chains(inner),
        chains(inner),
        st.builds(
            lambda op, operands: Logic(op, tuple(operands)),
            st.sampled_from(("||", "&&")),
            st.lists(inner, min_size=2, max_size=4),
        ),
        st.builds(unary, st.sampled_from("-+!~"), inner),
        st.builds(Conditional, inner, st.one_of(st.none(), inner), inner),
        calls(inner),
        calls(inner),
        st.lists(inner, max_size=4).map(lambda items: ListOf(tuple(items))),
        records(inner),
        st.builds(Attribute, st.sampled_from(NAMES), inner),
        st.builds(Subscript, inner, inner),
    )


def expressions(
    scopes: tuple[str, ...] = ("my", "target", "other"), leaves: int = 8
) -> st.SearchStrategy[Expression]:
    return st.recursive(st.one_of(literals, literals, plain_names(scopes)), _grow, max_leaves=leaves)


def ads(scopes: tuple[str, ...] = ("my", "target", "other")) -> st.SearchStrategy[ClassAd]:
    return records(st.one_of(literals, expressions(scopes, leaves=4)))
