"""Residuals as expressions of a batch system that reads ClassAds."""

from __future__ import annotations

import pytest

from pilotage.core.classads import parse_expression, unparse
from pilotage.core.forwarding.expressions import native_expression
from pilotage.core.forwarding.forward import CeTerms, forward
from pilotage.core.forwarding.rules import parse_rule
from pilotage.core.glue.information import HostClass
from pilotage.core.policy.batch_systems.htcondor import HtcondorOptions

TABLE = HtcondorOptions.forwarding
RULES = TABLE.with_rules({"Si00": "attribute SpecInt", "Tag": "attribute SiteTag"})
LOWER = {name.lower(): rule for name, rule in RULES.items()}
TERMS = CeTerms(TABLE, RULES)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("other.Si00 > 500", "TARGET.SpecInt > 500"),
        ("Si00 > 500", "TARGET.SpecInt > 500"),
        ("target.SI00 >= 2 * 250", "TARGET.SpecInt >= 2 * 250"),
        (
            'other.Si00 > 500 ? other.Tag == "fast" : other.Tag =?= "Slow"',
            'TARGET.SpecInt > 500 ? TARGET.SiteTag == "fast" : TARGET.SiteTag =?= "Slow"',
        ),
        ('member(other.Tag, {"a", "b"})', 'member(TARGET.SiteTag, {"a", "b"})'),
        (
            "isUndefined(other.Tag) || !(other.Si00 < 3)",
            "isUndefined(TARGET.SiteTag) || !(TARGET.SpecInt < 3)",
        ),
        ("other.GlueHostMainMemoryRAMSize > 1000", "TARGET.TotalMemory > 1000"),
    ],
)
def test_a_part_is_said_over_the_attributes_of_machines(text: str, expected: str) -> None:
    said = native_expression(parse_expression(text), LOWER)
    assert said == expected
    assert unparse(parse_expression(said)) == said


@pytest.mark.parametrize(
    "text",
    [
        "other.Unknown > 5",
        "other.Si00 > other.Unknown",
        'other.Tag == "$(HOME)"',
        'other.Tag == "$ENV(SECRET)"',
        'other.Tag == "a\\nqueue 1000"',
        'other.Tag == "a\\\\"',
        'other.Tag == "\u00fc"',
        'regexp("a+", other.Tag)',
        "other.Si00 / 3 > 5",
        "other.Si00 ?: 3",
        f'other.Tag == "{"x" * 9000}"',
    ],
)
def test_a_part_that_could_mean_something_else_is_left_to_the_match(text: str) -> None:
    assert native_expression(parse_expression(text), LOWER) is None


def hosts(*values: int) -> list[HostClass]:
    return [HostClass(1, {"Si00": value}, (f"h{value}",)) for value in values]


def test_the_known_part_is_passed_and_the_rest_is_unmapped() -> None:
    residual = parse_expression("other.Si00 > 500 && other.Unknown == 1")
    made = forward(residual, TERMS, hosts(400, 600))
    assert made.flags == ("--requirements=(TARGET.SpecInt > 500)",)
    assert made.unmapped is not None
    assert unparse(made.unmapped) == "other.Unknown == 1"
    assert [known.hosts for known in made.classes] == [("h600",)]


def test_a_conditional_is_passed_whole() -> None:
    residual = parse_expression("other.Si00 > 500 ? other.Si00 < 900 : other.Si00 == 400")
    made = forward(residual, TERMS, hosts(400, 500, 600, 1000))
    assert made.flags == (
        "--requirements=(TARGET.SpecInt > 500 ? TARGET.SpecInt < 900 : TARGET.SpecInt == 400)",
    )
    assert made.unmapped is None
    assert [known.hosts for known in made.classes] == [("h400",), ("h600",)]


def test_no_host_that_fits_is_no_submission() -> None:
    assert not forward(parse_expression("other.Si00 > 5000"), TERMS, hosts(400, 500)).is_possible


def test_a_rule_of_an_attribute_needs_a_batch_system_that_reads_classads() -> None:
    rule = parse_rule("attribute SpecInt")
    assert rule is not None
    assert TABLE.knows(rule)
    assert not [
        mistake for mistake in TABLE.mistakes({"Si00": "attribute SpecInt"}) if "no flag" in mistake[1]
    ]
    assert [mistake for mistake in TABLE.mistakes({"GlueHostBenchmarkSI00": "attribute a-b"})]
