"""Rules of a forward table against the features of nodes. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from pilotage.core.classads.partial import Kind
from pilotage.core.forwarding.rules import FeatureRule, Rule
from pilotage.core.glue.schema import kinds


def mistakes_in_rules(rules: Mapping[str, Rule], features: Collection[str]) -> Iterator[str]:
    """A sentence for each rule with a feature that no node has. Slurm refuses jobs that ask for such a feature."""
    for attribute, rule in rules.items():
        if not isinstance(rule, FeatureRule) or rule.pattern == "{}":
            continue
        kind = kinds().get(attribute.lower(), Kind.ANY)
        if not any(rule.value(feature, kind) is not None for feature in features):
            known = f"; features: {', '.join(sorted(features)[:10])}" if features else ""
            yield f"forward.{attribute}: no node has a feature {rule.pattern}{known}"
