"""Readers of hostile expressions and ads for partial evaluation: it never raises, and keeps the truth of each match."""

from __future__ import annotations

from pilotage.core.classads import (
    Attribute,
    ClassAd,
    Expression,
    evaluate,
    parse_ad,
    parse_expression,
    references,
    unparse,
)
from pilotage.core.classads.partial import Kind, can_be_true, host_conditions, residual


def read_expression(text: str, full: ClassAd) -> None:
    """An expression against an ad of which every second attribute is taken away."""
    expression = parse_expression(text)
    hidden = sorted(full.index)[::2]
    known = ClassAd(tuple((name, value) for name, value in full.attributes if name.lower() not in hidden))
    # A name that no ad defines may be absent, however it is used.
    names = [*hidden, *(reference.name for reference in references(expression))]
    check(expression, full, known, full, dict.fromkeys(names, Kind.ANY))


def read_ad(text: str, requester: ClassAd) -> None:
    """Every attribute of an ad as the Requirements of a match, with the ad and without any."""
    ad = parse_ad(text)
    names = [reference.name for reference in references(ad) if reference.name not in requester.index]
    for name, _ in ad.attributes:
        expression = Attribute(name, Attribute("other"))
        check(expression, requester, ad, ad, dict.fromkeys(names, Kind.ANY))
        residual(expression, ad, ClassAd())


def check(expression: Expression, my: ClassAd, known: ClassAd, full: ClassAd, kinds: dict[str, Kind]) -> None:
    tree = residual(expression, my, known, kinds)
    if tree is not expression:
        # An evaluation within its limits; the residual of one beyond them can be true.
        is_true = evaluate(expression, my, full) is True
        assert not is_true or evaluate(tree, my, full) is True, unparse(tree)
        assert not is_true or can_be_true(tree, kinds), unparse(tree)
    host_conditions(tree, kinds)
    residual(expression, None, ClassAd(), {name: Kind.NUMBER for name in kinds}, steps=100)
