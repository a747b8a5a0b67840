"""Partial evaluation: residuals, whether they can be true, and their conditions on hosts."""

from __future__ import annotations

from typing import Any

import pytest

from pilotage.core.classads import ClassAd, Expression, evaluate, parse_ad, parse_expression, unparse
from pilotage.core.classads.partial import HostCondition, Kind, can_be_true, host_conditions, residual

DOCUMENT = """other.GlueHostBenchmarkSI00 > 500 ?
    other.GlueCEPolicyMaxCPUTime > 1000 : other.GlueCEPolicyMaxCPUTime > 2000"""
KINDS = {
    "b": Kind.INTEGER,
    "r": Kind.NUMBER,
    "s": Kind.STRING,
    "f": Kind.BOOLEAN,
    "l": Kind.STRINGS,
    "q": Kind.QUANTITY,
}


def reduced(text: str, target: str = "[]", my: str = "[]", kinds: dict[str, Kind] = KINDS) -> str:
    return unparse(residual(parse_expression(text), parse_ad(my), parse_ad(target), kinds))


@pytest.mark.parametrize(
    ("seconds", "left"), [(500, "false"), (1500, "other.GlueHostBenchmarkSI00 > 500"), (3000, "true")]
)
def test_the_conditional_on_host_and_queue(seconds: int, left: str) -> None:
    kinds = {"gluehostbenchmarksi00": Kind.QUANTITY}
    assert reduced(DOCUMENT, f"[GlueCEPolicyMaxCPUTime = {seconds}]", kinds=kinds) == left


@pytest.mark.parametrize(
    "text",
    [
        "isUndefined(other.MyFlag > 3)",
        "(other.HasGPU == true) =?= undefined",
        'isUndefined(member("a", other.List))',
        "(other.B > 3 || other.B <= 3) =?= undefined",
    ],
)
def test_an_attribute_that_nothing_declares_may_be_absent(text: str) -> None:
    expression = parse_expression(text)
    assert can_be_true(expression, {})
    left = residual(expression, parse_ad("[]"), parse_ad("[]"), {})
    assert evaluate(left, parse_ad("[]"), parse_ad("[]")) is True


def test_a_certainty_needs_a_declared_attribute() -> None:
    text = "other.B > 3 || other.B <= 3"
    assert reduced(text, kinds={"b": Kind.INTEGER}) == "true"
    assert reduced(text, kinds={}) == text


@pytest.mark.parametrize(
    ("text", "left"),
    [
        # A conditional of constants is its test; one that the test decides is its branch.
        ("B > 1 ? true : false", "other.B > 1"),
        ("B > 1 ? false : true", "other.B <= 1"),
        ("B > 1 ? F : true", "other.B <= 1 || other.F"),
        ("B > 1 ? F : F", "other.F"),
        ("1 > 2 ? B > 1 : B > 2", "other.B > 2"),
        ("undefined ? true : true", "false"),
        ("ifThenElse(B > 1, true, false)", "other.B > 1"),
        ("(F ?: false) || B > 1", "other.F || other.B > 1"),
        ("(undefined ?: F)", "other.F"),
        # An unknown test that may be undefined keeps a conditional of two true branches.
        ("X ?: true", "other.X ?: true"),
        ("isUndefined(X) || X > 3", "isUndefined(other.X) || other.X > 3"),
        ("X =?= 3 ? true : X > 7", "other.X =?= 3 || other.X > 7"),
        ("isUndefined(B) || B > 3", "other.B > 3"),
        # A number is no truth value at the top of a match, but counts as one below.
        ("B", "false"),
        ("false || B", "false || other.B"),
        ("F && B", "other.F && other.B"),
        ("false || F", "other.F"),
        ("(false || S) && F", "false"),
        ("undefined || F", "other.F"),
        ("undefined && F", "false"),
        ("F || error", "other.F"),
        ("error || F", "false"),
        ("(B > 1 || error) || F", "other.B > 1"),
        ("(X || B > 1) && F", "(other.X || other.B > 1) && other.F"),
        # Types decide.
        ("S > 3", "false"),
        ("B =?= 2.5 || F", "other.F"),
        ("B =!= undefined", "true"),
        ("isString(S) && isInteger(B) && !isReal(B)", "true"),
        # Repetitions, contradictions and conditions that follow from others.
        ("F && F", "other.F"),
        ("B > 3 && B > 5", "other.B > 5"),
        ("B > 3 < 1 - B && B", "other.B > 3 < 1 - other.B && other.B"),
        ("B > 3 || B > 5", "other.B > 3"),
        ("B > 3 && B < 2", "false"),
        ("B > 3 && B < 4", "false"),
        ("R > 3 && R < 4", "other.R > 3 && other.R < 4"),
        ("B > 3 || B < 4", "true"),
        ('S == "x" && S == "X"', 'other.S == "X"'),
        ('S == "x" && S == "y"', "false"),
        ('S == "x" && S =?= "Y"', "false"),
        ('S =!= "x" && S =?= "x"', "false"),
        ('member("a", L) && !member("A", L)', "false"),
        ('(S == "x" && S == "y") || F', "other.F"),
        ("(B > 3 || R > 3) && B < 2 && R < 2", "false"),
        ("(F ? B > 3 : B > 4) && B < 2", "false"),
        ("F || !F", "true"),
        ("B + 1 > 3 && B + 1 < 3", "false"),
        # Negations move inwards.
        ("!(B > 3 || F)", "other.B <= 3 && !other.F"),
        ("!!F", "other.F"),
        ("5 < B", "other.B > 5"),
        # A comparison with a constant moves into a conditional.
        ("1500 > (B > 500 ? 1000 : 2000)", "other.B > 500"),
        ("(B > 500 ? 1000 : 2000) - 1 < 1500", "other.B > 500"),
        ("(B > 500 ? 1000 : R) < 1500", "other.B > 500 || other.R < 1500"),
        ("(X ? 1000 : 2000) =?= 1000", "(other.X ? 1000 : 2000) =?= 1000"),
        # A comparison with a truth value is that value or its negation.
        ("(B > 5) == true", "other.B > 5"),
        ("(B > 5) =!= true", "other.B <= 5"),
        ("F =?= false", "!other.F"),
        ("X =?= true", "other.X =?= true"),
        ("isString(X) =?= true", "isString(other.X)"),
        ('(member("a", X) || F) == true', 'member("a", other.X) || other.F'),
        # Lists.
        ('member(S, {"a", "b"})', 'member(other.S, {"a", "b"})'),
        ('member("a", {"b", S})', 'member("a", {"b", other.S})'),
        # Arithmetic over one quantity is solved for it.
        ("Q / 1024 >= 2", "other.Q >= 2048"),
        ("Q / 1024 > 1", "other.Q > 2047"),
        ("Q / 1024 > -1", "other.Q > -1024"),
        ("Q / 1024 == 2", "other.Q >= 2048 && other.Q <= 3071"),
        ("Q * 1024 > 5000", "other.Q > 4"),
        ("Q * 1024 == 5000", "false"),
        ("Q * 2 != 11", "true"),
        ("Q * 2 != 10", "other.Q != 5"),
        ("10 <= Q - 500", "other.Q >= 510"),
        ("5 - Q > 2", "other.Q < 3"),
        ("-Q < -5", "other.Q > 5"),
        ("Q * -2 >= 7", "other.Q <= -4"),
        ("(Q / 1024 + 1) * 2 >= 6", "other.Q >= 2048"),
        ("Q * 1024 * 1024 > 8000000000", "other.Q > 7629"),
        ("Q * 1.5 > 3000", "other.Q > 2000"),
        ("Q + 0.1 > 0.3", "other.Q > 0"),
        ("!(Q * 2 > 5)", "other.Q <= 2"),
        ("Q / 1024 >= 2 && Q < 1000", "false"),
        ("F ? Q / 2 > 3 : Q > 100", "other.F ? other.Q > 7 : other.Q > 100"),
        # It is not for other kinds, nor where a result can overflow.
        ("B / 1024 >= 2", "other.B / 1024 >= 2"),
        ("Q * 4194304 > 5000", "other.Q * 4194304 > 5000"),
        ("R / 1024 > 1", "other.R / 1024 > 1"),
        ("X / 1024 >= 2 || isUndefined(X)", "other.X / 1024 >= 2 || isUndefined(other.X)"),
        ("1024 / Q > 2", "1024 / other.Q > 2"),
        ("Q % 2 == 1", "other.Q % 2 == 1"),
        ("Q / 0 > 1", "other.Q / 0 > 1"),
        # Time and chance are never folded.
        ("time() > 100 || F", "time() > 100 || other.F"),
        ("random() < 0.5 && random() < 0.5", "random() < 0.5 && random() < 0.5"),
        ("random() < 0.5 && random() < 0.5 && F && F", "random() < 0.5 && random() < 0.5 && other.F"),
    ],
)
def test_residuals(text: str, left: str) -> None:
    assert reduced(text) == left


ADS = """[K = 4; U = undefined; Names = {"a", "b"}; Needs = other.Memory > X && F; Back = my.K > 3 && other.Memory > 1;
    Round = Trip; Trip = Round || F; Nest = [Inner = K + B; Deep = [q = 7]]]"""


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("other.U > 3", "false"),
        ("isUndefined(other.U) && F", "other.F"),
        ("isUndefined(my.U)", "true"),
        ('member("A", other.Names) && B > my.Memory', "other.B > 100"),
        ("size(other.Names) == 2 && other.Names[0] == S", 'other.S == "a"'),
        ('anyCompare("<", {1, 2}, K) && stringListMember("x", "x, y")', "true"),
        # Attributes of the target that need others are inlined.
        ("other.Needs", "other.X < 100 && other.F"),
        ("Back && F", "other.F"),
        ("other.Round", "other.F"),
        ("other.Nest.Inner > 5", "4 + other.B > 5"),
        ("other.Nest.Deep.q == 7 && F", "other.F"),
        ("other.Nest.Deep.F", "other.F"),
        ("[a = F && K > 3].a || F", "other.F"),
        # A name of both ads is the one in `my`.
        ("Memory > 2 && F", "other.F"),
    ],
)
def test_ads_known_in_part(text: str, left: str) -> None:
    assert reduced(text, ADS, "[Memory = 100]") == left


def test_a_scope_that_the_requester_hides_is_not_used() -> None:
    assert reduced("F && other > 2", my="[other = 3]") == "target.F"
    assert reduced("F && other > 2", my="[other = 3; target = 1]") == "F && other > 2"
    assert can_be_true(parse_expression("F && other > 2"), KINDS)


def test_an_expression_stays_where_an_ad_is_compared_as_a_whole() -> None:
    text = "F && [a = B] =?= other.X"
    assert reduced(text) == text


def of_target(text: str) -> Expression:
    """The residual where nothing is known."""
    return residual(parse_expression(text), None, ClassAd(), KINDS)


def conditions(text: str, most: int = 64) -> Any:
    return host_conditions(of_target(text), KINDS, most)


def test_conditions_on_hosts() -> None:
    above, small = HostCondition("B", ">", 5), HostCondition("S", "==", "x")
    assert conditions("true") == ((),)
    assert conditions("false") == ()
    assert conditions('B > 3 && B > 5 && S == "x"') == ((above, small),)
    assert conditions('B > 5 || S == "x"') == ((above,), (small,))
    assert conditions('member(S, {"x", "y"})') == ((small,), (HostCondition("S", "==", "y"),))
    assert conditions('F && !member("x", L)') == (
        (HostCondition("F", "==", True), HostCondition("L", "not-member", "x")),
    )
    assert conditions('F ? B > 5 : S == "x"') == (
        (HostCondition("F", "==", True), above),
        (HostCondition("F", "==", False), small),
    )
    assert len(conditions("R =!= 0 && R =!= 0.0")[0]) == 2
    assert conditions("F && !member(X, {})") is None
    assert conditions("Q / 1024 >= 2 && B > 5") == ((HostCondition("Q", ">=", 2048), above),)
    assert conditions("B > R") is None
    assert conditions("B + 1 > 3") is None
    assert conditions("time() > 5") is None
    many = " && ".join(f'(B == {n} || S == "{n}" || R == {n})' for n in range(9))
    assert conditions(many) is not None or not can_be_true(of_target(many), KINDS)
    wide = " || ".join(f"B == {n}" for n in range(70))
    assert conditions(wide) is None
    assert len(conditions(wide, 70)) == 70


def test_contradictory_conditions_cannot_be_true() -> None:
    assert not can_be_true(parse_expression("other.B > 3 && other.B < 2"))
    assert can_be_true(parse_expression("other.B > 3 && other.C < 2"))
    assert not can_be_true(parse_expression("false"))
    assert can_be_true(parse_expression("other.B > 3 && other.B < 4"))
    assert not can_be_true(parse_expression("other.B > 3 && other.B < 4"), KINDS)


@pytest.mark.parametrize("text", ["my.X > 3 && my.X < 2", "X > 3 && X < 2"])
def test_names_that_may_be_of_the_requester_can_be_anything(text: str) -> None:
    assert can_be_true(parse_expression(text))


def test_work_is_bounded() -> None:
    text = " && ".join(f"(A{n} > 3 || B{n} < 2 || C{n})" for n in range(500))
    expression = parse_expression(text)
    assert residual(expression, None, ClassAd(), steps=100) == expression
    assert can_be_true(parse_expression(f"{text} && other.D > 3 && other.D < 3"), steps=100)
    doubling = "; ".join(["a0 = other.F", *(f"a{n} = a{n - 1} && a{n - 1}" for n in range(1, 40))])
    assert residual(parse_expression("other.a39"), None, parse_ad(f"[{doubling}]")) == parse_expression(
        "other.a39"
    )


DEEP = {
    "alternatives without end": " && ".join(
        f"(A{n} > 3 || A{n + 1} < 2 || A{n + 2} == 5)" for n in range(400)
    ),
    "one attribute often": " && ".join(f"(B != {n} || R == {n})" for n in range(600)),
    "tests of tests": "(" * 40 + "F" + " ? B > 1 : C)" * 40,
    "negations": "!(" * 45 + "B > 3 && B < 5 || R > 1" + ")" * 45,
    "long lists": " || ".join(f'member(S, {{"{n}", "x", "y{n}"}})' for n in range(900)),
    "long sums": " && ".join(f"(({' + '.join('B' for _ in range(60))}) > {n} || B < {n})" for n in range(60)),
}


@pytest.mark.parametrize("name", DEEP)
def test_hostile_expressions_end(name: str) -> None:
    # Each would take hours if some rule were exponential.
    tree = residual(parse_expression(DEEP[name]), None, ClassAd(), KINDS)
    assert can_be_true(tree, KINDS)
    host_conditions(tree, KINDS)
