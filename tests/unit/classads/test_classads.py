"""The ClassAd language by example: parsing, printing, values, limits, lint."""

from __future__ import annotations

import copy
import pickle
import random
from pathlib import Path

import pytest

from pilotage.core.classads import (
    ERROR,
    UNDEFINED,
    Attribute,
    AttributeReference,
    Chain,
    ClassAd,
    Literal,
    Logic,
    ParserLimits,
    canonical,
    evaluate,
    indented,
    matches,
    parse_ad,
    parse_definitions,
    parse_expression,
    quote,
    references,
    suspicions,
    unparse,
)
from pilotage.core.errors import InvalidInput, TooLarge

GLUE_AD = (Path(__file__).parent / "glue_ce.ad").read_text()


def value(text: str, my: str = "[]", target: str | None = None, **world: object) -> object:
    return evaluate(
        parse_expression(text),
        parse_ad(my),
        None if target is None else parse_ad(target),
        **world,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 * 3", 7),
        ("9223372036854775807 + 1", -(2**63)),
        ("-9223372036854775808", -(2**63)),
        ("-7 / 2", -3),
        ("-7 % 3", -1),
        ("7 / 0", ERROR),
        ("7.0 / 0", ERROR),
        ("true + 1", 2),
        ("1 << 70", 64),
        ("-8 >>> 1", 2**63 - 4),
        ("-7.0 / 0", float("-inf")),
        ("1e308 * 10", ERROR),
        ("-3 >>> 0", 0),
        ("8 >> 65", 4),
        ("-8 >> 65", -1),
        ("-8 >> -1", -8),
        ('"ABC" == "abc"', True),
        ('"ABC" =?= "abc"', False),
        ("1 == 1.0", True),
        ("1 =?= 1.0", False),
        ("undefined == 1", UNDEFINED),
        ("undefined =?= undefined", True),
        ("x is undefined", True),
        ("undefined || true", True),
        ("true || error", True),
        ("error || true", ERROR),
        ("undefined && false", False),
        ("undefined && error", ERROR),
        ('"text" && true', ERROR),
        ("undefined ? 1 : 2", UNDEFINED),
        ("1 ? 2 : 3 ? 4 : 5", 2),
        ("undefined ?: 3", 3),
        ("5 ?: 1 + 2", 7),
        ("-x ?: 3", -3),
        ("{1, 2}[1]", 2),
        ("{1, 2}[2]", ERROR),
        ("{[a = 1], [a = 2]}.a", (1, 2)),
        ('[a = 1]["A"]', 1),
        ("[a = 1; b = a + 1].b", 2),
        ("noSuchFunction(1)", ERROR),
        ('"\\101\\"" "b"', 'A"b'),
        ("ifThenElse(false, 1 / 0, 2)", 2),
        ('regexp("A.C", "xabcx", "i")', True),
        ('regexp("(", "a")', ERROR),
        ('split("a, b c,,d")', ("a", "b", "c", "", "d")),
        ('split("a:b::c:", ":")', ("a", "b", "", "c")),
        ('split(" , ")', ()),
        ('split("a,b").x', (ERROR, ERROR)),
        ("quantize(3, {2, 4, 8})", 4),
        ('quantize("2.5", 0)', "2.5"),
        ("1 /* one */ + // two\n 1", 2),
    ],
)
def test_values(text: str, expected: object) -> None:
    found = value(text)
    assert type(found) is type(expected)
    assert found == expected


@pytest.mark.parametrize(
    ("text", "my", "target", "expected"),
    [
        ("x", "[a = 1]", "[x = 2]", 2),
        ("other.x", "[x = 1]", "[x = 2]", 2),
        ("MY.x", "[x = 1]", "[x = 2]", 1),
        ("target.y", "[a = 1]", "[y = other.a]", 1),
        ("target.y", "[z = 1]", "[y = my.z; z = 7]", 7),
        ("target.y.b", "[a = 1]", "[y = [b = target.a]]", 1),
        ("b.c", "[a = 1; b = [c = a]]", None, 1),
        ("b.c", "[a = 1; b = [a = 2; c = parent.a]]", None, 1),
        ("b.c", "[a = 1; b = [a = 2; c = my.a]]", None, 2),
        (".a", "[a = 1]", None, 1),
        ("a", "[a = b; b = a]", None, UNDEFINED),
        ("a", "[a = b || true; b = a]", None, True),
    ],
)
def test_names(text: str, my: str, target: str | None, expected: object) -> None:
    assert value(text, my, target) == expected


def test_undefined_and_error_have_no_truth() -> None:
    for one in (UNDEFINED, ERROR):
        with pytest.raises(TypeError):
            bool(one)
        assert pickle.loads(pickle.dumps(one)) is one
        assert copy.deepcopy(one) is one


def test_time_and_chance_come_in_as_arguments() -> None:
    assert value("time()") is ERROR
    assert value("random()") is ERROR
    assert value("time()", now=1128351882.7) == 1128351882
    assert value("random(10)", rng=random.Random(1)) in range(10)


def test_the_glue_ad_parses_as_it_is() -> None:
    ad = parse_ad(GLUE_AD)
    assert len(ad.attributes) == 4
    info = ad.get("INFO")
    assert isinstance(info, ClassAd)
    assert len(info.attributes) == 55
    assert parse_ad(unparse(ad)) == ad


@pytest.mark.parametrize(
    ("job", "authorized", "close_output"),
    [
        ('[VirtualOrganisation = "EGEE"]', True, True),
        ('[VirtualOrganisation = "EGEE"; OutputSE = "gridftp05.cern.ch"]', True, True),
        ('[VirtualOrganisation = "EGEE"; OutputSE = "elsewhere"]', True, False),
        ('[VirtualOrganisation = "atlas"; CertificateSubject = "/CN=x"]', False, True),
        # Nobody said who submits: not known is not allowed.
        ("[]", UNDEFINED, True),
    ],
)
def test_the_glue_ad_judges_jobs(job: str, authorized: object, close_output: object) -> None:
    info = parse_ad(GLUE_AD).get("info")
    assert isinstance(info, ClassAd)
    for name, expected in (("AuthorizationCheck", authorized), ("CloseOutputSECheck", close_output)):
        assert evaluate(Attribute(name), info, parse_ad(job)) is expected


def test_matching_asks_both() -> None:
    ce = parse_ad("[Requirements = other.cpu <= 10; max = 5]")
    assert matches(parse_ad("[Requirements = other.max > 4; cpu = 10]"), ce)
    assert not matches(parse_ad("[Requirements = other.max > 4; cpu = 11]"), ce)
    assert not matches(parse_ad("[cpu = 10]"), ce)


@pytest.mark.parametrize(
    ("text", "line", "column", "part"),
    [
        ("", 1, 1, "the text ends"),
        ("1 +", 1, 4, "the text ends"),
        ("a\n  &&\n  )", 3, 3, "')' is not expected"),
        ("a = 1", 1, 3, "=="),
        ('"open', 1, 1, "never closed"),
        ("1 /* open", 1, 3, "never closed"),
        ("010", 1, 1, "leading zeros"),
        ("5K", 1, 1, "not a number"),
        ("9223372036854775808", 1, 1, "64 bits"),
        ("1e999", 1, 1, "too large"),
        ("a.b(1)", 1, 4, "complete"),
        ("[a = 1; A = 2]", 1, 9, "already defined"),
        ("[is = 1]", 1, 2, "reserved"),
        ("{1,}", 1, 4, "value was expected"),
        ("a $ b", 1, 3, "no meaning"),
        ('"\\0"', 1, 2, "ASCII"),
    ],
)
def test_errors_have_a_place(text: str, line: int, column: int, part: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_expression(text)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert part in str(caught.value)


def test_limits() -> None:
    with pytest.raises(TooLarge):
        parse_expression("(" * 101 + "1" + ")" * 101)
    with pytest.raises(TooLarge):
        parse_expression("!" * 101 + "a")
    with pytest.raises(TooLarge):
        parse_expression("a" + ".b" * 200)
    with pytest.raises(TooLarge):
        parse_expression("1" + " + 1" * 10_000)
    with pytest.raises(TooLarge):
        parse_expression("x" * 65_537)
    with pytest.raises(TooLarge):
        parse_expression("{1, 2, 3}", ParserLimits(nodes=3))
    deepest = "(" * 99 + "a || b" + ")" * 99
    assert isinstance(parse_expression(deepest), Logic)


def test_a_long_disjunction_is_not_deep() -> None:
    text = " || ".join(f'site == "S{n}"' for n in range(2000))
    assert value(text, '[site = "S1999"]') is True
    assert value(text, '[site = "T"]') is False


def test_costly_ads_end_in_an_error() -> None:
    doubling = "; ".join(f"a{n} = a{n + 1} + a{n + 1}" for n in range(60))
    assert value("a0", f"[{doubling}; a60 = 1]") is ERROR
    growing = "; ".join(f"a{n} = strcat(a{n + 1}, a{n + 1})" for n in range(60))
    assert value("a0", f'[{growing}; a60 = "{"x" * 1000}"]') is ERROR
    chain = "; ".join(f"a{n} = a{n + 1}" for n in range(1000))
    assert value("a0", f"[{chain}; a1000 = 1]", None) is ERROR
    assert value("a950", f"[{chain}; a1000 = 1]", None) == 1
    assert value(f'regexp("{"a" * 4097}", "b")') is ERROR


def test_canonical_folds_writing_only() -> None:
    same = ["other.Memory>=2000&&ISUNDEFINED(other.X)", "(Other.MEMORY >= 2000) && isUndefined( other.x )"]
    assert len({canonical(parse_expression(text)) for text in same}) == 1
    assert canonical(parse_expression("(a && b) && c")) == canonical(parse_expression("a && b && c"))
    assert canonical(parse_expression("[b = 1; a = 2]")) == canonical(parse_expression("[A=2;B=1;]"))
    assert canonical(parse_expression("a is b")) == canonical(parse_expression("A =?= B"))
    assert canonical(parse_expression('x == "a"')) != canonical(parse_expression('x == "A"'))
    assert canonical(parse_expression("a - (b - c)")) != canonical(parse_expression("a - b - c"))


def test_literals_of_different_types_differ() -> None:
    assert len({Literal(1), Literal(1.0), Literal(True), Literal("1")}) == 4
    assert parse_expression("a - b + c") == Chain(
        Attribute("a"), (("-", Attribute("b")), ("+", Attribute("c")))
    )


def test_references() -> None:
    found = references(parse_expression("other.A > b && my.C == [d = 1; e = d + f].e || .g || other.h.i"))
    assert found == {
        AttributeReference("target", "a"),
        AttributeReference("", "b"),
        AttributeReference("my", "c"),
        AttributeReference("", "f"),
        AttributeReference(".", "g"),
        AttributeReference("target", "h"),
    }


def test_lint_finds_the_unquoted_host_of_the_glue_ad() -> None:
    found = suspicions(parse_ad(GLUE_AD))
    assert [one.path for one in found] == ["info.CloseStorageElements[0].name"]
    assert '"gridftp05.cern.ch"' in found[0].message
    assert suspicions(parse_ad("[a = other.b.c; d = [e = 1]; f = d.e; g = a && x.y]")) == ()
    assert "no function 'sqrt'" in suspicions(parse_ad("[a = 1 + sqrt(2)]"))[0].message


def test_definitions_keep_places_dots_and_repetitions() -> None:
    found = parse_definitions('Executable = "x";\nParameters.Seed = {1, 2};\nexecutable = "y"')
    assert [(one.name, one.line, one.column) for one in found] == [
        ("Executable", 1, 1),
        ("Parameters.Seed", 2, 1),
        ("executable", 3, 1),
    ]
    assert len(parse_definitions("[a = 1; b = 2;]")) == 2


@pytest.mark.parametrize("text", ['say "hi"', "back\\slash", "line\nfeed\ttab", "\x01\x7f", "é ☃", ""])
def test_quoted_text_is_read_back(text: str) -> None:
    assert parse_expression(quote(text)) == Literal(text)


@pytest.mark.parametrize("text", ["[]", "[a = 1]", GLUE_AD, "[a = [b = [c = {[d = 1]}]; 'e f' = []]]"])
def test_an_indented_ad_is_the_same_ad(text: str) -> None:
    ad = parse_ad(text)
    assert parse_ad(indented(ad)) == ad


def test_each_attribute_of_an_indented_ad_has_a_line() -> None:
    lines = indented(parse_ad("[a = 1; b = [c = 2; d = {3}]]")).splitlines()
    assert lines == ["[", "  a = 1;", "  b = [", "    c = 2;", "    d = {3};", "  ];", "]"]
