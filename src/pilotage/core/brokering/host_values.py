"""Values of a host's attributes that the site has written into native names, such as the feature si00_600.

The rules of the CE's forward table are read in the other direction: a single table serves both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pilotage.core.forwarding.rules import ComplexRule, Rule, values_of_features
from pilotage.core.glue.information import Value
from pilotage.core.glue.schema import kinds

FEATURES: Final = "SlurmFeatures"
"""The attribute of a host class with the features of its hosts."""


def host_values(
    attributes: Mapping[str, Value], rules: Mapping[str, Rule]
) -> tuple[dict[str, Value], list[str]]:
    """The attributes that the native names of a host give a value, and problems such as two values of one attribute.

    An attribute with a problem is left out. Without known features nothing is read from them.
    """
    features = attributes.get(FEATURES)
    values: dict[str, Value] = {}
    problems: list[str] = []
    if isinstance(features, tuple):
        values, problems = values_of_features(features, rules, kinds())
    complexes = {name.lower(): value for name, value in attributes.items()}
    for attribute, rule in rules.items():
        if isinstance(rule, ComplexRule) and (value := complexes.get(rule.name.lower())) is not None:
            values[attribute] = int(value) >> 20 if rule.type == "megabytes" and type(value) is int else value
    return values, problems
