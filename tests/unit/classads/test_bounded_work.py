"""Expressions cost what their steps say, whatever they are; patterns match in linear time or are refused."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pilotage.core.classads import (
    ERROR,
    ClassAd,
    evaluate,
    parse_ad,
    parse_expression,
    quote,
)
from pilotage.core.classads.evaluate import MAX_STEPS
from pilotage.core.classads.patterns import check_pattern, compiled, unsupported, without_spacing
from pilotage.core.errors import InvalidInput
from pilotage.core.jobs.parsers import from_yaml
from pilotage.services.matching.requirements import REQUIREMENTS_STEPS
from tests.deadlines import PATIENCE


def value(text: str, ad: str = "[]") -> object:
    return evaluate(parse_expression(text), parse_ad(ad))


def steps_of(text: str, ad: str = "[]") -> int:
    """The fewest steps that give another value than ERROR."""
    low, high = 0, MAX_STEPS
    tree, my = parse_expression(text), parse_ad(ad)
    assert evaluate(tree, my, steps=high) is not ERROR
    while low < high:
        middle = (low + high) // 2
        if evaluate(tree, my, steps=middle) is ERROR:
            low = middle + 1
        else:
            high = middle
    return high


EVIL = {
    "empty iterations": (r"(?:x*){4}y", "x" * 60_000),
    "bounded repetitions": (r"x{0,200}x{0,200}x{0,200}x{0,200}y", "x" * 200),
    "nested repetition": (r"(a+)+$", "a" * 60_000 + "b"),
    "alternatives": (r"^(a|a|a)*$", "a" * 60_000 + "b"),
    "a group many times": (r"((a?){30}){30}b", "a" * 200),
    "a wildcard many times": (".*" * 100 + "b", "a" * 1000),
}


@pytest.mark.parametrize("name", EVIL)
def test_a_pattern_takes_linear_time(name: str) -> None:
    # In a process of its own: a backtracking engine would not come back, and holds the interpreter.
    pattern, subject = EVIL[name]
    program = (
        "from pilotage.core.classads import evaluate, parse_expression;"
        f"print(evaluate(parse_expression({f'regexp({quote(pattern)}, {quote(subject)})'!r})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert done.stdout.strip() == "False"


def test_a_pattern_that_is_large_for_its_subject_is_an_error() -> None:
    pattern = "((a?){30}){30}b"
    assert value(f"regexp({quote(pattern)}, {quote('a' * 60_000)})") is ERROR
    assert value(f"regexp({quote(pattern)}, {quote('a' * 200)})") is False


@pytest.mark.parametrize(
    ("pattern", "feature"),
    [
        ("a(?=b)", "lookahead"),
        ("a(?!b)", "negative lookahead"),
        ("(?<=a)b", "lookbehind"),
        ("(?<!a)b", "negative lookbehind"),
        (r"(a)\1", "backreference"),
        (r"(?P<x>a)(?P=x)", "backreference"),
        (r"(?<x>a)\k<x>", "backreference"),
        ("(?>a+)b", "atomic group"),
        ("a++b", "possessive"),
        ("a{2,3}+b", "possessive"),
        ("(a)(?(1)b|c)", "conditional"),
        ("(a(?R)?b)", "recursion"),
        ("(?|a|b)", "branch reset"),
        ("(*ACCEPT)a", "verb"),
        (r"a\Z", r"\\Z"),
        (r"\Ka", r"\\K"),
        ("(?#why)a", "comment"),
        ("x{0,1000}{1000}", "too large|repetition"),
        ("(", "missing"),
        ("a" * 5000, "longer than"),
        ("\ud800", "Unicode"),
    ],
)
def test_a_constant_pattern_is_refused_at_submission_by_its_feature(pattern: str, feature: str) -> None:
    with pytest.raises(InvalidInput, match=feature):
        check_pattern("regexp", pattern)
    assert evaluate(parse_expression(f"regexp({quote(pattern)}, {quote('a')})")) is ERROR
    if pattern != "\ud800":
        text = f"executable: a\nrequirements: '{f'regexp({quote(pattern)}, other.Hostname)'}'"
        with pytest.raises(InvalidInput, match=f"requirements.*{feature}") as refused:
            from_yaml(text)
        assert refused.value.line == 2


@pytest.mark.parametrize("pattern", [r"[(?=]a", r"\(?=a", r"[\1]", r"\Q(?=\Ea", r"[]a++]", "a+b"])
def test_plain_patterns_that_resemble_a_feature_are_supported(pattern: str) -> None:
    assert unsupported(pattern) is None


def test_a_pattern_that_is_no_constant_is_judged_at_the_match() -> None:
    assert from_yaml("executable: a\nrequirements: 'regexp(other.Pattern, \"a\")'").count == 1
    assert value('regexp(p, "ab")', '[p = "a(?=b)"]') is ERROR
    assert value('regexp(p, "ab")', '[p = "ab"]') is True


@pytest.mark.parametrize(
    ("pattern", "options", "subject", "matches"),
    [
        ("A.C", "", "abc", False),
        ("A.C", "i", "abc", True),
        ("A.C", "I", "abc", True),
        ("^b$", "", "a\\nb", False),
        ("^b$", "m", "a\\nb", True),
        ("a.b", "", "a\\nb", False),
        ("a.b", "s", "a\\nb", True),
        ("a b # c\\n d", "x", "abd", True),
        ("a[ ]b", "x", "a b", True),
        (r"a\\ b", "x", "a b", True),
        ("A.B", "is", "a\\nb", True),
    ],
)
def test_options(pattern: str, options: str, subject: str, matches: bool) -> None:
    assert value(f'regexp("{pattern}", "{subject}", "{options}")') is matches


def test_spacing_is_taken_out_of_a_long_pattern_at_once() -> None:
    assert without_spacing(" # \n" * 10_000 + "a") == "a"


@pytest.mark.parametrize(
    ("short", "long", "ad"),
    [
        ('strcat(s, "")', 'strcat(s, "")', '[s = "{}"]'),
        ('s == "x"', 's == "x"', '[s = "{}"]'),
        ('versioncmp(s, "1")', 'versioncmp(s, "1")', '[s = "{}"]'),
        ('stringListMember("b", s)', 'stringListMember("b", s)', '[s = "{}"]'),
        ("size(split(s))", "size(split(s))", '[s = "{}"]'),
        ("toUpper(s)", "toUpper(s)", '[s = "{}"]'),
        ('member("b", {s})', 'member("b", {s, s, s, s})', '[s = "{}"]'),
        ('regexp("a|b", s)', 'regexp("a|b", s)', '[s = "{}"]'),
    ],
)
def test_steps_follow_the_length_of_texts(short: str, long: str, ad: str) -> None:
    some, much = ad.format("a" * 10), ad.format("a" * 30_000)
    assert steps_of(long, much) >= steps_of(short, some) + 30_000 // 5


@pytest.mark.parametrize(
    "text",
    [
        "{" + ",".join(["versioncmp(s, s)"] * 3000) + "}",
        "member(s, {" + ",".join(["s"] * 9000) + "})",
        "{" + ",".join(["join(s, {s, s, s, s, s, s, s, s})"] * 900) + "}",
        "{" + ",".join(["size(split(s, s))"] * 2000) + "}",
        "{" + ",".join(['regexp(strcat(s, ""), s)'] * 1000) + "}",
        "{" + ",".join(["s == t"] * 3000) + "}",
        "{" + ",".join(["string(b)"] * 3000) + "}",
    ],
)
def test_work_on_large_values_ends_in_an_error(text: str) -> None:
    ad = f'[s = "{"a," * 15_000}"; t = "{"a," * 10_000}b"; b = [{"; ".join(f"x{n} = {n}" for n in range(900))}]]'
    assert value(text, ad) is ERROR


def test_an_exhausted_evaluation_is_an_error_as_a_whole() -> None:
    doubling = "; ".join(f"a{n} = a{n + 1} + a{n + 1}" for n in range(60))
    assert value("isError(a0) || true", f"[{doubling}; a60 = 1]") is ERROR


DEEP = {
    "choices": ("ifThenElse(true, ", ", 0)"),
    "lists": ("{", "}"),
    "calls": ("strcat(", ")"),
    "ads": ("[a = ", "].a"),
    "parentheses of signs": ("-(", ")"),
    "conditionals": ("true ? (", ") : 0"),
    "subscripts": ("{", "}[0]"),
}


@pytest.mark.parametrize("name", DEEP)
def test_the_deepest_expressions_stay_within_the_stack(name: str) -> None:
    opening, closing = DEEP[name]
    inner = opening * 45 + "1" + closing * 45
    chain = "; ".join(f"a{n} = {opening * 40}a{n + 1}{closing * 40}" for n in range(20))
    for text, ad in ((inner, "[]"), ("a0", f"[{chain}; a20 = 1]"), (f"string({inner})", "[]")):
        tree, my = parse_expression(text), parse_ad(ad)
        # With a fixed allowance it never comes near Python's own limit.
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(_frames() + 800)
        try:
            evaluate(tree, my)
        finally:
            sys.setrecursionlimit(limit)


def _frames() -> int:
    frame, count = sys._getframe(), 0
    while frame is not None:
        frame, count = frame.f_back, count + 1  # type: ignore[assignment]
    return count


def test_requirements_are_stored_only_if_they_can_be_read_again() -> None:
    # Written out it has blanks and parentheses: longer than the text that was given.
    long = "||".join(["a.b==1"] * 4900)
    with pytest.raises(InvalidInput, match="requirements"):
        from_yaml(f"executable: a\nrequirements: '{'(' * 90 + long * 2 + ')' * 90}'")
    stored = from_yaml("executable: a\nrequirements: 'a.b==1||c'").description.requirements
    assert evaluate(parse_expression(stored), ClassAd()) is not True


def test_a_pattern_is_compiled_once() -> None:
    assert compiled("a|b") is compiled("a|b")


def test_the_largest_plain_requirements_are_within_the_steps_of_a_match() -> None:
    largest = " || ".join(f"o.X == {number}" for number in range(2400))
    assert 2400 < steps_of(f"({largest})", "[o = [X = -1]]") < REQUIREMENTS_STEPS
