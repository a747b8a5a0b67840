"""What a pilot says is bounded by the limits that stand with the fields of its messages."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pytest

from pilotage.server.http.decoding import with_limits
from pilotage.wire.limits import Limit
from pilotage.wire.pilot import EnrolRequest, ExchangeRequest

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
def test_so_are_those_of_an_enrolment(field: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=rf"\$\.{field}"):
        ENROL.decode(json.dumps({"secret": "s", "index": 0, "nonce": "n", field: "x" * 5000}))


def test_it_is_the_same_message_otherwise() -> None:
    body = json.dumps({**take(hostname="h", tags=["a"], attributes={"A": "b"}), **finish(outputs=["a"])})
    message, plain = EXCHANGE.decode(body), msgspec.json.decode(body, type=ExchangeRequest)
    assert isinstance(message, ExchangeRequest)
    assert dataclasses.asdict(message) == dataclasses.asdict(plain)


CUT_LATER = {"Finish.message", "Finish.missing", "RefusedOutput.name", "RefusedOutput.reason"}
"""Told of what a payload did: cut to their length by the server, so that the result is not lost."""


@pytest.mark.parametrize("kind", [ExchangeRequest, EnrolRequest])
def test_every_text_that_a_pilot_can_send_has_a_limit(kind: type) -> None:
    without = {place for place in _texts_without_limit(kind)}
    assert without <= CUT_LATER


def _texts_without_limit(kind: Any) -> Any:
    for name, hint in get_type_hints(kind, include_extras=True).items():
        yield from _of(hint, f"{kind.__name__}.{name}", False)


def _of(hint: Any, place: str, bounded: bool) -> Any:
    if dataclasses.is_dataclass(hint):
        yield from _texts_without_limit(hint)
    elif hint is str:
        if not bounded:
            yield place
    elif hasattr(hint, "__metadata__"):
        bounds = [one.longest for one in hint.__metadata__ if isinstance(one, Limit)]
        yield from _of(hint.__origin__, place, any(bounds))
    elif get_origin(hint) is not None:
        for argument in get_args(hint):
            yield from _of(argument, place, False)
