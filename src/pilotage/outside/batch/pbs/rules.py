"""Rules of a forward table against the resources and properties of hosts. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence

from pilotage.core.classads.partial import Kind
from pilotage.core.forwarding.rules import ComplexRule, FeatureRule, Rule
from pilotage.core.glue.schema import kinds
from pilotage.outside.batch.pbs.nodes import PROPERTIES, PbsHost


def mistakes_in_rules(rules: Mapping[str, Rule], hosts: Sequence[PbsHost]) -> Iterator[str]:
    """A sentence for each rule that no host supports. PBS lets jobs that ask for such a thing wait for ever."""
    resources = sorted({name for host in hosts for name in host.resources})
    properties = {name for host in hosts for name in _properties(host)}
    for attribute, rule in rules.items():
        if isinstance(rule, ComplexRule) and rule.name not in (*resources, "arch", "host", "vnode"):
            near = difflib.get_close_matches(rule.name, resources, 1)
            meant = f"; did you mean {near[0]}?" if near else ""
            yield f"forward.{attribute}: no host has a resource {rule.name}{meant}"
        if isinstance(rule, FeatureRule) and rule.pattern != "{}":
            kind = kinds().get(attribute.lower(), Kind.ANY)
            if not any(rule.value(name, kind) is not None for name in properties):
                known = f"; properties: {', '.join(sorted(properties)[:10])}" if properties else ""
                yield f"forward.{attribute}: no node has a property {rule.pattern}{known}"


def _properties(host: PbsHost) -> tuple[str, ...]:
    known = host.attributes.get(PROPERTIES, ())
    return known if isinstance(known, tuple) else ()
