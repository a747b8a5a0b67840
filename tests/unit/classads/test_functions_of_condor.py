"""Functions that HTCondor added to the language: beside its own evaluator, and where they differ on purpose."""

from __future__ import annotations

from random import Random

import pytest

from pilotage.core.classads import ERROR, UNDEFINED, evaluate, parse_expression
from tests.unit.classads.test_classads_differential import agree

classad2 = pytest.importorskip("classad2", reason="the oracle group is not installed: uv sync --group oracle")
pytest.importorskip("htcondor2", reason="registers the stringList functions of classad2")

TEXTS = (
    '""',
    '"1,2"',
    '"b, a,,c"',
    '"3 -1.5"',
    '"x@y@z"',
    '"a"',
    '"A;a"',
    '"1;2.5e1"',
    '"it\'s"',
    "undefined",
    "5",
)
SCALARS = ("0", "59", "3661", "-90061", "90061.7", "true", '"61s"', '"x"', "undefined", "error", "{1}")
LISTS = (
    '{"a","b c"}',
    '{"it\'s", ""}',
    '{"a", 1}',
    "{}",
    '{undefined, "ab"}',
    '{"ab", 1}',
    '"a"',
    "undefined",
)
WORDS = (
    "\"a 'b c'  d\"",
    "\"'it''s'\"",
    '"\'open"',
    '""',
    "\"a=1 b='x y'\"",
    '"b=2 a=1 b=3"',
    "undefined",
    "5",
)
OLD = ('"a=1;b=x y"', '"a"', '"=1"', '";; a=\'"', '"b=1;a=2;b=3"', '"a=1\\n b=2;"', "undefined", "5", "error")
PATTERNS = ('"a"', '"(a)|(b)"', '"A+"', '"^b"', '"b$"', '"."', "undefined", "5")
FILLS = ('"x"', '"<\\\\0>"', '"\\\\1-"', '"\\\\"', '"$1"', "undefined", "5")
OPTIONS = ('""', '"i"', '"g"', '"fg"', '"gg"', "undefined", "5")
CALLS = {
    **dict.fromkeys(
        ("stringListSum", "stringListAvg", "stringListMin", "stringListMax"), (TEXTS, ('","', '";"', "5"))
    ),
    **dict.fromkeys(
        ("stringListSubsetMatch", "stringListISubsetMatch", "stringListsIntersect"),
        (TEXTS, TEXTS, ('","', '";"', "undefined")),
    ),
    "stringList_regexpMember": (PATTERNS, TEXTS, ('","', '";"'), OPTIONS),
    "regexpMember": (PATTERNS, LISTS, OPTIONS),
    "regexps": (PATTERNS, TEXTS, FILLS, OPTIONS),
    "replace": (PATTERNS, TEXTS, FILLS, OPTIONS),
    "replaceAll": (PATTERNS, TEXTS, FILLS, OPTIONS),
    "interval": (SCALARS,),
    "splitUserName": (TEXTS,),
    "splitSlotName": (TEXTS,),
    "listToArgs": (LISTS, ("1", "2", "3", "undefined")),
    "argsToList": (WORDS, ("1", "2", "3", "undefined")),
    "envV1ToV2": (OLD,),
    "mergeEnvironment": (WORDS, WORDS),
}
"""By function: values of each argument. The later ones may be left out."""
SMALLEST_POSITIVE = 1.1754943508222875e-38


@pytest.mark.parametrize("name", CALLS)
def test_a_function_gives_the_value_of_the_reference(name: str) -> None:
    rng = Random(7)
    known = 0
    for _ in range(300):
        count = rng.randrange(len(CALLS[name]) + 2)
        choices = [*CALLS[name], TEXTS][:count]
        text = f"{name}({', '.join(rng.choice(values) for values in choices)})"
        theirs = oracle(text)
        if theirs == SMALLEST_POSITIVE:
            continue
        ours = evaluate(parse_expression(text))
        assert agree(theirs, ours), (text, theirs, ours)
        known += ours is not ERROR
    assert known > 20


def oracle(text: str) -> object:
    value = classad2.ExprTree(text).eval(classad2.ClassAd("[]"))
    if isinstance(value, classad2.Value):
        return UNDEFINED if value == classad2.Value.Undefined else ERROR
    return value


@pytest.mark.parametrize(
    ("text", "here", "there"),
    [
        ('stringListMax("-1,-2.5")', -1.0, SMALLEST_POSITIVE),
        ('stringListMax("9007199254740993,1")', 9007199254740993, 9007199254740992),
        ('regexpMember("(", {"a"})', ERROR, False),
        ("interval(9223372036854775807)", "106751991167300+15:30:07", "-1"),
    ],
)
def test_a_difference_is_on_purpose(text: str, here: object, there: object) -> None:
    assert (evaluate(parse_expression(text)), oracle(text)) == (here, there)


@pytest.mark.parametrize("text", ['replaceAll("", "abc", "X")', 'regexps("a*", "baac", "X", "g")'])
def test_each_match_of_nothing_has_no_end(text: str) -> None:
    assert evaluate(parse_expression(text)) is ERROR


def test_replacements_are_bounded() -> None:
    many = "a" * 60_000
    assert evaluate(parse_expression(f'replaceAll("a", "{many}", "{"b" * 100}")')) is ERROR
    assert evaluate(parse_expression(f'replaceAll("a", "{many}", "b")'), steps=20_000) is ERROR
