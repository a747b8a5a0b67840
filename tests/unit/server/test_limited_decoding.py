"""What a pilot says is bounded by the limits that stand with the fields of its messages."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import msgspec
import pytest

from pilotage.server.http.decoding import with_limits
from pilotage.wire.limits import MAX_INSTANT
from pilotage.wire.pilot import MAX_HELD, EnrolRequest, ExchangeRequest

FILE = {"name": "3/1-1/x", "pattern": "x", "place": "/s", "prefix": "/s/d", "size": 5, "checksum": ""}
EXCHANGE = msgspec.json.Decoder(with_limits(ExchangeRequest))
ENROL = msgspec.json.Decoder(with_limits(EnrolRequest))


def take(**node: Any) -> dict[str, Any]:
    return {"incarnation": 1, "take": {"number": 1, "count": 1, "node": node}}


def finish(**more: Any) -> dict[str, Any]:
    return {"incarnation": 1, "finishes": [{"job": 1, "epoch": 1, **more}]}


@pytest.mark.parametrize(
    ("body", "place", "limit"),
    [
        (take(hostname="h" * 256), "$.take.node.hostname", "255"),
        (take(platform="h" * 256), "$.take.node.platform", "255"),
        (take(tags=["t"] * 1001), "$.take.node.tags", "1000"),
        (take(tags=["t" * 256]), "$.take.node.tags[...]", "255"),
        (take(attributes={"A": "b" * 1001}), "$.take.node.attributes", "1000"),
        (take(attributes={f"A{n}": "b" for n in range(1001)}), "$.take.node.attributes", "1000"),
        (finish(stdout="x" * 9000), "$.finishes[0].stdout", "8192"),
        (finish(stderr="x" * 9000), "$.finishes[0].stderr", "8192"),
        (finish(failure="x" * 256), "$.finishes[0].failure", "255"),
        (finish(outputs=["x" * 1001]), "$.finishes[0].outputs", "1000"),
        ({"incarnation": 1, "leaving": "x" * 2001}, "$.leaving", "2000"),
        (
            {"incarnation": 1, "releases": [{"job": 1, "epoch": 1, "reason": "x" * 2001}]},
            "$.releases[0].reason",
            "2000",
        ),
        *(
            ({"incarnation": 1, name: [{"job": 1, "epoch": 1}] * (MAX_HELD + 1)}, f"$.{name}", str(MAX_HELD))
            for name in ("finishes", "releases", "confirms", "holding")
        ),
        (finish(wall=1e308), "$.finishes[0].wall", str(int(MAX_INSTANT))),
        (finish(files=[{**FILE, "events": 2**63 - 1}]), "$.finishes[0].files[0].events", str(10**12)),
    ],
)
def test_a_text_that_is_too_long_is_refused_with_field_and_limit(
    body: dict[str, Any], place: str, limit: str
) -> None:
    with pytest.raises(msgspec.ValidationError) as refused:
        EXCHANGE.decode(json.dumps(body))
    assert limit in str(refused.value)
    assert place.split("[")[0] in str(refused.value)


@pytest.mark.parametrize("field", ["secret", "nonce", "version", "hostname", "batch_id"])
def test_fields_of_an_enrolment_are_bounded(field: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=rf"\$\.{field}"):
        ENROL.decode(json.dumps({"secret": "s", "index": 0, "nonce": "n", field: "x" * 5000}))


def test_a_message_within_the_limits_is_decoded_unchanged() -> None:
    body = json.dumps({**take(hostname="h", tags=["a"], attributes={"A": "b"}), **finish(outputs=["a"])})
    message, plain = EXCHANGE.decode(body), msgspec.json.decode(body, type=ExchangeRequest)
    assert isinstance(message, ExchangeRequest)
    assert dataclasses.asdict(message) == dataclasses.asdict(plain)
