"""The sub-expression that said no: examples of the document, and properties over random expressions."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given

from pilotage.core.brokering.explanation import MOST_REFUSALS, explain_refusal
from pilotage.core.brokering.seen_attributes import value_text
from pilotage.core.classads import ClassAd, Expression, evaluate, parse_ad, parse_expression, unparse
from pilotage.core.classads.partial import can_be_true, residual
from tests.unit.classads.classad_strategies import ads, expressions

DOCUMENT = (
    "other.GlueHostBenchmarkSI00 > 500"
    " ? other.GlueCEPolicyMaxCPUTime > 1000 : other.GlueCEPolicyMaxCPUTime > 2000"
)


def texts(expression: str, target: str, my: str = "[]") -> list[str]:
    refusals = explain_refusal(parse_expression(expression), parse_ad(my), parse_ad(target))
    return [str(refusal) for refusal in refusals]


def document_ce() -> ClassAd:
    ad = parse_ad((Path(__file__).parents[2] / "classads" / "glue_ce.ad").read_text())
    info = ad.get("info")
    assert isinstance(info, ClassAd)
    return info


@pytest.mark.parametrize(
    ("speed", "limit", "expected"),
    [
        (600, 1500, []),
        (400, 3000, []),
        (
            400,
            1500,
            [
                "other.GlueCEPolicyMaxCPUTime > 2000 is false (GlueCEPolicyMaxCPUTime = 1500), "
                "where other.GlueHostBenchmarkSI00 > 500 is false (GlueHostBenchmarkSI00 = 400)"
            ],
        ),
        (
            600,
            500,
            [
                "other.GlueCEPolicyMaxCPUTime > 1000 is false (GlueCEPolicyMaxCPUTime = 500), "
                "where other.GlueHostBenchmarkSI00 > 500 is true (GlueHostBenchmarkSI00 = 600)"
            ],
        ),
    ],
)
def test_the_branch_of_the_conditional_that_was_taken_said_no(
    speed: int, limit: int, expected: list[str]
) -> None:
    ad = f"[GlueHostBenchmarkSI00 = {speed}; GlueCEPolicyMaxCPUTime = {limit}]"
    assert texts(DOCUMENT, ad) == expected
    assert texts(f"ifThenElse({DOCUMENT.replace('?', ',').replace(' :', ',')})", ad) == expected


def test_both_ways_into_the_ce_of_the_document_are_told() -> None:
    user = parse_ad('[CertificateSubject = "/CN=alice"; VirtualOrganisation = "atlas"]')
    requirements = parse_expression("AuthorizationCheck && CloseOutputSECheck")
    assert [str(refusal) for refusal in explain_refusal(requirements, document_ce(), user)] == [
        "AuthorizationCheck: member(other.CertificateSubject, GlueCEAccessControlBaseRule) is false"
        ' (CertificateSubject = "/CN=alice", GlueCEAccessControlBaseRule = {"VO:EGEE"})',
        'AuthorizationCheck: member(strcat("VO:", other.VirtualOrganisation), GlueCEAccessControlBaseRule)'
        ' is false (VirtualOrganisation = "atlas", GlueCEAccessControlBaseRule = {"VO:EGEE"})',
    ]
    egee = parse_ad('[CertificateSubject = "/CN=alice"; VirtualOrganisation = "EGEE"]')
    assert explain_refusal(requirements, document_ce(), egee) == ()


@pytest.mark.parametrize(
    ("expression", "target", "expected"),
    [
        (
            "a == 1 && b == 2 && c == 3",
            "[a = 1; b = 3; c = 4]",
            ["b == 2 is false (b = 3)"],
        ),
        (
            "other.GlueHostBenchmarkSI000 > 500",
            "[GlueHostBenchmarkSI00 = 600; GlueHostBenchmarkSF00 = 380]",
            [
                "other.GlueHostBenchmarkSI000 > 500 is undefined"
                " (GlueHostBenchmarkSI000: no such attribute; nearest: GlueHostBenchmarkSI00)"
            ],
        ),
        ("a > 1", "[a = undefined]", ["a > 1 is undefined (a = undefined)"]),
        ("a > 1 && isUndefined(a)", '[a = "x"]', ['a > 1 is error (a = "x")']),
        ("!(a == 3 || b)", "[a = 4; b = 1]", ["b is 1 (b = 1), and must be false"]),
        (
            "!(a == 3 && b)",
            "[a = 3; b = true]",
            ["a == 3 is true (a = 3), and must be false", "b is true (b = true), and must be false"],
        ),
        ("5", "[]", ["5 is 5"]),
        ("a ? b : c", "[b = true]", ["a is undefined (a: no such attribute)"]),
        ("(a ?: b) == 1", "[b = 2]", ["a ?: b == 1 is false (a: no such attribute, b = 2)"]),
        ("a ?: (b == 1)", "[b = 2]", ["b == 1 is false (b = 2)"]),
        ("my.x > target.x", "[x = 3]", ["my.x > target.x is undefined (my.x: no such attribute, x = 3)"]),
        (
            "name == gridftp05.cern.ch",
            '[name = "x"]',
            ['name == gridftp05.cern.ch is undefined (name = "x", gridftp05.cern.ch = undefined)'],
        ),
    ],
)
def test_sub_expressions_and_values(expression: str, target: str, expected: list[str]) -> None:
    assert texts(expression, target) == expected


def test_long_values_and_expressions_are_cut() -> None:
    sites = ", ".join(f'"site{number}.example.org"' for number in range(1000))
    [text] = texts('member("x", sites)', f"[sites = {{{sites}}}]")
    assert "and 997 more" in text
    assert len(text) < 300
    [text] = texts(f'member("x", {{{sites}}})', "[]")
    assert len(text) < 300


def test_a_disjunction_of_many_operands_is_cut() -> None:
    expression = " || ".join(f"site == {number}" for number in range(500))
    assert len(texts(expression, "[site = -1]")) == MOST_REFUSALS


def test_attributes_that_lead_to_each_other_end() -> None:
    assert texts("a", "[a = b && true; b = a || false]")
    assert texts("a", "[a = a]") == ["a: a is undefined (a = undefined)"]


def test_an_evaluation_that_is_cut_off_says_so() -> None:
    [text] = texts("a0", "[" + "; ".join(f"a{n} = a{n + 1} + a{n + 1}" for n in range(40)) + "; a40 = 1]")
    assert "takes more than 20000 steps" in text


@pytest.mark.parametrize(
    ("expression", "target", "expected"),
    [
        (DOCUMENT, "[GlueCEPolicyMaxCPUTime = 1500]", []),
        (
            DOCUMENT,
            "[GlueCEPolicyMaxCPUTime = 500]",
            [
                "other.GlueCEPolicyMaxCPUTime > 1000 is false (GlueCEPolicyMaxCPUTime = 500),"
                " where other.GlueHostBenchmarkSI00 > 500",
                "other.GlueCEPolicyMaxCPUTime > 2000 is false (GlueCEPolicyMaxCPUTime = 500),"
                " where !(other.GlueHostBenchmarkSI00 > 500)",
            ],
        ),
        (
            "other.x > 3 && a == 1 && other.x < 2",
            "[a = 1]",
            ["other.x > 3 && a == 1 && other.x < 2 is never true (x: not known before a node is, a = 1)"],
        ),
        ("other.x > 3 && a == 2", "[a = 1]", ["a == 2 is false (a = 1)"]),
        ("!(other.x || a)", "[a = true]", ["a is true (a = true), and must be false"]),
        ("other.x", "[x = undefined]", ["other.x is undefined (x = undefined)"]),
        ("my.x > 3", "[]", ["my.x > 3 is undefined (my.x: no such attribute)"]),
    ],
)
def test_names_that_the_target_lacks_may_be_unknown(
    expression: str, target: str, expected: list[str]
) -> None:
    refusals = explain_refusal(parse_expression(expression), ClassAd(), parse_ad(target), kinds={})
    assert [str(refusal) for refusal in refusals] == expected


@given(expressions(), ads(), ads())
def test_explain_refuses_unknown_names_exactly_if_nothing_can_be_true(
    expression: Expression, my: ClassAd, target: ClassAd
) -> None:
    refusals = explain_refusal(expression, my, target, kinds={})
    assert (refusals == ()) is can_be_true(residual(expression, my, target))
    assert all(str(refusal) for refusal in refusals)


@given(expressions(), ads(), ads())
def test_explain_refuses_exactly_if_the_match_refuses(
    expression: Expression, my: ClassAd, target: ClassAd
) -> None:
    refusals = explain_refusal(expression, my, target)
    assert (refusals == ()) is (evaluate(expression, my, target) is True)
    assert all(str(refusal) for refusal in refusals)


@given(expressions(), ads(), ads())
def test_the_outcome_shown_is_the_value_of_the_sub_expression(
    expression: Expression, my: ClassAd, target: ClassAd
) -> None:
    for refusal in explain_refusal(expression, my, target):
        if refusal.within or " ... " in refusal.expression:
            continue
        shown = parse_expression(refusal.expression)
        assert refusal.outcome == value_text(evaluate(shown, my, target))
        assert unparse(shown) == refusal.expression
