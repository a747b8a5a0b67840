"""Rules of a forward table against the boolean resources of hosts. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pilotage.core.classads.partial import Kind
from pilotage.core.forwarding.rules import FeatureRule, Rule
from pilotage.core.glue.schema import kinds
from pilotage.outside.batch.lsf.hosts import RESOURCES, LsfHost


def mistakes_in_rules(rules: Mapping[str, Rule], hosts: Sequence[LsfHost]) -> Iterator[str]:
    """A sentence for each rule with a resource that no host has. LSF refuses jobs that select by such a name."""
    names = {
        name for host in hosts if isinstance(known := host.attributes.get(RESOURCES), tuple) for name in known
    }
    for attribute, rule in rules.items():
        if isinstance(rule, FeatureRule) and rule.pattern != "{}":
            kind = kinds().get(attribute.lower(), Kind.ANY)
            if not any(rule.value(name, kind) is not None for name in names):
                known_names = f"; resources: {', '.join(sorted(names)[:10])}" if names else ""
                yield f"forward.{attribute}: no host has a resource {rule.pattern}{known_names}"
