"""The rules of a forward table, and the values that features carry."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.core.classads.partial import Kind
from pilotage.core.errors import InvalidInput
from pilotage.core.forwarding.rules import (
    WORD,
    ComplexRule,
    FeatureRule,
    OptionRule,
    Rule,
    WallRule,
    parse_rule,
    values_of_features,
)
from pilotage.core.glue.information import Value


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("feature si00_{}", FeatureRule("si00_{}")),
        ("feature gpu", FeatureRule("gpu")),
        ("complex si00 <=", ComplexRule("si00", "<=", "integer")),
        ("complex mem_total <= megabytes", ComplexRule("mem_total", "<=", "megabytes")),
        ("complex os == cstring", ComplexRule("os", "==", "cstring")),
        ("option --tmp", OptionRule("--tmp")),
        ("wall", WallRule()),
        ("none", None),
    ],
)
def test_each_form_of_a_rule(text: str, rule: object) -> None:
    assert parse_rule(text) == rule


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "feature",
            "feature a b",
            "feature {}{}",
            "feature a|b",
            "feature a{}&b",
            "feature -x",
            "feature a,b",
        ),
        *("complex x", "complex x ~", "complex a,b <=", "complex x=1 <=", "complex x <= stones"),
        *("complex x <= string", "complex x == megabytes", "option", "wall 3", "none at all", "si00_{}"),
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_rule(text)


@pytest.mark.parametrize(
    ("features", "kind", "value"),
    [
        (["si00_600", "x"], Kind.INTEGER, 600),
        (["si00_6.5"], Kind.NUMBER, 6.5),
        (["si00_600"], Kind.STRING, "600"),
        (["si00_fast"], Kind.ANY, "fast"),
        (["si00_true"], Kind.BOOLEAN, True),
        (["si00_a", "si00_b"], Kind.STRINGS, ("a", "b")),
        (["si00_"], Kind.ANY, None),
        (["si00_0600"], Kind.INTEGER, None),
        (["si00_fast"], Kind.INTEGER, None),
    ],
)
def test_values_are_read_from_features(features: list[str], kind: Kind, value: Value | None) -> None:
    values, problems = values_of_features(features, {"X": FeatureRule("si00_{}")}, {"x": kind})
    assert values == ({} if value is None else {"X": value})
    assert not problems


def test_two_values_of_one_attribute_are_a_problem() -> None:
    rules: dict[str, Rule] = {
        "X": FeatureRule("si00_{}"),
        "HasGpu": FeatureRule("gpu"),
        "Y": ComplexRule("y", "<="),
    }
    values, problems = values_of_features(["si00_6", "si00_7"], rules, {})
    assert values == {"HasGpu": False}
    assert problems == ["X has several values: features si00_6, si00_7"]
    assert values_of_features(["gpu"], rules, {}) == ({"HasGpu": True}, [])


@given(
    st.one_of(
        st.integers(-(10**12), 10**12),
        st.floats(allow_nan=False, allow_infinity=False),
        st.booleans(),
        st.text(max_size=5),
    )
)
def test_a_feature_gives_back_the_value_that_it_carries(value: int | float | str | bool) -> None:
    rule = FeatureRule("v_{}.x")
    feature = rule.feature(value)
    if feature is None:
        return
    assert WORD.fullmatch(feature)
    kinds = {bool: Kind.BOOLEAN, int: Kind.INTEGER, float: Kind.NUMBER, str: Kind.STRING}
    assert rule.value(feature, kinds[type(value)]) == value
