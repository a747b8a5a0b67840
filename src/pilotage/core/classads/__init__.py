"""ClassAds: expressions over attributes, evaluated in one ad or between two, three-valued.

    parse_expression, parse_ad    text to tree, or `InvalidInput` with line and column
    unparse, canonical, indented  tree to text: to read again, to compare, to show
    evaluate, matches             the value of a tree in an ad, perhaps matched with another
    references, suspicions        the attributes that a tree depends on; probable slips in an ad
    check_call                    `InvalidInput` for a pattern that can't be used

The language as supported, its limits and where it differs on purpose from HTCondor's stand in
docs/reference/classads.md.
"""

from pilotage.core.classads.evaluate import evaluate, matches
from pilotage.core.classads.lint import AttributeReference, Suspicion, check_call, references, suspicions
from pilotage.core.classads.parser import (
    Definition,
    ParserLimits,
    parse_ad,
    parse_definitions,
    parse_expression,
)
from pilotage.core.classads.printer import canonical, indented, quote, unparse
from pilotage.core.classads.tree import (
    ERROR,
    UNDEFINED,
    Attribute,
    Call,
    Chain,
    ClassAd,
    Conditional,
    Error,
    Expression,
    ListOf,
    Literal,
    Logic,
    Subscript,
    Unary,
    Undefined,
)

__all__ = [
    "ERROR",
    "UNDEFINED",
    "Attribute",
    "AttributeReference",
    "Call",
    "Chain",
    "ClassAd",
    "Conditional",
    "Definition",
    "Error",
    "Expression",
    "ListOf",
    "Literal",
    "Logic",
    "ParserLimits",
    "Subscript",
    "Suspicion",
    "Unary",
    "Undefined",
    "canonical",
    "check_call",
    "evaluate",
    "indented",
    "matches",
    "parse_ad",
    "parse_definitions",
    "parse_expression",
    "quote",
    "references",
    "suspicions",
    "unparse",
]
