"""Flags are possible at a CE exactly if the broker takes it for a candidate, so no order is made in vain."""

from __future__ import annotations

from hypothesis import given

from pilotage.core import policy
from pilotage.core.brokering.ce_ad import ce_ad
from pilotage.core.brokering.match import CeFacts, match
from pilotage.core.classads import ClassAd, parse_expression
from pilotage.core.classads.partial import residual
from pilotage.core.forwarding.forward import CeTerms, forward
from pilotage.core.glue.information import CeInformation, Value
from tests.unit.core.forwarding.test_forward import (
    DRAWN_KINDS,
    classes_of,
    expressions,
    features_drawn,
    hosts_drawn,
)
from tests.unit.core.forwarding.test_policy import BASE


@given(expressions, hosts_drawn, features_drawn)
def test_the_broker_and_the_flags_agree_on_candidates(
    text: str, drawn: list[dict[str, Value]], rules: dict[str, str]
) -> None:
    lines = "".join(f'{name} = "{rule}"\n' for name, rule in rules.items())
    ce = policy.parse(f"{BASE}[ces.farm.forward]\n{lines}").ces["farm"]
    hosts = classes_of(drawn)
    ad = ce_ad("farm", ce, CeInformation({}, tuple(hosts), updated=0.0, expiry=10.0), 1.0)
    facts = CeFacts("farm", ad.ad, ad.fixed, tuple(host.ad for host in ad.hosts))
    requirements = parse_expression(text)
    requester = ClassAd((("Requirements", requirements),))
    verdict = match(requester, facts, now=1.0, kinds=DRAWN_KINDS).verdict
    terms = CeTerms(ce.forward_table, ce.forward_table.with_rules(ce.forward))
    left = residual(requirements, requester, ad.fixed, DRAWN_KINDS)
    assert forward(left, terms, ad.host_classes, DRAWN_KINDS).is_possible is verdict.fits
